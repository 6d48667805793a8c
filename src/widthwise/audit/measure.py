"""The correlations of an audit, from plain arrays: of one run, or of several runs pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widthwise.audit.clients import Clients
from widthwise.audit.correlation import (
    METHODS,
    RESAMPLED,
    Array,
    correlation,
    in_range,
    is_constant,
    residuals,
)
from widthwise.audit.resampling import (
    affordable,
    bootstrap_interval,
    pooled_permutation_test,
    strata_of,
    t_interval,
)
from widthwise.audit.table import COLUMNS, AuditTable, Correlation, Correlations, TierCorrelation
from widthwise.core.errors import InputError
from widthwise.core.seeds import SeedTree

#: Column -> variables that are correlated, and whether capacity is held fixed.
_PLANS = dict(
    zip(
        COLUMNS,
        (
            ("statistic", "divergence", False),
            ("statistic", "capacity", False),
            ("statistic", "divergence", True),
            ("width", "divergence", True),
        ),
        strict=True,
    )
)
_WORDS = {"capacity": "the capacity", "divergence": "the label divergence", "width": "the width"}

Prepare = Callable[[Array], Array]


def audit_table(
    statistic: ArrayLike | None,
    capacity: ArrayLike,
    divergence: ArrayLike,
    width: ArrayLike | None = None,
    *,
    permutations: int = 9_999,
    bootstrap: int = 2_000,
    seed: int = 0,
) -> AuditTable:
    """Correlate a client statistic with capacity and with label divergence, alone and given capacity.

    Source: Moayedikia and Troncoso Lora (2026), Table 5. We add ranks (Spearman), p-values, intervals and
    power. p-values of the marginal columns permute the statistic over all clients, those of the "given
    capacity" columns only among clients of equal capacity: the test then needs no assumption on how the
    statistic depends on capacity, where the partial correlation itself removes a straight line only.

    Args:
        statistic: [N] client statistic taken from updates (the smoothed divergence estimate), or None where
            none was measured.
        capacity: [N] largest width of each client, or any other measure of its size; clients of equal
            capacity are a tier.
        divergence: [N] label divergence of each client, or any other measure of how unusual its data are.
        width: [N] final width of each client, or None where the widths are not of interest.
        permutations: Arrangements that each permutation test may look at; fewer for more than 1,000 clients
            (``affordable``).
        bootstrap: Bootstrap resamples over clients; likewise.
        seed: Root of the random arrangements and resamples.

    Returns:
        The table; undefined cells hold None and a reason, never NaN.

    Raises:
        InputError: if lengths differ, a value is not finite, there are no clients, or no resamples are
            asked for.

    Example:
        >>> table = audit_table([4, 3, 2, 1], [1, 2, 3, 4], [0.1, 0.4, 0.2, 0.3], permutations=24)
        >>> cell = table["r_estimate_capacity"]
        >>> round(cell.value, 6), cell.test, round(cell.p_value * 24)
        (-1.0, 'permutation over all 24 arrangements', 2)
        >>> round(table.spearman["r_estimate_divergence"].value, 2)
        -0.4
    """
    one = Clients(statistic, capacity, divergence, width)
    return pooled_table([one], permutations=permutations, bootstrap=bootstrap, seed=seed)


def pooled_table(
    runs: Sequence[Clients], *, permutations: int = 9_999, bootstrap: int = 2_000, seed: int = 0
) -> AuditTable:
    """Audit several runs of one experiment together; of one run this is ``audit_table``.

    Runs under different seeds have other partitions, capacities and levels of the statistic, so clients are
    never compared across runs. A cell's value is the mean over runs, each counted once, of the correlation
    inside the run: sum_k r_k / K. (Fisher's z would be infinite where a small run has r = 1, and averaging r
    itself costs little: its bias is about -r (1 - r^2) / 2N, at most 0.01 at twenty clients.) Tests permute
    within run and tier; their statistic is the mean over runs of the correlation inside tiers,
    sum_k sum_t x_kt.y_kt / (|x_k| |y_k|) / K, with x and y centred in each tier t of each run k, so that a
    run of larger numbers does not outweigh the others. They ask whether the statistic and the labels are
    linked in *these* runs; how far that carries to other seeds is what the intervals over runs are for.

    Two intervals: Student's t takes one correlation per run as one observation (``run_interval``); it is the
    one that speaks of further seeds, and with three runs, two degrees of freedom, it is wide. The bootstrap
    draws runs and then clients (``interval``); it shows what chance among the clients does, and over few runs
    that differ it is too short to speak of others (``bootstrap_interval`` says by how much).

    A column may be undefined in some runs (a constant statistic or capacity, nothing measured). Its figures
    then rest on the others: ``Correlation.runs``, ``clients`` and ``detectable_r`` count these alone, and
    ``left_out`` says why the rest is missing.

    Args:
        runs: One ``Clients`` per run.
        permutations: Arrangements that each permutation test may look at; fewer for more than 1,000 clients
            in all (``affordable``).
        bootstrap: Bootstrap resamples; likewise.
        seed: Root of the random arrangements and resamples.

    Returns:
        The table; undefined cells hold None and a reason, never NaN.

    Raises:
        InputError: if there are no runs, or no resamples are asked for.

    Example:
        >>> statistics = ([4, 3, 2, 1], [1, 3, 2, 4])
        >>> runs = [Clients(one, capacity=[1, 2, 3, 4], divergence=[0, 3, 1, 2]) for one in statistics]
        >>> cell = pooled_table(runs, permutations=576)["r_estimate_capacity"]
        >>> round(cell.value, 6), cell.runs, cell.test
        (-0.1, 2, 'permutation over all 576 arrangements')
    """
    if not runs:
        raise InputError(
            "the list of runs is empty, but an audit needs at least one. Pass one Clients per run."
        )
    if permutations < 1 or bootstrap < 1:
        raise InputError(
            f"permutations is {permutations} and bootstrap is {bootstrap}, but both must be at least 1. "
            "Raise them."
        )
    clients = sum(map(len, runs))
    permutations, bootstrap = affordable(permutations, clients), affordable(bootstrap, clients)
    tree = SeedTree(seed).at("audit")
    blocks = {
        method: Correlations(
            {c: _cell(runs, c, method, permutations, bootstrap, tree.at(c)) for c in COLUMNS},
            _within_tiers(runs, prepare),
        )
        for method, prepare in METHODS.items()
    }
    return AuditTable(tuple(map(len, runs)), **blocks)


def _cell(
    runs: Sequence[Clients], column: str, method: str, permutations: int, bootstrap: int, tree: SeedTree
) -> Correlation:
    given, prepare = _PLANS[column][2], METHODS[method]
    reasons = [_undefined(run, column, prepare) for run in runs]
    defined = [run for run, reason in zip(runs, reasons, strict=True) if reason is None]
    left_out = tuple(reason for reason in reasons if reason is not None)
    if not defined:
        return Correlation(None, reason=reasons[0], left_out=left_out)
    samples = [tuple(map(prepare, _sample(run, column))) for run in defined]

    def resampled(*variables: Array) -> Array:
        return correlation(*map(RESAMPLED[method], variables))

    values = [float(correlation(*sample)) for sample in samples]
    strata = [run.capacity if given else np.zeros(len(run)) for run in defined]
    triples = [(x, y, labels) for (x, y, *_), labels in zip(samples, strata, strict=True)]
    test = pooled_permutation_test(triples, permutations, tree.at("permutation").numpy())
    interval = bootstrap_interval(samples, resampled, bootstrap, tree.at("bootstrap").numpy())
    reason = None
    if test is None:
        reason = (
            "no two clients have the same capacity, so there is no p-value: round capacity to a few levels"
        )
    elif interval is None:
        reason = "undefined in most resamples, so no interval"
    return Correlation(
        value=float(np.mean(values)),
        p_value=test.p_value if test else None,
        run_interval=t_interval(values),
        interval=(interval.low, interval.high) if interval else None,
        test=str(test) if test else None,
        degenerate_resamples=interval.degenerate if interval else bootstrap,
        reason=reason,
        tested=test.r if test else None,
        strata=tuple(tuple(map(len, strata_of(labels))) for labels in strata),
        left_out=left_out,
    )


def correlations_of(clients: Clients) -> dict[str, float | None]:
    """Return the four Pearson correlations of one run without tests and intervals; None where undefined.

    The values are those of ``audit_table``, and so is the rule of what is undefined.

    Example:
        >>> found = correlations_of(Clients([4, 3, 2, 1], [1, 1, 2, 2], [0.1, 0.4, 0.2, 0.3], [1, 1, 2, 2]))
        >>> round(found["r_estimate_capacity"], 3), found["r_width_divergence_given_capacity"]
        (-0.894, None)
    """
    pearson = METHODS["pearson"]
    return {
        column: None
        if _undefined(clients, column, pearson)
        else float(correlation(*map(pearson, _sample(clients, column))))
        for column in COLUMNS
    }


def _sample(run: Clients, column: str) -> tuple[Array, ...]:
    """Return the variables of a column, capacity last where it is held fixed."""
    x, y, given = _PLANS[column]
    return tuple(run.variable(name) for name in ((x, y, "capacity") if given else (x, y)))


def _undefined(run: Clients, column: str, prepare: Prepare) -> str | None:
    """Return why the correlation is undefined in a run, or None where it is not."""
    x, y, given = _PLANS[column]
    words = {**_WORDS, "statistic": f"the {run.name}"}
    if getattr(run, x) is None:
        return f"{words[x]} was not measured"
    needed = 4 if given else 3
    if len(run) < needed:
        return f"there are fewer than {needed} clients"
    for name in (x, y):
        values = run.variable(name)
        if is_constant(values):
            return f"{words[name]} is the same for every client"
        if given and _fixed_by(run.capacity, values):
            return f"{words[name]} is the same for all clients of equal capacity"
        if given and not residuals(prepare(values), prepare(run.variable("capacity"))).any():
            return f"{words[name]} is a straight line in capacity: nothing is left"
    return None


def _fixed_by(capacity: Array, values: Array) -> bool:
    shared = [values[members] for members in strata_of(capacity) if len(members) > 1]
    return bool(shared) and all(map(is_constant, shared))


def _within_tiers(runs: Sequence[Clients], prepare: Prepare) -> tuple[TierCorrelation, ...]:
    """Return the correlation among the clients of each capacity, in ascending order of capacity."""
    found: dict[float, list[tuple[int, float | str]]] = {}
    for run in runs:
        for members in strata_of(run.capacity):
            tier = float(run.capacity[members[0]])
            found.setdefault(tier, []).append((len(members), _inside(run, members, prepare)))
    return tuple(_tier(tier, found[tier]) for tier in sorted(found))


def _inside(run: Clients, members: NDArray[np.int64], prepare: Prepare) -> float | str:
    """Return the correlation among some clients of a run, or why it is undefined."""
    if run.statistic is None:
        return f"the {run.name} was not measured"
    if len(members) < 3:
        return "fewer than 3 clients"
    x, y = (prepare(in_range(values[members])) for values in (run.statistic, run.divergence))
    r = float(correlation(x, y))
    return r if np.isfinite(r) else "no variation inside the tier"


def _tier(tier: float, runs: Sequence[tuple[int, float | str]]) -> TierCorrelation:
    defined = [(clients, r) for clients, r in runs if not isinstance(r, str)]
    if defined:
        clients, values = zip(*defined, strict=True)
        return TierCorrelation(tier, len(defined), sum(clients), float(np.mean(values)), None)
    return TierCorrelation(tier, 0, sum(clients for clients, _ in runs), None, str(runs[-1][1]))
