"""What every registered policy promises."""

from __future__ import annotations

import json

import numpy as np
import pytest

from widthwise.allocation import POLICIES, Policy, PolicyState, Population
from widthwise.core.records import Cohort
from widthwise.core.registry import Entry

NEEDED = {"random-budget": {"budget": 0.45}, "strong-only": {"threshold": 0.5}}
CAPACITIES = np.array([0.25] * 7 + [0.5] * 7 + [0.75] * 3 + [1.0] * 3)
POPULATION = Population(CAPACITIES, (0.25, 0.5, 0.75, 1.0))
ODD = Population(np.array([0.1, 0.3, 0.6000000000000001, 0.9]), (0.2, 0.6))

pytestmark = pytest.mark.parametrize("entry", list(POLICIES), ids=POLICIES.names())


def policy_of(entry: Entry[type[Policy]]) -> Policy:
    return entry.value(**NEEDED.get(entry.name, {}))


def play(policy: Policy, population: Population, seed: int = 0, rounds: int = 12) -> list[dict[int, float]]:
    """Allocate for some rounds, adapting every third to estimates that change."""
    state, rng = policy.init(population), np.random.default_rng(seed)
    n = len(population.capacities)
    given = []
    for t in range(rounds):
        clients = tuple(sorted(rng.choice(n, size=max(2, n // 2), replace=False).tolist()))
        widths, state = policy.allocate(state, population, Cohort(t, clients), rng)
        given.append(widths)
        assert tuple(widths) == clients
        assert all(state.widths[client] == width for client, width in widths.items())
        if t % 3 == 2:
            state = policy.observe(state, population, rng.uniform(0, 5, size=n))
    return given


@pytest.mark.parametrize("population", [POPULATION, ODD], ids=["tiers", "odd"])
def test_policy_respects_capacity_and_its_own_bounds(
    entry: Entry[type[Policy]], population: Population
) -> None:
    policy = policy_of(entry)
    reachable, guaranteed = policy.reachable(population), policy.guaranteed(population)
    assert np.all(guaranteed <= reachable)
    if entry.name != "full":
        assert np.all(reachable <= population.capacities)
    for widths in play(policy, population):
        for client, width in widths.items():
            assert isinstance(width, float)
            assert 0 < width <= 1 or reachable[client] == width == 0  # it stays out, always
            assert guaranteed[client] - 1e-12 <= width <= reachable[client] + 1e-12


def content(state: PolicyState) -> tuple[list[float], dict[str, float]]:
    return state.widths.tolist(), dict(state.extra)


def test_policy_is_pure_in_the_generator(entry: Entry[type[Policy]]) -> None:
    policy = policy_of(entry)
    before = content(policy.init(POPULATION))
    state, cohort = policy.init(POPULATION), Cohort(0, tuple(range(10)))
    first = policy.allocate(state, POPULATION, cohort, np.random.default_rng(3))
    second = policy.allocate(state, POPULATION, cohort, np.random.default_rng(3))
    assert first[0] == second[0]
    assert content(first[1]) == content(second[1])
    policy.observe(state, POPULATION, np.linspace(0, 2, 20))
    assert content(state) == before
    assert play(policy, POPULATION) == play(policy, POPULATION)


def test_policy_state_survives_json(entry: Entry[type[Policy]]) -> None:
    policy = policy_of(entry)
    cohort = Cohort(0, tuple(range(10)))
    _, state = policy.allocate(policy.init(POPULATION), POPULATION, cohort, np.random.default_rng(1))
    state = policy.observe(state, POPULATION, np.random.default_rng(2).uniform(0, 3, 20))
    back = PolicyState(state.widths, json.loads(json.dumps(dict(state.extra))))
    assert content(back) == content(state)
    assert back.widths.dtype == np.float64
    later = Cohort(1, tuple(range(5, 15)))
    assert (
        policy.allocate(back, POPULATION, later, np.random.default_rng(4))[0]
        == policy.allocate(state, POPULATION, later, np.random.default_rng(4))[0]
    )


def test_policy_accepts_a_single_client(entry: Entry[type[Policy]]) -> None:
    population = Population(np.array([0.5]), (0.5,))
    widths, _ = policy_of(entry).allocate(
        policy_of(entry).init(population), population, Cohort(0, (0,)), np.random.default_rng(0)
    )
    assert list(widths) == [0]
