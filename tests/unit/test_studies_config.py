from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from widthwise.core.errors import ConfigError
from widthwise.studies import RunConfig, load_config, merge, schema
from widthwise.studies.config import parse_overrides

EXAMPLES = Path(__file__).parents[2] / "examples"
BASE: dict[str, Any] = {
    "task": {
        "dataset": "digits",
        "model": "cnn-small",
        "clients": 20,
        "partition": {"kind": "dirichlet", "alpha": 0.3},
    },
    "method": {"name": "hasfl"},
}


def config(**changes: Any) -> RunConfig:
    return RunConfig(**merge(BASE, changes))


BAD = [
    (
        {"precision": "bf16"},
        "precision is 'bf16', but that key belongs into a block. Write engine.precision.",
    ),
    ({"training.lrr": 1}, "training.lrr is 1, but there is no such key. Did you mean 'training.lr'?"),
    ({"trainin": {"lr": 1}}, "trainin is {'lr': 1}, but there is no such key. Did you mean 'training'?"),
    ({"training.lr": -1}, "training.lr is -1, but it should be greater than 0. Change it."),
    ({"training.rounds": 10**30}, "but it should be less than or equal to 1000000000. Change it."),
    ({"training.momentum": 1}, "training.momentum is 1, but it should be less than 1"),
    ({"training.rounds": "many"}, "training.rounds is 'many', but it should be a valid integer"),
    (
        {"task.partition.alhpa": 1},
        "task.partition.alhpa is 1, but there is no such key. Did you mean 'task.partition",
    ),
    ({"task.partition.alpha": -1}, "task.partition.alpha is -1, but it should be greater than 0"),
    ({"task.dataset": "digitz"}, "dataset is 'digitz', but no such name is known. Did you mean 'digits'?"),
    ({"task.model": "cnnn"}, "model is 'cnnn', but no such name is known. Did you mean 'cnn'?"),
    ({"task.model": ["x"]}, "task.model is ['x'], but it should be a valid"),
    ({"task.clients": 0}, "task.clients is 0, but it should be greater than or equal to 1"),
    ({"capacity.tiers": [0.5, 1.5]}, "capacity.tiers.1 is 1.5, but it should be less than or equal to 1"),
    ({"capacity.tiers": [0.5]}, "shares has 4 entries, but tiers has 1"),
    ({"capacity.list": [0.5, 0]}, "capacity.list.1 is 0, but it should be greater than 0"),
    ({"method.name": "hasflx"}, "method.name is 'hasflx', but no such name is known. Did you mean 'hasfl'?"),
    ({"method.gama": 1}, "method.gama is 1, but there is no such key. Did you mean 'method.gamma'?"),
    ({"method.p_min": 7}, "method.p_min is 7, but it should be less than or equal to 1"),
    ({"training.cohort": 30}, "training.cohort is 30, but there are only 20 clients"),
    (
        {"engine.device": "gpu"},
        "device is 'gpu', but clients train on cpu, cuda or cuda:N. Write auto",
    ),
    ({"engine.executor": "rays"}, "engine.executor is 'rays', but it should be 'process', 'serial' or 'ray'"),
    ({"engine.address": "ray://x:1"}, "address is 'ray://x:1', but a Ray cluster is found at"),
    (
        {"compression.kind": "int9"},
        "compression.kind is 'int9', but no such name is known. Did you mean 'int8'? Known: bf16, int8,",
    ),
    (
        {"compression": {"kind": "topk", "shar": 1}},
        "compression.shar is 1, but there is no such key. Did you mean 'compression.share'?",
    ),
    (
        {"compression": {"kind": "topk", "share": 0}},
        "compression.share is 0, but it should be greater than 0",
    ),
    ({"compression": {"share": 0.1}}, "compression.kind is missing, but it is required. Add one of: bf16"),
    ({"compression": 3}, "compression.kind is '3', but no such name is known."),
    ({"seed": -1}, "seed is -1, but it should be greater than or equal to 0"),
    ({"method.name": "scaffold"}, "training.momentum is 0.9, but"),
]


@pytest.mark.parametrize(("changes", "message"), BAD, ids=[next(iter(c)) for c, _ in BAD])
def test_run_config_names_the_key_and_the_remedy_when_a_value_is_bad(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(**changes)


def test_run_config_lists_every_problem_on_its_own_line() -> None:
    with pytest.raises(ConfigError) as caught:
        config(**{"training.lr": -1, "training.rounds": 0, "seed": "x"})
    lines = str(caught.value).splitlines()
    assert [line.split(" is ")[0] for line in lines] == ["training.rounds", "training.lr", "seed"]


def test_run_config_says_nothing_of_a_default_that_another_mistake_keeps_from_being_made() -> None:
    with pytest.raises(ConfigError) as caught:
        config(**{"engine.executor": "rays"})
    assert str(caught.value).splitlines() == [
        "engine.executor is 'rays', but it should be 'process', 'serial' or 'ray'. Change it."
    ]


def test_run_config_asks_for_what_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"^task is missing, but it is required\. Add it\.$"):
        RunConfig(method={"name": "hasfl"})


def test_run_config_writes_every_default_of_the_method_out() -> None:
    method = config().to_dict()["method"]
    assert method["p_min"] == 0.4
    assert method["policy"] == "adaptive"
    assert method["beta"] == 0.9


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"capacity": {"list": [0.5] * 20}},
        {"task.partition": {"kind": "iid"}},
        {"compression": "int8"},
        {"compression": {"kind": "topk", "share": 0.5}},
    ],
)
def test_to_dict_gives_the_same_configuration_and_hash_when_read_again(changes: dict[str, Any]) -> None:
    first = config(**changes)
    again = RunConfig(**json.loads(json.dumps(first.to_dict())))
    assert again.to_dict() == first.to_dict()
    assert again.hash() == first.hash()


def test_hash_ignores_key_order_written_defaults_and_keys_that_change_no_result() -> None:
    reference = config().hash()
    assert RunConfig(**dict(reversed(BASE.items()))).hash() == reference
    assert config(**{"training.momentum": 0.9, "method.gamma": 0.25}).hash() == reference
    free = {
        "engine.workers": 7,
        "engine.executor": "serial",
        "engine.checkpoint_every": 3,
        "task.data_dir": "x",
    }
    assert config(**free).hash() == reference


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 43},
        {"training.lr": 0.5},
        {"method.gamma": 0.5},
        {"task.clients": 21},
        {"engine.precision": "bf16"},
        {"engine.eval_every": 2},
        {"compression.kind": "bf16"},
        {
            "method": {"name": "heterofl", "weighting": "clients"},
            "privacy": {"clip": 1, "noise_multiplier": 1},
        },
    ],
)
def test_hash_differs_when_the_result_may(changes: dict[str, Any]) -> None:
    assert config(**changes).hash() != config().hash()


def test_merge_keeps_options_of_the_same_choice_and_drops_those_of_another() -> None:
    base = {"method": {"name": "hasfl", "gamma": 0.5}}
    assert merge(base, {"method.beta": 0.1}) == {"method": {"name": "hasfl", "gamma": 0.5, "beta": 0.1}}
    assert merge(base, {"method": {"name": "hasfl"}}) == base
    assert merge(base, {"method.name": "fjord"}) == {"method": {"name": "fjord"}}


def test_merge_keeps_an_option_that_is_set_before_the_new_choice() -> None:
    changes = {"method.mu": 0.1, "method.name": "fedprox"}
    assert merge({"method": {"name": "hasfl"}}, changes) == {"method": {"mu": 0.1, "name": "fedprox"}}


def test_merge_leaves_its_arguments_alone() -> None:
    base, changes = {"a": {"b": 1}}, {"a.c": 2}
    merge(base, changes)
    assert (base, changes) == ({"a": {"b": 1}}, {"a.c": 2})


def test_parse_overrides_reads_values_as_yaml() -> None:
    found = parse_overrides(["a=1", "b.c=[1, 0.5]", "d=true", "e=text", "f={x: 1}", "g=a=b"])
    assert found == {"a": 1, "b.c": [1, 0.5], "d": True, "e": "text", "f": {"x": 1}, "g": "a=b"}


@pytest.mark.parametrize("text", ["training.lr", "=3"])
def test_parse_overrides_refuses_text_without_key_and_value(text: str) -> None:
    with pytest.raises(ConfigError, match=r"has no key=value form\. Write it like training\.lr=0\.1"):
        parse_overrides([text])


def test_load_config_lets_a_key_stand_over_a_merged_one(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(BASE) + "training: {<<: {rounds: 2, cohort: 3}, rounds: 5}\n")
    assert (load_config(file).training.rounds, load_config(file).training.cohort) == (5, 3)


def test_parse_overrides_refuses_a_value_that_is_not_yaml() -> None:
    with pytest.raises(ConfigError, match=r"its value is not valid YAML"):
        parse_overrides(["a=[1"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [1", "is not valid YAML"),
        (
            "seed: 1\ntask: {clients: 4, clients: 6}",
            r"not valid YAML \(the key 'clients' occurs twice in .*line 2",
        ),
        ("1: 2", "its key 1 is no text"),
        ("- 1", "holds no keys"),
        ("", "holds no keys"),
        (b"\xff\xfe\x00", "is not a text file"),
        (None, "No such file or directory"),
    ],
)
def test_load_config_refuses_a_file_that_is_no_configuration(
    tmp_path: Path, content: str | bytes | None, message: str
) -> None:
    file = tmp_path / "run.yaml"
    if content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=message):
        load_config(file)


def test_load_config_accepts_what_the_engine_noted_in_a_run_folder(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    stored = {"name": "a label", "config_hash": "0", **config().to_dict()}
    file.write_text(yaml.safe_dump(stored), encoding="utf-8")
    assert load_config(file) == config()


def test_load_config_lets_overrides_win(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(BASE), encoding="utf-8")
    loaded = load_config(file, ["training.lr=1e-3", "method.guarantee=false", "seed=7"])
    assert (loaded.training.lr, loaded.method["guarantee"], loaded.seed) == (0.001, False, 7)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_valid(path: Path) -> None:
    assert load_config(path).seed == 42


def test_schema_refuses_unknown_keys_and_describes_every_section() -> None:
    described = schema()
    assert described["additionalProperties"] is False
    assert set(described["properties"]) == {
        "task",
        "capacity",
        "method",
        "training",
        "engine",
        "seed",
        "control",
        "compression",
        "privacy",
        "deploy",
    }
