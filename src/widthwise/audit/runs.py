"""The capacity-confound audit of stored runs: does a client statistic measure data or only capacity?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from widthwise.audit.clients import Clients
from widthwise.audit.confound import AuditReport, Case, assemble
from widthwise.audit.groups import group_runs
from widthwise.core.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from widthwise.engine.runs import RunResult


def audit(
    results: RunResult | Path | str | Sequence[RunResult | Path | str],
    *,
    permutations: int = 9_999,
    bootstrap: int = 2_000,
    seed: int = 0,
) -> AuditReport:
    """Audit finished runs: the four correlations of the paper's Table 5, with tests, intervals and power.

    Runs that differ by nothing but their seed are one experiment, and are also audited together.

    Source: Moayedikia and Troncoso Lora (2026), Table 5 and the recommended practice of checking any client
    statistic within capacity strata. Departures: see ``audit_table`` and ``pooled_table``.

    Args:
        results: One run or several, as results or as run folders.
        permutations: Arrangements that each permutation test may look at.
        bootstrap: Bootstrap resamples over clients, and over runs where several are pooled.
        seed: Root of the random arrangements and resamples.

    Returns:
        The report; print it with rich or take ``to_json()``.

    Raises:
        InputError: if there is no run, or no resamples are asked for.
        CheckpointError: if a run folder is unfinished or damaged.
    """
    # Not above: the engine takes seconds to load, and a table of clients is audited without it.
    from widthwise.engine.runs import RunResult, load_run

    given = [results] if isinstance(results, RunResult | Path | str) else list(results)
    if not given:
        raise InputError("the list of runs is empty, but an audit needs at least one. Name a run folder.")
    runs = [one if isinstance(one, RunResult) else load_run(one) for one in given]
    labels = {id(run): group.label for group in group_runs(runs) for run in group.runs}
    cases = [_case(run, labels[id(run)]) for run in runs]
    return assemble(cases, "update divergence", permutations=permutations, bootstrap=bootstrap, seed=seed)


def clients_of(run: RunResult) -> Clients:
    """Return what an audit needs of a finished run: the clients that ever took part.

    Of the others nothing was measured; their estimate is still the initial one.

    Raises:
        CheckpointError: if the run is unfinished.
    """
    if run.result is None:
        raise CheckpointError(
            f"run {str(run.path)!r} is unfinished, but an audit needs its final estimates. Resume it first."
        )
    trained = run.clients.loc[run.clients["participated"].astype(bool), "client"].unique()
    took_part = np.isin(run.partition["clients"], trained)

    def of(values: Sequence[float]) -> NDArray[np.float64]:
        return np.asarray(values, dtype=np.float64)[took_part]

    if not took_part.any():
        return Clients(None, run.partition["capacities"], run.partition["label_divergence"], name="estimate")
    estimates = run.result["estimates"]
    return Clients(
        None if estimates is None else of(estimates),
        of(run.partition["capacities"]),
        of(run.partition["label_divergence"]),
        of(run.result["widths"]),
        name="estimate",
    )


def _case(run: RunResult, label: str) -> Case:
    clients = clients_of(run)
    trained = run.clients.loc[run.clients["participated"].astype(bool), "width"]
    return Case(label, run.seed, run.method, clients, trained.nunique() == 1)
