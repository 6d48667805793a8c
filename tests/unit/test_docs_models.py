"""The page of models against the registry."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from widthwise.tasks import DATASETS, MODELS, Signature, resolve_model
from widthwise.tasks.custom import facts
from widthwise.training import TrainingConfig

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
FACTS = PAGE.partition("## Your own")[2]
ROWS = [
    (name, data, re.findall(r"`(\w+)` \(([^)]+)\)", options), counts.split(", ")[position])
    for names, data, options, counts in re.findall(
        r"^\| (`[^|]+`) \| ([^|]+) \| (`[^|]+) \| ([^|]+) \|", PAGE.partition("## Your own")[0], re.M
    )
    for position, name in enumerate(re.findall(r"`([\w-]+)`", names))
]


def test_page_lists_every_model_with_its_options_and_defaults() -> None:
    assert sorted(name for name, *_ in ROWS) == sorted(MODELS.names())
    for name, data, options, _ in ROWS:
        model = MODELS[name].value
        assert all(kind in data for kind in model.kinds), name
        defaults = {key: field.default for key, field in model.model_fields.items()}
        assert {key for key, _ in options} == set(defaults), name
        for key, shown in options:
            if shown != "4 dim":
                assert yaml.safe_load(shown) == json.loads(json.dumps(defaults[key])), (name, key)


def test_page_states_the_parameters_of_every_model() -> None:
    for name, data, _, shown in ROWS:
        dataset = "shakespeare" if data == "text" else "digits" if "digits" in shown else "cifar10"
        module = resolve_model(name, DATASETS[dataset].value.signature).build(0)
        count = sum(parameter.numel() for parameter in module.parameters())
        number, unit = shown.split()[:2]
        digits = len(number.partition(".")[2])
        assert f"{count / {'M': 1e6, 'k': 1e3}[unit]:.{digits}f}" == number, (name, count)


def test_page_names_every_fact() -> None:
    shapes = {"image": (3, 32, 32), "text": (80,), "features": (6,)}
    known = {fact for kind, shape in shapes.items() for fact in facts(Signature(kind, shape, 10))}
    listed = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| (?:all data|images|text|features) \|", FACTS, re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(listed))) == known


def test_page_names_every_batch_norm_policy() -> None:
    policies = TrainingConfig.model_json_schema()["properties"]["batch_norm"]["enum"]
    assert re.findall(r"^\* `(\w+)`:", PAGE, re.M) == policies
