"""The coordinate-wise mean on random networks (``random_nets``), for cohorts of any widths and selectors."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_nets import Net, nets

from widthwise.aggregation import UNCOVERED, aggregate
from widthwise.core.params import Params, clone
from widthwise.core.records import SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.slicing import SELECTORS, Moment, WidthSpace, trace

Update = tuple[SliceSpec, Params, int]


@st.composite
def cohorts(draw: st.DrawFn, space: WidthSpace, params: Params) -> list[Update]:
    """Draw a few clients, each with a width, a selector, samples and an update of its slice."""
    seeds = SeedTree(draw(st.integers(0, 2**16)))
    rng = seeds.at("deltas").torch()
    updates = []
    for client in range(draw(st.integers(1, 4))):
        selector = SELECTORS[draw(st.sampled_from(SELECTORS.names()))].value()
        moment = Moment(client, draw(st.integers(0, 9)), seeds, params)
        spec = selector.select(space, draw(st.sampled_from([0.2, 0.5, 0.75, 1.0])), moment)
        shapes = space.shapes(spec)
        delta = {
            name: torch.randn(shape, dtype=torch.float64, generator=rng) for name, shape in shapes.items()
        }
        updates.append((spec, delta, draw(st.integers(1, 99))))
    return updates


def slow(space: WidthSpace, params: Params, updates: list[Update], uncovered: str) -> tuple[Params, Params]:
    """Return the new parameters and what was covered, one coordinate after the other."""
    numbers = {name: torch.arange(value.numel()).reshape(value.shape) for name, value in params.items()}
    held: list[dict[tuple[str, int], float]] = []  # of each client: (parameter, coordinate) -> its update
    for spec, delta, _ in updates:
        mask = spec.mask.kept if spec.mask else {}
        places = space.take(numbers, spec)
        held.append(
            {
                (name, place): value
                for name, own in delta.items()
                for place, value in zip(places[name].flatten().tolist(), own.flatten().tolist(), strict=True)
                if name not in mask or mask[name].flatten()[place]
            }
        )
    new, covered = (
        clone(params),
        {name: torch.zeros(value.shape, dtype=torch.bool) for name, value in params.items()},
    )
    for name, value in params.items():
        for place, old in enumerate(value.flatten().tolist()):
            votes = [
                (n, own[name, place])
                for own, (_, _, n) in zip(held, updates, strict=True)
                if (name, place) in own
            ]
            if votes:
                mean = sum(n * change for n, change in votes) / sum(n for n, _ in votes)
                new[name].view(-1)[place] = old + mean
                covered[name].view(-1)[place] = True
            elif uncovered == "zero":
                new[name].view(-1)[place] = 0.0
    return new, covered


@pytest.mark.parametrize("uncovered", UNCOVERED)
@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(nets(), st.data())
def test_aggregate_equals_a_loop_over_coordinates(uncovered: str, net: Net, data: st.DataObject) -> None:
    space = trace(net.model, net.example, heads=net.heads, check=False)
    params = clone(dict(net.model.named_parameters()))
    updates = data.draw(cohorts(space, params))
    new, covered = aggregate(space, params, updates, uncovered)
    expected, reached = slow(space, params, updates, uncovered)
    assert new.keys() == covered.keys() == params.keys()
    for name in params:
        assert torch.equal(covered[name], reached[name])
        torch.testing.assert_close(new[name], expected[name], rtol=1e-12, atol=1e-14)
        if uncovered == "keep":
            assert torch.equal(new[name][~covered[name]], params[name][~covered[name]])
