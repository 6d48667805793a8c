"""What every channel selector must do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from widthwise.slicing import SELECTORS, WidthSpace, channels_at, trace


@pytest.fixture(scope="module")
def space() -> WidthSpace:
    model = nn.Sequential(nn.Linear(3, 10), nn.ReLU(), nn.Linear(10, 7), nn.ReLU(), nn.Linear(7, 2))
    return trace(model, torch.zeros(2, 3))


@pytest.mark.parametrize("name", SELECTORS.names())
@pytest.mark.parametrize("width", [0.1, 0.5, 1.0])
def test_selector_keeps_the_stated_number_of_channels(space: WidthSpace, name: str, width: float) -> None:
    select = SELECTORS[name].value
    for client_id, round_index in ((0, 0), (3, 7)):
        spec = select(space, width, client_id, round_index)
        assert spec.width == width
        assert space.counts(spec) == {group.name: channels_at(width, group.size) for group in space.groups}


@pytest.mark.parametrize("name", SELECTORS.names())
def test_selector_is_a_function_of_its_arguments(space: WidthSpace, name: str) -> None:
    select = SELECTORS[name].value
    assert select(space, 0.4, 2, 5).key() == select(space, 0.4, 2, 5).key()


@pytest.mark.parametrize("name", SELECTORS.names())
def test_selector_keeps_everything_at_full_width(space: WidthSpace, name: str) -> None:
    spec = SELECTORS[name].value(space, 1.0, 1, 1)
    assert all(bool(mask.all()) for mask in space.mask(spec).values())
