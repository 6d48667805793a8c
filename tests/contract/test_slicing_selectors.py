"""What every channel selector must do."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from widthwise.core.params import Params, clone
from widthwise.core.records import SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.core.traits import Trait
from widthwise.slicing import SELECTORS, Moment, Selector, WidthSpace, mask_bytes, num_values, trace

WIDTHS = [0.1, 0.4, 0.5, 1.0]
VARIANTS = [
    *((entry.name, {}) for entry in SELECTORS),
    ("rolling", {"roll_step": 3, "roll_direction": "backward"}),
    ("random-aligned", {"shared_draw": True}),
    ("importance", {"importance_norm": "l1"}),
    ("magnitude", {"mask_scope": "layer"}),
]
PARTS = [SELECTORS[name].value(**options) for name, options in VARIANTS]
pytestmark = pytest.mark.parametrize("selector", PARTS, ids=[repr(part) for part in PARTS])


class Net(nn.Module):
    """A residual block, a normalisation layer, a flattened image: channels coupled over many axes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.inner = nn.Conv2d(6, 10, 1)
        self.back = nn.Conv2d(10, 6, 1)
        self.head = nn.Linear(6 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = x + self.back(torch.relu(self.inner(x)))
        return self.head(torch.flatten(x, 1))


def build() -> tuple[WidthSpace, Params]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Net()
    return trace(model, torch.zeros(2, 1, 2, 2)), clone(dict(model.named_parameters()))


SPACE, PARAMS = build()


def moment(client: int = 0, round_index: int = 0, seed: int = 1) -> Moment:
    return Moment(client, round_index, SeedTree(seed).at("selection"), PARAMS)


def held(spec: SliceSpec) -> Params:
    """Return the coordinates that a client of a spec trains, masks included."""
    masks = SPACE.mask(spec)
    return {n: m & spec.mask.kept.get(n, m) if spec.mask else m for n, m in masks.items()}


def inside(narrow: Params, wide: Params) -> bool:
    return all(not bool((narrow[name] & ~wide[name]).any()) for name in wide)


@pytest.mark.parametrize("width", WIDTHS)
def test_selector_keeps_ascending_channels_as_many_as_the_nested_slice(
    selector: Selector, width: float
) -> None:
    for one in (moment(0, 0), moment(3, 7)):
        spec = selector.select(SPACE, width, one)
        assert spec.width == width
        expected = width if Trait.DENSE in selector.traits else 1.0
        assert SPACE.counts(spec) == SPACE.counts(
            SPACE.nested(expected)
        )  # counts refuses a spec out of range
        assert all(list(kept) == sorted(set(kept)) for kept in spec.kept.values())


@pytest.mark.parametrize("width", WIDTHS)
def test_selector_keeps_as_many_values_as_the_nested_slice(selector: Selector, width: float) -> None:
    spec = selector.select(SPACE, width, moment(2, 5))
    # At width 0.1 the vectors of Net alone exceed the 14 parameters of the nested slice; one weight is kept.
    vectors = sum(len(layout.shape) == 1 and layout.shape[0] for layout in SPACE.parameters.values())
    floor = 0 if Trait.DENSE in selector.traits else vectors + 1
    assert num_values(SPACE, spec) == max(SPACE.num_params(SPACE.nested(width)), floor)
    assert num_values(SPACE, spec) == sum(int(mask.sum()) for mask in held(spec).values())
    assert bool(mask_bytes(spec)) == (Trait.DENSE not in selector.traits and width < 1)


def test_selector_depends_on_its_arguments_only(selector: Selector) -> None:
    for width in WIDTHS:
        first, second = (selector.select(SPACE, width, moment(2, 5)) for _ in range(2))
        assert first.key() == second.key()
        assert all(torch.equal(held(first)[name], held(second)[name]) for name in PARAMS)


def test_selector_keeps_everything_at_full_width(selector: Selector) -> None:
    spec = selector.select(SPACE, 1.0, moment(1, 1))
    assert spec.mask is None
    assert all(bool(mask.all()) for mask in SPACE.mask(spec).values())


def test_selector_puts_a_client_s_narrower_slices_inside_its_wider_ones(selector: Selector) -> None:
    for t in range(4):
        specs = [selector.select(SPACE, width, moment(1, t)) for width in WIDTHS]
        assert all(inside(held(a), held(b)) for a, b in pairwise(specs))


def test_selector_gives_a_round_a_common_core_when_it_says_so(selector: Selector) -> None:
    lies_inside = [
        inside(
            held(selector.select(SPACE, 0.4, moment(1, t))), held(selector.select(SPACE, 0.5, moment(2, t)))
        )
        for t in range(8)
    ]
    assert all(lies_inside) == (Trait.COMMON in selector.traits)


def test_selector_keeps_leading_channels_when_it_says_so(selector: Selector) -> None:
    specs = [selector.select(SPACE, 0.4, moment(1, t)) for t in range(8)]
    leading = all(spec.key() == SPACE.nested(0.4).key() for spec in specs)
    assert leading == (Trait.LEADING in selector.traits)


@pytest.mark.parametrize("width", [0.1, 0.4])
def test_reach_contains_every_slice_of_every_round(selector: Selector, width: float) -> None:
    reach = selector.reach(SPACE, width)
    assert {name: mask.shape for name, mask in reach.items()} == {n: p.shape for n, p in PARAMS.items()}
    for t in range(35):
        assert inside(held(selector.select(SPACE, width, moment(t % 3, t))), reach)
    assert inside(reach, selector.reach(SPACE, 0.5))


def test_shipped_slice_stands_for_its_width_and_extracts(selector: Selector) -> None:
    spec = selector.ship(SPACE, 0.5, PARAMS)
    assert spec.width == 0.5
    outputs = SPACE.extract(Net(), replace(spec, mask=None))(torch.zeros(2, 1, 2, 2))
    assert outputs.shape == (2, 3)


def test_selector_takes_no_unknown_option(selector: Selector) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        type(selector)(nonsense=1)  # type: ignore[call-arg]
