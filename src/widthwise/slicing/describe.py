"""The channel groups of a model in words: what is cut together, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from widthwise.slicing.layout import Factor, Layout, Parts, groups_of

if TYPE_CHECKING:
    from widthwise.slicing.space import WidthSpace

WHOLE = "never cut"
_SHOWN = 6  # axes and couplings of a group in the table; JSON has all


@dataclass(frozen=True)
class GroupRow:
    """One channel group.

    Attributes:
        name: Its name.
        size: Number of channels of the full model.
        axes: ``parameter[axis]`` of each axis that it cuts, with the axis' factors where there are several.
        coupled_by: The operations at which parameters of different modules met on it.
    """

    name: str
    size: int
    axes: tuple[str, ...]
    coupled_by: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**vars(self), "axes": list(self.axes), "coupled_by": list(self.coupled_by)}


def group_rows(space: WidthSpace) -> list[GroupRow]:
    """Return the channel groups of a space in order of first use."""
    return [
        GroupRow(group.name, group.size, tuple(_axes(space, group.name)), group.coupled_by)
        for group in space.groups
    ]


def group_table(space: WidthSpace) -> Table:
    """Return the channel groups as a table for the terminal."""
    table = Table(title="Channel groups" if space.groups else "No channel can be cut")
    for column in ("group", "channels", "cuts", "coupled by"):
        table.add_column(column, overflow="fold")
    for row in group_rows(space):
        table.add_row(row.name, str(row.size), _lines(row.axes), _lines(row.coupled_by))
    whole = [name for name, layout in space.parameters.items() if not layout.groups]
    notes = [f"Never cut: {', '.join(_some(whole))}"] if whole else []
    if space.kept_whole:
        notes.append(f"Kept whole, as channels do not line up: {', '.join(_some(space.kept_whole))}")
    table.caption = "\n".join(notes) or None
    return table


def describe(space: WidthSpace) -> str:
    """Return the channel groups as text.

    Example:
        >>> import torch, widthwise as ww
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
        >>> print(ww.trace(model, torch.zeros(2, 4)).describe())  # doctest: +NORMALIZE_WHITESPACE
                      Channel groups
        ┏━━━━━━━┳━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━━┓
        ┃ group ┃ channels ┃ cuts        ┃ coupled by  ┃
        ┡━━━━━━━╇━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━┩
        │ 0     │ 8        │ 0.weight[0] │ linear in 1 │
        │       │          │ 0.bias[0]   │             │
        │       │          │ 1.weight[1] │             │
        └───────┴──────────┴─────────────┴─────────────┘
                     Never cut: 1.bias
    """
    console = Console(width=140, no_color=True)
    with console.capture() as text:
        console.print(group_table(space))
    return text.get().rstrip("\n")


def _axes(space: WidthSpace, group: str) -> Iterable[str]:
    for name, layout in {**space.parameters, **space.buffers}.items():
        for axis, factors in enumerate(layout.axes):
            if group in groups_of(factors):
                shown = f": {_product(factors)}" if len(factors) > 1 else ""
                yield f"{name}[{axis}{shown}]"


def _product(layout: Layout) -> str:
    return " x ".join(map(_factor, layout)) or "1"


def _factor(factor: Factor) -> str:
    if isinstance(factor, Parts):
        return f"({' + '.join(map(_product, factor.layouts))})"
    return str(factor)


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(_some(lines))


def _some(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _SHOWN
    return [*lines[:_SHOWN], *([f"and {left} more"] if left > 0 else [])]


def group_edges(space: WidthSpace) -> list[tuple[str, str, int]]:
    """Return (group, group, number of parameters) for each pair of groups that parameters connect.

    A parameter connects the groups on two of its axes (the first by name, where an axis has several), or its
    only one with ``WHOLE``, which stands for axes that are never cut. Which of the two is read and which is
    made depends on the operation, so edges have no direction: the group that is used first comes first.
    """
    order = {group.name: place for place, group in enumerate(space.groups)} | {WHOLE: len(space.groups)}
    counted: dict[tuple[str, str], int] = {}
    for layout in space.parameters.values():
        if len(layout.axes) > 1 and layout.groups:
            found = [min(groups) for groups in map(groups_of, layout.axes) if groups]
            for pair in combinations(found if len(found) > 1 else [*found, WHOLE], 2):
                one, other = sorted(pair, key=order.__getitem__)
                counted[one, other] = counted.get((one, other), 0) + prod(layout.shape)
    return [(*pair, count) for pair, count in counted.items()]
