"""Coordinate-wise weighted averaging of updates that live on different slices of one model.

Shapes: K reports, ``*p`` the global shape of a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from widthwise.aggregation.sums import WeightedSum
from widthwise.core.errors import ConfigError, RunError, SliceError, unknown_name
from widthwise.core.params import Params, first_non_finite
from widthwise.core.protocols import Space
from widthwise.core.records import SliceSpec
from widthwise.core.recycled import Block, fresh, tensor_in

MODELS, MOST = 8, 32
"""Updates wait to be summed in one go until they are as large as so many models, or as many as that: a total
in float64 is then read and written once for all of them."""


class CoordinateMean:
    """Running sums of a coordinate-wise weighted mean, in memory that does not grow with the updates.

    Formula, for coordinate j over the reports i whose slice m_i holds it::

        mean_j = sum_i w_i m_ij delta_ij / sum_i w_i m_ij      where the denominator is > 0, else 0

    Source: HAS-FL, Algorithm 1, line 18, with w_i = n_i. Departs: sums are kept in float64, so that the
    order of the updates matters only in the last bits of float64. Of the updates that wait, those of
    one slice are summed first, so it is fastest where equal slices come one after the other.

    Args:
        shapes: Global shape of every parameter.
        memory: Gives the memory of the sums and of the mean.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], memory: Callable[[int], Block] = fresh) -> None:
        self._shapes, self._memory = shapes, memory
        self._size = sum(map(math.prod, shapes.values()))
        self._totals, self._weights = self._flat().zero_(), self._flat().zero_()
        self._total, self._weight = self._by_name(self._totals), self._by_name(self._weights)
        self._weighted_sum = WeightedSum(self._size, memory)
        self._coordinates = 0  # of the updates that wait
        #: Slice -> the weight of the updates that hold it, as long as it is not in the weights by coordinate.
        self._held: dict[object, tuple[Space, SliceSpec, float]] = {}
        self._waiting: list[tuple[Space, SliceSpec, Mapping[str, Tensor], float]] = []

    def add_(self, space: Space, spec: SliceSpec, delta: Mapping[str, Tensor], weight: float) -> None:
        """Fold one update in.

        Args:
            space: Knows where the slice lies in the global model.
            spec: The slice that ``delta`` lives on.
            delta: Local minus received parameters, in the shapes of ``spec``; read now or later, so it must
                not be changed. Outside the mask of a spec that has one, it does not count.
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
        self._waiting.append((space, spec, delta, weight))
        self._coordinates += sum(value.numel() for value in delta.values())
        if self._coordinates >= MODELS * self._size or len(self._waiting) == MOST:
            self._fold()

    def add_sum_(self, space: Space, spec: SliceSpec, total: Mapping[str, Tensor], weight: float) -> None:
        """Fold in a sum of updates of one slice: sum_i w_i delta_i (float64) and sum_i w_i > 0."""
        space.scatter_add_(self._total, spec.masked(total), spec)
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

    def _fold(self) -> None:
        """Add what waits to the totals: once for each slice, for each update where there are masks."""
        groups: dict[Any, list[tuple[Space, SliceSpec, Mapping[str, Tensor], float]]] = {}
        for i, waiting in enumerate(self._waiting):
            spec = waiting[1]
            groups.setdefault(spec.key() if spec.mask is None else i, []).append(waiting)
        self._waiting, self._coordinates = [], 0
        for group in groups.values():
            space, spec, _, _ = group[0]
            weights = [weight for *_, weight in group]
            sums = self._weighted_sum([delta for _, _, delta, _ in group], weights)
            self.add_sum_(space, spec, sums, sum(weights))

    def total(self) -> Params:
        """Return the sums sum_i w_i m_ij delta_ij so far (float64), not to be changed."""
        self._fold()
        return self._total

    def mean(self) -> tuple[Params, Params]:
        """Return the mean (float64, 0 where uncovered) and the covered coordinates (bool)."""
        self._fold()
        self._weigh()
        covered = self._weights > 0
        mean = torch.div(self._totals, self._weights, out=self._flat()).masked_fill_(~covered, 0.0)
        return self._by_name(mean), self._by_name(covered)

    def _flat(self) -> Tensor:
        """Return numbers of any value, one for each coordinate of the model."""
        return tensor_in(self._memory, self._size, torch.float64)

    def _by_name(self, flat: Tensor) -> Params:
        parts = torch.split(flat, [math.prod(shape) for shape in self._shapes.values()])
        return {
            name: part.view(shape) for (name, shape), part in zip(self._shapes.items(), parts, strict=True)
        }


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
        name: rule(value, covered[name]) + mean[name].to(value.dtype) if name in mean else value
        for name, value in params.items()
    }


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
