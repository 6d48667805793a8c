"""Models of the user's own: factories by name, and objects."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from widthwise.core.errors import ConfigError
from widthwise.tasks import Signature, TaskConfig, resolve_model
from widthwise.tasks.custom import identity_of, target_of

IMAGES = Signature("image", (1, 8, 8), 10)
SOURCE = """
import torch
from torch import nn

not_a_factory = 5
a_module = nn.Linear(2, 2)


def make(num_classes, in_channels, width=4):
    return nn.Sequential(nn.Conv2d(in_channels, width, 3), nn.Flatten(), nn.Linear(36 * width, num_classes))


def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def anything(**options):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, options["units"]))


def raises(depth=3):
    raise ValueError(f"depth {depth} is odd")


def number():
    return 7


def needs(secret):
    return nn.Linear(secret, secret)


def wrong_shape():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))


def wrong_input():
    return nn.Linear(5, 10)


class Both(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, num_classes))

    def forward(self, x):
        return {"logits": self.net(x), "loss": None}


def no_scores():
    class Silent(nn.Module):
        def forward(self, x):
            return {"loss": x.sum()}

    return Silent()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current directory with the module ``own_models`` and the package ``own``, forgotten afterwards."""
    (tmp_path / "own_models.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("import a_library_that_nobody_has\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "nets.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_models", "broken", "own", "own.nets"):
        sys.modules.pop(name, None)


def build(target: str, **options: Any) -> nn.Module:
    return resolve_model(target, IMAGES, options).build(1)


@pytest.mark.parametrize("target", ["own_models:make", "own.nets:make"])
def test_factory_gets_facts_that_it_names_and_options(folder: Path, target: str) -> None:
    assert build(target)[0].weight.shape == (4, 1, 3, 3)
    assert build(target, width=6)[2].weight.shape == (10, 216)


def test_factory_option_wins_over_the_fact_of_its_name(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"scores of shape \[2, 7\], and 10 classes need \[2, 10\]"):
        build("own_models:make", num_classes=7)


def test_factory_with_free_keywords_gets_options_and_no_facts(folder: Path) -> None:
    assert build("own_models:anything", units=10)[1].weight.shape == (10, 64)


def test_factory_draws_from_the_seed_alone_and_its_mode_is_kept(folder: Path) -> None:
    spec = pickle.loads(pickle.dumps(resolve_model("own_models:Both", IMAGES)))
    one, again, other = spec.build(1), spec.build(1), spec.build(2)
    assert one.training
    assert torch.equal(one.net[2].weight, again.net[2].weight)
    assert not torch.equal(one.net[2].weight, other.net[2].weight)


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("own_models:", {}, r"written module:factory\. Write it like my_package\.my_module:make_model"),
        ("own models:make", {}, r"written module:factory"),
        ("missing_module:make", {}, r"there is no module 'missing_module'\. Run from the folder"),
        ("own.missing:make", {}, r"there is no module 'own\.missing'"),
        ("broken:make", {}, r"importing 'broken' raised ModuleNotFoundError: No module named 'a_library"),
        ("own_models:mak", {}, r"own_models\.py has no 'mak'\. Did you mean 'make'\?"),
        ("own_models:zzzzz", {}, r"own_models\.py has no 'zzzzz'\. Name a function or class"),
        ("own_models:not_a_factory", {}, r"that is of type int, and a model is made by a function"),
        (
            "own_models:a_module",
            {},
            r"that is of type Linear, .*Wrap it in a function that returns the model",
        ),
        ("own_models:make", {"wide": 3}, r"option of .*'own_models:make' is 'wide', .*Did you mean 'width'"),
        ("own_models:fixed", {"width": 3}, r"is 'width', but it takes no options\. Remove it"),
        (
            "own_models:needs",
            {},
            r"its parameter 'secret' has no default and is no fact of the data \(num_cl",
        ),
        ("builtins:dict", {}, r"Python does not know its parameters .*Wrap it in a function"),
        ("own_models:raises", {"depth": 5}, r"with depth=5, but it raised ValueError: depth 5 is odd"),
        ("own_models:raises", {}, r"with no arguments, but it raised ValueError"),
        (
            "own_models:number",
            {},
            r"it returned something of type int, and a model is a torch\.nn\.Module\. Return one",
        ),
        ("own_models:wrong_shape", {}, r"scores of shape \[2, 3\], and 10 classes need \[2, 10\]\. Let the"),
        ("own_models:wrong_input", {}, r"forward pass on image inputs \[2, 1, 8, 8\] raised RuntimeError"),
        ("own_models:no_scores", {}, r"model 'own_models:no_scores': the model's output is of type dict"),
    ],
)
def test_factory_is_refused(folder: Path, target: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(target, **options)


def task(model: Any, **changes: Any) -> TaskConfig:
    given = {"dataset": "digits", "model": model, "partition": {"kind": "iid"}, **changes}
    return TaskConfig.model_validate(given)


def small() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def test_configuration_with_a_factory_imports_nothing_until_it_is_built() -> None:
    config = task({"name": "missing_module:make", "width": 3}, norm="batch")
    with pytest.raises(ConfigError, match="there is no module 'missing_module'"):
        config.model_spec().build(1)


@pytest.mark.parametrize("model", [small, {"name": small}])
def test_factory_as_an_object_is_its_name(model: Any) -> None:
    stored = task(model).model_dump(mode="json")["model"]
    assert (stored if isinstance(stored, str) else stored["name"]) == f"{__name__}:small"


def test_factory_without_a_name_is_refused() -> None:
    with pytest.raises(ValidationError, match="a factory must be importable by its name"):
        task(lambda: small())

    class Local(nn.Module):
        pass

    with pytest.raises(ConfigError, match="Define it at the top of a module"):
        target_of(Local)


def test_module_as_an_object_starts_every_build_with_its_weights() -> None:
    module = small()
    weights = module[1].weight.detach().clone()
    config = task(module)
    with torch.no_grad():
        module[1].weight.zero_()  # what becomes of it later has no effect
    first, second = (config.model_spec().build(seed) for seed in (1, 2))
    assert torch.equal(first[1].weight, weights)
    assert torch.equal(second[1].weight, weights)
    assert first[1].weight is not second[1].weight
    again = pickle.loads(pickle.dumps(config)).model_spec().build(3)
    assert torch.equal(again[1].weight, weights)


def test_module_as_an_object_is_identified_by_its_tensors() -> None:
    torch.manual_seed(0)
    one, other = small(), small()
    twin = small()
    twin.load_state_dict(one.state_dict())
    assert identity_of(one) == identity_of(twin) != identity_of(other)
    assert identity_of(one).startswith("object:Sequential-")
    stored = task(one).model_dump(mode="json")
    assert stored["model"] == {"name": identity_of(one)}
    with pytest.raises(ConfigError, match=r"a Python object, .*Hand the same module over again: RunConfig"):
        TaskConfig.model_validate(stored).model_spec().build(1)


def test_module_as_an_object_takes_no_options_and_must_fit() -> None:
    with pytest.raises(ValidationError, match=r"a module that is made already takes no options\. Remove"):
        task(small(), norm="batch")
    with pytest.raises(ConfigError, match=r"model is 'object:Linear-\w+', but its forward pass"):
        task(nn.Linear(3, 10)).model_spec().build(1)


def test_text_and_feature_models_are_told_their_facts(folder: Path) -> None:
    (folder / "own_models.py").write_text(
        "from torch import nn\n"
        "def text(vocab_size, sequence_length):\n"
        "    layers = nn.Embedding(vocab_size, 4), nn.Flatten(), nn.Linear(4 * sequence_length, vocab_size)\n"
        "    return nn.Sequential(*layers)\n"
        "def table(in_features, num_classes):\n"
        "    return nn.Linear(in_features, num_classes)\n"
    )
    text = resolve_model("own_models:text", Signature("text", (9,), 11)).build(1)
    assert text[2].weight.shape == (11, 36)
    assert resolve_model("own_models:table", Signature("features", (6,), 4)).build(1).weight.shape == (4, 6)
