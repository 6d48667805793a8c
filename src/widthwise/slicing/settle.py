"""From settled labels to plain data: layouts of axes, and steps whose sizes follow them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from widthwise.slicing.axes import Atom, Axis, resolve
from widthwise.slicing.ir import BATCH, BatchSize, GroupCount, Size, Step
from widthwise.slicing.layout import Factor, Layout, Parts, groups_of
from widthwise.slicing.rules.base import Call, SizeOf, schema_of


class Settler:
    """Turns labels into layouts, and the edits of calls into arguments."""

    def __init__(self, names: Mapping[Atom, str]) -> None:
        self.names = names

    def layout(self, axis: Axis) -> Layout:
        """Return the layout of an axis, neighbouring fixed factors joined."""
        factors: list[Factor] = []
        for atom in resolve(axis):
            factor: Factor = atom.size
            if atom in self.names:
                factor = self.names[atom]
            elif not atom.fixed and atom.parts:
                factor = Parts(tuple(self.layout(part) for part in atom.parts))
            if isinstance(factor, int) and factors and isinstance(factors[-1], int):
                factors[-1] *= factor
            else:
                factors.append(factor)
        return tuple(factors)

    def per_sample(self, axis: Axis) -> Layout:
        """Return a product of axes as it is in a batch of one sample.

        The batch may stand in it more than once: products of pairs of samples (h h^T) are B for each sample
        of a batch of B, and count as one.
        """
        return tuple(_of_one_sample(f) if isinstance(f, int) else f for f in self.layout(axis))

    def step(self, step: Step, call: Call | None) -> Step:
        """Return a step whose size arguments follow the groups."""
        if call is None:
            return step
        args, kwargs = list(call.args), dict(call.kwargs)
        positions = {argument.name: i for i, argument in enumerate(schema_of(call.op).arguments)}
        for name, edit in call.edits.items():
            position = positions[name]
            given = args[position] if position < len(args) else kwargs.get(name)
            value = self._settled(given, edit)
            if position < len(args):
                args[position] = value
            elif value is not None:
                kwargs[name] = value
        summed = [(positions[name], dim, self.layout(axis)) for name, dim, axis in call.summed]
        mixed = [self.layout(axis) for axis in call.mixed]
        mixed += [layout for *_, layout in summed if _has_batch(layout)]
        mixes = any(map(groups_of, mixed))
        sums = tuple(one for one in summed if groups_of(one[2]) and not _has_batch(one[2]))
        return replace(step, op=call.op, args=tuple(args), kwargs=kwargs, mixes=mixes, sums=sums)

    def _settled(self, given: Any, edit: SizeOf | list[SizeOf]) -> Any:
        if isinstance(edit, list):
            return [self._settled(item, one) for item, one in zip(given, edit, strict=True)]
        layout = self.layout(edit.axis)
        if all(isinstance(factor, int) for factor in layout):
            if given != -1:
                return given
            fixed = prod(factor for factor in layout if isinstance(factor, int))
            return fixed if fixed % BATCH else BatchSize(fixed // BATCH)
        if edit.per_group is not None:
            return GroupCount(layout, edit.per_group)
        return Size(layout)


def _of_one_sample(size: int) -> int:
    return _of_one_sample(size // BATCH) if size and size % BATCH == 0 else size


def _has_batch(layout: Layout) -> bool:
    return any(isinstance(factor, int) and factor % BATCH == 0 for factor in layout)
