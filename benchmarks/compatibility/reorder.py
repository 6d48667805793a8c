"""An independent look at channel groups: their channels have no order.

Where two axes of parameters are cut together, and rightly so, the same permutation of both changes nothing
that the model computes. This uses nothing of what tracing concludes but the layouts of the parameters, and
holds for norms and means over channels too. It does not hold for a group norm, which normalises neighbours.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

import widthwise as ww
from widthwise.core.params import load_
from widthwise.slicing.layout import Factor, Layout, Parts

TOLERANCE = 1e-3  # of the largest output; float32 over a hundred layers


def ordered_groups(
    model: nn.Module, space: ww.WidthSpace, outputs: Callable[[nn.Module], list[Tensor]]
) -> list[str]:
    """Return the names of the groups whose channels cannot be reordered without a change of the outputs.

    Args:
        model: The traced model. It stays as it is.
        space: Its space.
        outputs: What a copy of the model computes.
    """
    model = copy.deepcopy(model)
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    floats = {name: value for name, value in tensors.items() if value.is_floating_point()}
    # Models start with many zeros and ones, which look the same in any order. Frequencies of a sine or a
    # running variance may not change their sign.
    with torch.no_grad():
        load_(model, {name: value * (1 + 0.3 * torch.rand_like(value)) for name, value in floats.items()})
        load_(
            model, {name: value + 0.1 * torch.randn_like(value) for name, value in model.named_parameters()}
        )
    values = {name: tensors[name].detach().clone() for name in space.parameters | space.buffers}
    counts = {group.name: group.size for group in space.groups}
    expected = _run(model, outputs)
    found = []
    for group in space.groups:
        order = torch.arange(group.size).roll(1)  # no channel stays where it is
        for name, layout in (space.parameters | space.buffers).items():
            value = values[name]
            for dim, axis in enumerate(layout.axes):
                value = value.index_select(
                    dim, torch.tensor(_order(axis, counts, {group.name: order.tolist()}))
                )
            load_(model, {name: value})
        if not all(map(_close, expected, _run(model, outputs))):
            found.append(group.name)
        load_(model, values)
    return found


def _run(model: nn.Module, outputs: Callable[[nn.Module], list[Tensor]]) -> list[Tensor]:
    torch.manual_seed(2)  # a forward may draw
    with torch.no_grad():
        return outputs(model)


def _close(one: Tensor, other: Tensor) -> bool:
    one, other = one.double().nan_to_num(), other.double().nan_to_num()
    return not one.numel() or float((one - other).abs().max()) <= TOLERANCE * float(one.abs().max())


def _order(layout: Layout, counts: Mapping[str, int], orders: Mapping[str, Sequence[int]]) -> list[int]:
    """Return the positions of an axis in the order that its groups' channels get."""
    positions = [0]
    for factor in layout:
        inner = _factor_order(factor, counts, orders)
        positions = [outer * len(inner) + i for outer in positions for i in inner]
    return positions


def _factor_order(
    factor: Factor, counts: Mapping[str, int], orders: Mapping[str, Sequence[int]]
) -> list[int]:
    match factor:
        case int():
            return list(range(factor))
        case str():
            return list(orders.get(factor, range(counts[factor])))
        case Parts(layouts):
            positions: list[int] = []
            for layout in layouts:
                start = len(positions)
                positions += [start + i for i in _order(layout, counts, orders)]
            return positions
