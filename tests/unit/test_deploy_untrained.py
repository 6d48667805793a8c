"""What a round leaves untrained."""

from __future__ import annotations

import pytest
import torch

from widthwise.core.records import Mask, SliceSpec
from widthwise.deploy.untrained import untrained
from widthwise.slicing import trace


@pytest.fixture(scope="module")
def space():
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return trace(model, torch.zeros(2, 3))


def test_untrained_names_share_parameters_and_channels(space):
    found = untrained(space, [space.full(), space.nested(0.5)], [space.nested(0.5), space.nested(0.25)])
    # Of 8 * 3 + 8 + 2 * 8 + 2 = 50 coordinates, 4 rows, 4 biases and 4 columns of 2.
    assert found.share == pytest.approx((4 * 3 + 4 + 4 * 2) / 50)
    assert found.parameters == {"0.weight": 0.5, "0.bias": 0.5, "2.weight": 0.5}
    group = space.groups[0].name
    assert found.groups == {group: range(4, 8)}
    assert str(found) == (
        f"48.0% of the coordinates went untrained (channels 4-7 of {group}; "
        "50.0% of 0.weight, 50.0% of 0.bias, 50.0% of 2.weight)"
    )


def test_untrained_is_nothing_where_others_hold_the_same(space):
    found = untrained(space, [space.full(), space.full()], [space.full()])
    assert (found.share, found.parameters, found.groups) == (0.0, {}, {})


def test_untrained_is_all_that_was_planned_where_nobody_trains(space):
    found = untrained(space, [space.nested(0.5)], [])
    assert found.share == pytest.approx((4 * 3 + 4 + 4 * 2 + 2) / 50)
    assert found.parameters["2.bias"] == 1.0


def test_untrained_counts_scattered_channels_and_coordinates_of_masks(space):
    group = space.groups[0].name
    some = SliceSpec(0.25, {group: (1, 5)})
    assert untrained(space, [some], []).groups == {group: (1, 5)}
    kept = torch.zeros(8, 3, dtype=torch.bool)
    kept[0] = True
    masked = SliceSpec(0.5, space.full().kept, Mask({"0.weight": kept}, {"0.weight": 0.1}))
    found = untrained(space, [space.full()], [masked])
    assert found.parameters == {"0.weight": 7 / 8}
    assert found.groups == {}
