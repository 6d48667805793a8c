"""The command ``widthwise trace``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from widthwise.cli import app


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, arguments)])


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "traced_nets.py").write_text(
        "import torch\n"
        "from torch import nn\n"
        "def net():\n"
        "    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 5))\n"
        "def words():\n"
        "    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 4), nn.Linear(4, 2))\n"
        "class Tokens(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.table, self.fc = nn.Embedding(2, 8), nn.Linear(8, 2)\n"
        "    def forward(self, x):\n"
        "        return self.fc(self.table(x))\n"
        "def fails():\n"
        "    raise RuntimeError('no weights')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_trace_shows_groups_and_what_widths_keep() -> None:
    result = call("cnn-small", "--widths", "0.25,1")
    assert result.exit_code == 0, result.output
    assert "Channel groups" in result.output
    data = json.loads(call("cnn-small", "--widths", "0.25,1", "--json").output)
    assert [group["name"] for group in data["groups"]][:1] == ["0"]
    full = {group["name"]: group["size"] for group in data["groups"]}
    assert data["widths"][1]["channels"] == full
    assert data["widths"][0]["channels"] == {name: -(-size // 4) for name, size in full.items()}


def test_trace_takes_a_users_module_with_its_shapes(nets: Path) -> None:
    result = call("traced_nets:net", "--shape", "3,8,8", "--align", "4", "--plot", "g.svg", "--json")
    assert result.exit_code == 0, result.output
    assert [row["channels"] for row in json.loads(result.stdout)["widths"]] == [
        {"0": 4}, {"0": 8}, {"0": 12}, {"0": 16}
    ]  # fmt: skip
    assert (nets / "g.svg").stat().st_size > 1000
    words = call("traced_nets:words", "--shape", "5", "--dtype", "int64", "--freeze", "0", "--json")
    assert [group["name"] for group in json.loads(words.stdout)["groups"]] == ["1"]


def test_trace_gives_tokens_that_differ_and_that_every_vocabulary_has(nets: Path) -> None:
    from widthwise.cli_models import model_and_inputs

    _, inputs, _ = model_and_inputs("traced_nets:Tokens", None, None, ["5", "3"], "int64")
    assert [x.tolist() for x in inputs] == [[[0, 1, 0, 1, 0], [1, 0, 1, 0, 1]], [[0, 1, 0], [1, 0, 1]]]
    assert call("traced_nets:Tokens", "--shape", "5", "--dtype", "int64").exit_code == 0
    _, tokens, _ = model_and_inputs("gpt", "shakespeare", None)
    assert len(tokens.unique()) > 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["traced_nets:net", "--shape", "3,x"], "is no tensor. Write sizes without the batch"),
        (["traced_nets:net", "--shape", "3,8,8", "--dtype", "float33"], "is no tensor. Write sizes"),
        (["traced_nets:nix", "--shape", "3,8,8"], "has no 'nix'. Name a function or class"),
        (["traced_nets:net"], "says nothing of inputs. Let it return (model, example_inputs), or name their"),
        (["traced_nets:fails"], "gives no model (RuntimeError: no weights)"),
        (["traced_nets:net", "--shape", "3,9,9"], "fails on the example inputs at"),
        (["traced_nets:net", "--shape", "3,8,8", "--align", "0=a"], "--align 0=a is neither 8 nor GROUP=8"),
        (["traced_nets:net", "--shape", "3,8,8", "--align", "8", "--align", "0=8"], "given for all groups"),
        (["traced_nets:net", "--shape", "3,8,8", "--floor", "0"], "floor is 0, but it is a number of chann"),
        (["traced_nets:net", "--shape", "3,8,8", "--freeze", "zz"], "freeze is 'zz', but no such name"),
        (["traced_nets:net", "--shape", "3,8,8", "--plot", "g.bmp"], "it can be written as pdf, png, svg"),
        (["traced_nets:net", "--shape", "3,8,8", "--plot", "no/g.svg"], "its folder does not exist"),
        (["traced_nets:net", "--shape", "3,8,8", "--align", "=8"], "align is '', but no such name is known"),
        (
            ["resnet20", "--shape", "3,8,8"],
            "takes the shapes of a data set, which --task names. Leave",
        ),
        (
            ["mlp", "--shape", "3,8,8", "--task", "digits"],
            "takes the shapes of a data set, which --task",
        ),
        (
            ["traced_nets:net", "--shape", "3,8,8", "--task", "cifar10"],
            "which --task names. Leave --shape",
        ),
        (
            ["traced_nets:net", "--shape", "3,8,8", "--norm", "group"],
            "is called without options. Leave",
        ),
        (
            ["traced_nets:net", "--norm", "group"],
            "is called without options. Leave --norm out, or name",
        ),
        (
            ["builtins:dict", "--task", "digits"],
            "is 'builtins:dict', but Python does not know its param",
        ),
        (["resnet20", "--widths", "0,5"], "width is 0.0, but a width is in (0, 1]"),
    ],
)
def test_trace_exits_with_2_and_one_message(nets: Path, arguments: list[str], message: str) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr
    assert not list(nets.glob("*.bmp"))
