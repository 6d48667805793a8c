from __future__ import annotations

import itertools
import re
from typing import get_args

import pytest

from widthwise.aggregation import UNCOVERED
from widthwise.core.errors import ConfigError
from widthwise.methods import METHODS, PARTS, build_method
from widthwise.methods.method import Uncovered

# What a part needs before it can be built on its own.
NEEDED = {"random-budget": {"budget": 0.45}}


@pytest.mark.parametrize("name", METHODS.names())
def test_build_method_builds_every_registered_method(name: str) -> None:
    method = build_method({"name": name, **NEEDED.get(name, {})})
    assert method.name == name
    assert method.estimator is not None, "every method measures, so that every method can be audited"


@pytest.mark.parametrize("name", METHODS.names())
def test_to_config_builds_an_equal_method(name: str) -> None:
    method = build_method({"name": name, **NEEDED.get(name, {})})
    assert build_method(method.to_config()) == method


@pytest.mark.parametrize("selector", PARTS["selector"].names())
@pytest.mark.parametrize("objective", PARTS["objective"].names())
def test_build_method_builds_every_combination_of_parts_or_says_what_does_not_fit(
    objective: str, selector: str
) -> None:
    for policy, estimator in itertools.product(PARTS["policy"].names(), PARTS["estimator"].names()):
        parts = {"policy": policy, "objective": objective, "estimator": estimator, "selector": selector}
        config = {"name": "fedavg", **parts, **NEEDED.get(policy, {})}
        unfit = {("distillation", "magnitude"): "objective", ("common-core", "random-aligned"): "estimator"}
        found = [slot for pair, slot in unfit.items() if set(pair) <= set(parts.values())]
        if found:
            with pytest.raises(ConfigError, match=rf"^method.selector is '{selector}', but {found[0]} "):
                build_method(config)
            continue
        method = build_method(config)
        built = (method.policy, method.objective, method.estimator, method.selector)
        assert [type(part) for part in built] == [PARTS[slot][name].value for slot, name in parts.items()]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"name": "fjord", "selector": "magnitude"},
            "method.selector is 'magnitude', but objective distillation needs sub-models that are smaller "
            "dense modules. Choose another objective, or a selector such as nested.",
        ),
        (
            {"name": "fjord", "selector": "rolling", "draw": "step"},
            "method.selector is 'rolling', but objective distillation needs slices of leading channels, "
            "which contain every narrower one. Choose",
        ),
        (
            {"name": "hasfl", "estimator": "common-core", "selector": "random-aligned"},
            "method.selector is 'random-aligned', but estimator common-core needs slices of a round that lie "
            "inside each other. Choose another estimator,",
        ),
        (
            {"name": "random-budget", "budget": 9, "currency": "macs", "selector": "magnitude"},
            "method.selector is 'magnitude', but policy random-budget needs sub-models that are smaller",
        ),
    ],
)
def test_build_method_refuses_slices_that_a_part_cannot_work_on(
    config: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_method(config)


def test_common_core_fits_random_channels_that_the_round_shares() -> None:
    config = {"estimator": "common-core", "selector": "random-aligned", "shared_draw": True}
    assert build_method({"name": "hasfl", **config}).to_config()["shared_draw"] is True


def test_no_two_kinds_of_parts_share_an_option() -> None:
    options = [
        {option for entry in registry for option in entry.value.model_fields} for registry in PARTS.values()
    ]
    assert all(not a & b for a, b in itertools.combinations(options, 2))


def test_every_entry_says_what_it_does_and_where_it_comes_from() -> None:
    for registry in (METHODS, *PARTS.values()):
        assert all(entry.summary and entry.source for entry in registry)


def test_build_method_hands_each_option_to_the_part_that_declares_it() -> None:
    method = build_method({"name": "hasfl", "objective": "proximal", "mu": 0.25, "p_min": 0.3, "warmup": 2})
    found = method.to_config()
    assert (found["mu"], found["p_min"], found["warmup"]) == (0.25, 0.3, 2)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "method.name is missing, but it is required. Add one of: fedavg, fedprox"),
        ({"name": "hasfll"}, "method.name is 'hasfll', but no such name is known. Did you mean 'hasfl'?"),
        (
            {"name": "fedavg", "policy": "ful"},
            "method.policy is 'ful', but no such name is known. Did you mean 'full'",
        ),
        ({"name": "fedavg", "objective": "prox"}, "method.objective is 'prox'"),
        ({"name": "fedavg", "estimator": "x"}, "method.estimator is 'x'"),
        ({"name": "fedavg", "selector": "x"}, "method.selector is 'x'"),
        (
            {"name": "fedavg", "weighting": "x"},
            "method.weighting is 'x', but no such name is known. Known: clients",
        ),
        ({"name": "fedavg", "uncovered": "x"}, "method.uncovered is 'x'"),
        (
            {"name": "hasfl", "gama": 1},
            "method.gama is 1, but there is no such key. Did you mean 'method.gamma'?",
        ),
        (
            {"name": "hasfl", "mu": 1},
            "method.mu is 1, but it is an option of objective proximal, and the objective here is plain.",
        ),
        ({"name": "hasfl", "estimator": "none"}, "but policy adaptive chooses widths by the estimates"),
        ({"name": "random-budget"}, "needs exactly one"),
        ({"name": ["hasfl"]}, "method.name is ['hasfl'], but no such name is known"),
    ],
)
def test_build_method_refuses_what_it_does_not_know(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build_method(config)


def test_method_knows_every_rule_for_uncovered_coordinates() -> None:
    assert set(get_args(Uncovered)) == set(UNCOVERED)


def test_build_method_lists_all_problems_of_all_parts() -> None:
    with pytest.raises(ConfigError) as caught:
        build_method({"name": "hasfl", "p_min": 2, "beta": 2, "gama": 1})
    assert [line.split(" is ")[0] for line in str(caught.value).splitlines()] == [
        "method.p_min",
        "method.beta",
        "method.gama",
    ]


def test_build_method_measures_nothing_when_the_estimator_is_none() -> None:
    method = build_method({"name": "heterofl", "estimator": "none"})
    assert method.estimator is None
    assert build_method(method.to_config()) == method
