"""The width space of a model: its channel groups, and everything that follows from keeping some of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import nn

from widthwise.core.errors import SliceError, unknown_name
from widthwise.core.params import Params, clone
from widthwise.core.protocols import StackedForward
from widthwise.core.records import SliceSpec
from widthwise.slicing.calling import placed_tensors
from widthwise.slicing.describe import describe
from widthwise.slicing.ir import Shape, Tensor
from widthwise.slicing.layout import Layout, groups_of, size
from widthwise.slicing.linear import linear_weights
from widthwise.slicing.plan import Cut, cut
from widthwise.slicing.program import Forward, build, stacked_forward

T = TypeVar("T")
_PLANS_KEPT = 128  # plans of so many specs are remembered; a selector may make a new spec every round


@dataclass(frozen=True)
class ChannelGroup:
    """Axes of parameters that must be cut together.

    Attributes:
        name: Path of the module that makes the channels.
        size: Number of channels of the full model.
        align: Kept channels are rounded up to a multiple of this, or to all of them.
        floor: So many channels are kept at least.
        coupled_by: The operations at which parameters met on these channels.
    """

    name: str
    size: int
    align: int = 1
    floor: int = 1
    coupled_by: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def channels(self, width: float) -> int:
        """Return how many channels a width keeps: ``channels_at``, at least the floor, aligned.

        Raises:
            SliceError: if the width is not in (0, 1].
        """
        wanted = max(self.floor, channels_at(width, self.size))
        return min(self.size, math.ceil(wanted / self.align) * self.align)


@dataclass(frozen=True)
class ParamLayout:
    """How one parameter or buffer follows the channel groups.

    Attributes:
        tensor: Its name, full shape, dtype and kind.
        axes: For each axis, its row-major factors (see ``layout``).
    """

    tensor: Tensor
    axes: tuple[Layout, ...]

    @property
    def shape(self) -> Shape:
        """Shape in the full model."""
        return self.tensor.shape

    @property
    def groups(self) -> frozenset[str]:
        """Names of the channel groups that cut it."""
        return frozenset(name for axis in self.axes for name in groups_of(axis))


def channels_at(width: float, channels: int) -> int:
    """Return how many of ``channels`` a width keeps: ceil(width * channels), at least 1.

    The product is rounded to nine decimals first, so that float noise never adds a channel. Source:
    Moayedikia and Troncoso Lora 2026, Algorithm 2 (the leading ceil(p C) channels).

    Raises:
        SliceError: if the width is not in (0, 1].

    Example:
        >>> channels_at(0.07, 100), math.ceil(0.07 * 100)
        (7, 8)
    """
    _check_width(width)
    return max(1, math.ceil(round(width * channels, 9)))


def _check_width(width: float) -> None:
    if not 0 < width <= 1:
        raise SliceError(f"width is {width}, but a width is in (0, 1]. Choose one such as 0.5.")


class WidthSpace:
    """All sub-models of one model. Picklable, and without the model's tensors.

    Attributes:
        groups: Channel groups in order of first use.
        parameters: Layout of each parameter, by name.
        buffers: Layout of each buffer, by name.
        output_parameters: Parameters with an axis that is an axis of the output (class rows, output bias).
        freeze: Modules whose output channels stay whole, and groups that do.
        kept_whole: Operations whose channels stay whole because they do not line up, and why.
        samplewise: Whether training treats each sample on its own and draws no numbers (``samplewise``).
        linear_weights: Parameters that training reads once, as the weight of a linear layer.
        forward: What every sub-model runs.
    """

    def __init__(
        self,
        forward: Forward,
        groups: Sequence[ChannelGroup],
        layouts: Mapping[str, ParamLayout],
        aliases: Mapping[str, str],
        macs: tuple[Layout, ...],
        output_parameters: tuple[str, ...],
        freeze: tuple[str, ...],
        kept_whole: tuple[str, ...],
        *,
        samplewise: bool,
    ) -> None:
        self.groups = tuple(groups)
        self.parameters = {name: layout for name, layout in layouts.items() if layout.tensor.parameter}
        self.buffers = {name: layout for name, layout in layouts.items() if not layout.tensor.parameter}
        self.output_parameters = output_parameters
        self.freeze, self.kept_whole, self.samplewise = freeze, kept_whole, samplewise
        self.forward, self._aliases, self._macs = forward, dict(aliases), macs
        self.linear_weights = linear_weights(forward.programs[0]) & self.parameters.keys()
        self._layouts, self._full = dict(layouts), {group.name: group.size for group in groups}
        self._plans: dict[Any, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plans": {}}

    def describe(self) -> str:
        """Return the channel groups as a table: sizes, coupled axes of parameters, why they are coupled."""
        return describe(self)

    def __repr__(self) -> str:
        groups = ", ".join(f"{group.name}: {group.size}" for group in self.groups)
        return f"WidthSpace({len(self.parameters)} parameters; {groups})"

    def nested(self, width: float, widths: Mapping[str, float] | None = None) -> SliceSpec:
        """Return the spec that keeps the leading ceil(width * C) channels of each group.

        Args:
            width: The width of the groups that are not named in ``widths``, and of the spec.
            widths: Widths of single groups.

        Raises:
            SliceError: if a width is not in (0, 1] or a group is unknown.
        """
        if not widths:  # the same object again and again: what is remembered of it is found at once
            return self._remember(("nested", width), lambda: self._nested(width, {}))
        for name in widths:
            if name not in self._full:
                raise SliceError(unknown_name("widths", name, self._full))
        return self._nested(width, widths)

    @property
    def levels(self) -> tuple[float, ...]:
        """Widths at which a nested slice may gain a channel, ascending: k / C of every group, and 1."""
        steps = {k / group.size for group in self.groups for k in range(1, group.size + 1)}
        return tuple(sorted(steps | {1.0}))

    def full(self) -> SliceSpec:
        """Return the spec that keeps everything."""
        return self.nested(1.0)

    def counts(self, spec: SliceSpec) -> dict[str, int]:
        """Return how many channels of each group a spec keeps.

        Raises:
            SliceError: if the spec does not belong to this space.
        """
        return self._remember(("counts", spec.key()), lambda: self._checked(spec))

    def shapes(self, spec: SliceSpec) -> dict[str, Shape]:
        """Return the shape of each parameter of the sub-model."""
        return dict(self._remember(("shapes", spec.key()), lambda: self._shapes(spec)))

    def num_params(self, spec: SliceSpec) -> int:
        """Return the number of parameters of the sub-model."""
        return self._remember(
            ("parameters", spec.key()), lambda: sum(map(math.prod, self.shapes(spec).values()))
        )

    def macs(self, spec: SliceSpec) -> int:
        """Return the multiply-accumulates of one sample's forward pass.

        Convolutions, linear layers, matrix products and recurrent layers' products (over all time steps of
        the example inputs) count; norms, biases, activations and pooling do not.
        """
        counts = self.counts(spec)
        return self._remember(
            ("macs", spec.key()), lambda: sum(size(product, counts) for product in self._macs)
        )

    def upload_bytes(self, spec: SliceSpec) -> int:
        """Return the size of the sub-model's parameters in bytes, at 4 bytes each."""
        return 4 * self.num_params(spec)

    def take(self, tensors: Mapping[str, torch.Tensor], spec: SliceSpec) -> Params:
        """Return the sub-model's part of tensors in global shapes (parameters, buffers, controls).

        The result shares memory with ``tensors`` where each axis keeps one stretch of its positions.

        Raises:
            SliceError: if a name or shape is not that of the model.
        """
        cuts = self._cuts(spec)
        return {name: self._fitting(cuts, name, value).take(value) for name, value in tensors.items()}

    def take_within(self, tensors: Mapping[str, torch.Tensor], outer: SliceSpec, spec: SliceSpec) -> Params:
        """Return the part of tensors in the shapes of ``outer`` that ``spec`` keeps.

        Raises:
            SliceError: if ``spec`` keeps a channel that ``outer`` does not, or a shape does not fit.
        """
        cuts = self._remember((outer.key(), spec.key()), lambda: self._relative(outer, spec))
        return {name: self._fitting(cuts, name, value).take(value) for name, value in tensors.items()}

    def scatter_add_(
        self,
        into: Mapping[str, torch.Tensor],
        values: Mapping[str, torch.Tensor],
        spec: SliceSpec,
        scale: float = 1.0,
    ) -> None:
        """Add ``scale * values`` to the kept coordinates of ``into`` (contiguous, global shapes), in place.

        Raises:
            SliceError: if a name or shape does not fit.
        """
        cuts = self._cuts(spec)
        for name, value in values.items():
            one = self._fitting(cuts, name, into[name])
            if tuple(value.shape) != one.kept:
                raise SliceError(
                    f"{name} has shape {tuple(value.shape)}, but this spec keeps {one.kept}. "
                    "Scatter with the spec that the values were taken with."
                )
            one.add_(into[name], value, scale)

    def mask(self, spec: SliceSpec) -> Params:
        """Return for each parameter which coordinates are kept, as bool tensors of the global shapes."""
        masks: Params = {}
        for name, one in self._cuts(spec).items():
            if name in self.parameters:
                counted = torch.zeros(one.shape)
                one.add_(counted, torch.ones(one.kept), 1.0)
                masks[name] = counted > 0
        return masks

    def module(self, spec: SliceSpec) -> nn.Module:
        """Return a fresh dense sub-model; ``load_`` fills its parameters and buffers with values."""
        counts = self.counts(spec)
        values = {
            name: (torch.empty if layout.tensor.parameter else torch.zeros)(
                _shape(layout, counts), dtype=layout.tensor.dtype
            )
            for name, layout in self._layouts.items()
        }
        return self.assemble(values, spec)

    def stacked(self, module: nn.Module) -> StackedForward:
        """Return the forward of K sub-models of the shapes of one, in training mode (``stacked_forward``).

        A function of parameters [K, ...] by name and inputs [K, B, ...]; it returns scores [K, B, classes].
        """
        return stacked_forward(module)

    def extract(self, model: nn.Module, spec: SliceSpec) -> nn.Module:
        """Return a dense sub-model with copies of the model's kept values, in the model's mode.

        Raises:
            SliceError: if the model is not of this space.
        """
        own = placed_tensors(model)  # the walk over the modules costs more than the copies
        if odd := sorted((own.keys() - self._aliases.keys()) ^ self._layouts.keys()):
            raise SliceError(
                f"the model's tensors differ in {', '.join(odd)}, but only the traced model fits its space. "
                "Trace this model."
            )
        values = clone(self.take({name: own[name].detach() for name in self._layouts}, spec))
        module = self.assemble(values, spec)
        for name, layout in self.parameters.items():
            if own[name].requires_grad != layout.tensor.requires_grad:
                module.get_parameter(name).requires_grad_(own[name].requires_grad)
        return module if model.training else module.eval()

    def assemble(self, values: Params, spec: SliceSpec) -> nn.Module:
        """Return a dense sub-model on values in its own shapes: it shares their memory."""
        tensors = [layout.tensor for layout in self._layouts.values()]
        counts = self.counts(spec)
        sizes = self._remember(("sizes", *counts.values()), lambda: self.forward.sizes(counts))
        return build(self.forward, tensors, self._aliases, values, sizes)

    def _shapes(self, spec: SliceSpec) -> dict[str, Shape]:
        counts = self.counts(spec)
        return {name: _shape(layout, counts) for name, layout in self.parameters.items()}

    def _nested(self, width: float, widths: Mapping[str, float]) -> SliceSpec:
        _check_width(width)
        return SliceSpec(width, {g.name: range(g.channels(widths.get(g.name, width))) for g in self.groups})

    def _checked(self, spec: SliceSpec) -> dict[str, int]:
        if set(spec.kept) != set(self._full):
            raise SliceError(
                f"the spec's groups are {', '.join(spec.kept) or 'none'}, but this space has "
                f"{', '.join(self._full) or 'none'}. Make the spec with this space."
            )
        for name, kept in spec.kept.items():
            total = self._full[name]
            ascending = all(a < b for a, b in pairwise(kept))
            if not len(kept) or not ascending or kept[0] < 0 or kept[-1] >= total:
                raise SliceError(
                    f"the kept channels of {name} are {_brief(kept)}, but they must be ascending, distinct "
                    f"and in [0, {total}), at least one. Correct the spec."
                )
        return {name: len(spec.kept[name]) for name in self._full}  # in one order, whatever the spec's

    def _cuts(self, spec: SliceSpec) -> dict[str, Cut]:
        self.counts(spec)
        return self._remember(spec.key(), lambda: self._plan(self._full, spec.kept))

    def _plan(self, counts: Mapping[str, int], kept: Mapping[str, Sequence[int]]) -> dict[str, Cut]:
        plan = {name: cut(layout.axes, counts, kept) for name, layout in self._layouts.items()}
        plan.update({name: plan[first] for name, first in self._aliases.items()})
        return plan

    def _relative(self, outer: SliceSpec, spec: SliceSpec) -> dict[str, Cut]:
        counts = self.counts(outer)
        self.counts(spec)
        kept: dict[str, Sequence[int]] = {}
        for name, channels in spec.kept.items():
            places = {channel: place for place, channel in enumerate(outer.kept[name])}
            missing = [channel for channel in channels if channel not in places]
            if missing:
                raise SliceError(
                    f"the spec keeps channel {missing[0]} of {name}, but the outer spec does not. "
                    "Take from a spec that contains this one."
                )
            kept[name] = [places[channel] for channel in channels]
        return self._plan(counts, kept)

    def _fitting(self, cuts: Mapping[str, Cut], name: str, value: torch.Tensor) -> Cut:
        one = cuts.get(name)
        if one is None:
            raise SliceError(
                f"{name!r} is no parameter or buffer of this space. Use the names of the traced model."
            )
        if tuple(value.shape) != one.shape:
            raise SliceError(
                f"{name} has shape {tuple(value.shape)}, but the space expects {one.shape}. "
                "Slice tensors in the shapes of the traced model (or name the outer spec)."
            )
        return one

    def _remember(self, key: Any, make: Callable[[], T]) -> T:
        if key not in self._plans:
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.clear()
            self._plans[key] = make()
        found: T = self._plans[key]
        return found


def _shape(layout: ParamLayout, counts: Mapping[str, int]) -> Shape:
    return tuple(size(axis, counts) for axis in layout.axes)


def _brief(kept: Sequence[int]) -> str:
    return str(kept) if isinstance(kept, range) or len(kept) < 9 else f"{len(kept)} numbers"
