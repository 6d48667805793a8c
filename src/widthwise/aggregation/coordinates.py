"""Coordinate-wise weighted averaging of updates that live on different slices of one model.

Shapes: K reports, ``*p`` the global shape of a parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from widthwise.core.errors import ConfigError, RunError, SliceError, unknown_name
from widthwise.core.params import Params, first_non_finite, pieces
from widthwise.core.protocols import Space
from widthwise.core.records import SliceSpec
from widthwise.core.recycled import Block, fresh, tensors_in

MOST = 32
"""Different slices whose weights may wait to be added by coordinate."""


class CoordinateMean:
    """Running sums of a coordinate-wise weighted mean, in memory that does not grow with the updates.

    Formula, for coordinate j over the reports i whose slice m_i holds it::

        mean_j = sum_i w_i m_ij delta_ij / sum_i w_i m_ij      where the denominator is > 0, else 0

    Source: HAS-FL, Algorithm 1, line 18, with w_i = n_i. Departs: sums are kept in float64, so that the
    order of the updates matters only in the last bits of float64.

    Args:
        shapes: Global shape of every parameter.
        memory: Gives the memory of the sums and of the mean.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], memory: Callable[[int], Block] = fresh) -> None:
        self._shapes, self._memory = shapes, memory
        self._total, self._weight = self._zeros(), self._zeros()
        #: Slice -> the weight of the updates that hold it, as long as it is not in the weights by coordinate.
        self._held: dict[object, tuple[Space, SliceSpec, float]] = {}

    def add_(self, space: Space, spec: SliceSpec, delta: Mapping[str, Tensor], weight: float) -> None:
        """Fold one update in.

        Args:
            space: Knows where the slice lies in the global model.
            spec: The slice that ``delta`` lives on.
            delta: Local minus received parameters, in the shapes of ``spec``. Outside the mask of a spec
                that has one, it does not count.
            weight: w_i > 0.

        Raises:
            SliceError: if the names or shapes of ``delta`` are not those of ``spec``, or ``weight`` is
                not a positive number. Nothing is added then.
        """
        if not 0.0 < weight < float("inf"):
            raise SliceError(
                f"The weight of an update is {weight}, but it must be a positive number. Check n_i."
            )
        shapes = space.shapes(spec)
        if delta.keys() != shapes.keys():
            odd = sorted(delta.keys() ^ shapes.keys())
            raise SliceError(
                f"An update has other parameters than its slice (differing: {', '.join(odd[:3])}), "
                "but they must be the same. Send exactly the parameters of space.extract(model, spec)."
            )
        for name, shape in shapes.items():
            if tuple(delta[name].shape) != tuple(shape):
                raise SliceError(
                    f"The update of {name!r} has shape {tuple(delta[name].shape)}, but its slice at width "
                    f"{spec.width:g} has shape {tuple(shape)}. Send the update together with its own spec."
                )
        self._add(space, spec, delta, weight, weight)

    def add_sum_(self, space: Space, spec: SliceSpec, total: Mapping[str, Tensor], weight: float) -> None:
        """Fold in a sum of updates of one slice: sum_i w_i delta_i and sum_i w_i > 0."""
        self._add(space, spec, total, 1.0, weight)

    def _add(
        self, space: Space, spec: SliceSpec, values: Mapping[str, Tensor], scale: float, weight: float
    ) -> None:
        space.scatter_add_(self._total, spec.masked(values), spec, scale)
        key = spec.key() if spec.mask is None else object()
        _, _, before = self._held.get(key, (space, spec, 0.0))
        self._held[key] = space, spec, before + weight
        if len(self._held) == MOST or spec.mask is not None:
            self._weigh()

    def _weigh(self) -> None:
        """Add what slices are held with to the weights: once for each slice, not for each sum."""
        one = torch.ones((), dtype=torch.float64)
        for space, spec, weight in self._held.values():
            held = {name: one.expand(shape) for name, shape in space.shapes(spec).items()}
            space.scatter_add_(self._weight, spec.masked(held), spec, weight)
        self._held.clear()

    def total(self) -> Params:
        """Return the sums sum_i w_i m_ij delta_ij so far (float64), not to be changed."""
        return self._total

    def mean(self) -> tuple[Params, Params]:
        """Return the mean (float64, 0 where uncovered) and the covered coordinates (bool); called once."""
        self._weigh()
        mean, self._total = self._total, {}  # takes the place of the sums
        covered = self._tensors(torch.bool)
        for name, total in mean.items():
            for some, weight, held in pieces(total, self._weight[name], covered[name]):
                torch.gt(weight, 0, out=held)
                some.div_(weight).masked_fill_(~held, 0.0)
        return mean, covered

    def _zeros(self) -> Params:
        return {name: value.zero_() for name, value in self._tensors(torch.float64).items()}

    def _tensors(self, dtype: torch.dtype) -> Params:
        """Return tensors of any values in the shapes of the model."""
        return tensors_in(self._memory, {name: (dtype, shape) for name, shape in self._shapes.items()})


def _keep(value: Tensor, covered: Tensor) -> Tensor:
    return value


def _zero(value: Tensor, covered: Tensor) -> Tensor:
    return torch.where(covered, value, torch.zeros((), dtype=value.dtype))


UNCOVERED = {"keep": _keep, "zero": _zero}
"""Rules for a coordinate that no report of the round holds: ``keep`` its value (HAS-FL, HeteroFL), or set
it to ``zero`` (what some implementations do by accident; here so that its harm can be shown)."""


def server_step(
    params: Mapping[str, Tensor],
    mean: Mapping[str, Tensor],
    covered: Mapping[str, Tensor],
    uncovered: str = "keep",
) -> Params:
    """Return params + mean where covered; other coordinates follow the named rule.

    Raises:
        ConfigError: if the rule is unknown.
    """
    if uncovered not in UNCOVERED:
        raise ConfigError(unknown_name("uncovered", uncovered, UNCOVERED))
    rule = UNCOVERED[uncovered]
    return {
        name: _moved(rule(value, covered[name]), mean[name]) if name in mean else value
        for name, value in params.items()
    }


@torch.no_grad()
def _moved(value: Tensor, by: Tensor) -> Tensor:
    moved = torch.empty_like(value, memory_format=torch.contiguous_format)
    for some, before, step in pieces(moved, value.contiguous(), by.contiguous()):
        torch.add(before, step.to(value.dtype), out=some)
    return moved


def aggregate(
    space: Space,
    global_params: Mapping[str, Tensor],
    updates: Iterable[tuple[SliceSpec, Mapping[str, Tensor], float]],
    uncovered: str = "keep",
) -> tuple[Params, Params]:
    """Average updates of different slices into the global parameters.

    Args:
        space: Width space of the model.
        global_params: Global parameters w(t), name -> tensor of shape ``*p``.
        updates: ``(spec, delta, num_examples)`` of each client. A delta must not be changed once it is given.
        uncovered: What happens to a coordinate that nobody trained (see ``UNCOVERED``).

    Returns:
        The new global parameters and, of the same shapes, which coordinates were covered.

    Raises:
        SliceError: if an update does not fit its spec.
        RunError: if an update holds a NaN or an infinity.

    Example:
        >>> import torch, widthwise as ww
        >>> model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Linear(4, 1))
        >>> space = ww.trace(model, torch.zeros(2, 2))
        >>> spec = space.nested(0.5)
        >>> start = dict(model.named_parameters())
        >>> ones = {name: torch.ones(shape) for name, shape in space.shapes(spec).items()}
        >>> new, covered = ww.aggregate(space, start, [(spec, ones, 10)])
        >>> covered["0.bias"].tolist()
        [True, True, False, False]
    """
    stats = CoordinateMean({name: tuple(value.shape) for name, value in global_params.items()})
    with torch.no_grad():
        for spec, delta, num_examples in updates:
            if bad := first_non_finite(delta):
                raise RunError(
                    f"the update of {bad!r} is not finite, but a mean needs finite numbers. Leave it out.",
                    stage="aggregation",
                )
            stats.add_(space, spec, delta, num_examples)
        mean, covered = stats.mean()
        return server_step(global_params, mean, covered, uncovered), covered
