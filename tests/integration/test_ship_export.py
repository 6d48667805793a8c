"""Runs are trained, and what they would hand out is measured, written, and read again by other means."""

from __future__ import annotations

import copy
import errno
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from click.testing import Result
from safetensors import safe_open
from small_disk import small_disk
from torch import Tensor, nn
from typer.testing import CliRunner

import widthwise as ww
from widthwise.cli import app
from widthwise.core.records import RoundRecord
from widthwise.engine import Federation, Sink
from widthwise.ship import FORMATS
from widthwise.ship.manifest import Manifest
from widthwise.ship.trained import open_run

ROOT = Path(__file__).parents[2]
TASK: dict[str, Any] = {
    "dataset": "digits",
    "model": "cnn-small",
    "norm": "batch",
    "clients": 4,
    "partition": {"kind": "iid"},
    "limit": 160,
    "test_limit": 100,
}
TRAINING = {"rounds": 2, "cohort": 4, "local_epochs": 1, "batch_size": 16, "lr": 0.05}


def call(*arguments: str | Path | float) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def config(
    method: str = "heterofl", capacities: tuple[float, ...] = (0.25, 0.5, 1.0, 1.0), **task: Any
) -> ww.RunConfig:
    return ww.RunConfig(
        task={**TASK, **task},
        capacity={"list": list(capacities)},
        method={"name": method},
        training=TRAINING,
        engine={"executor": "serial", "recalibration_samples": 64},
        seed=3,
    )


def copied(run: Path, folder: Path) -> Path:
    return Path(shutil.copytree(run, folder / "run"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a model with batch norm."""
    return ww.run(config(), tmp_path_factory.mktemp("runs") / "batch-norm").path


@pytest.fixture(scope="module")
def shipped(run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """All formats at a tier, at full width and at a width that nobody trained."""
    out = tmp_path_factory.mktemp("out") / "deep" / "shipped"
    widths = ("--width", ".25", "--width", "0.6", "--width", 1)
    formats = [option for name in FORMATS.names() for option in ("--format", name)]
    return out, call("export", run, *widths, *formats, "--out", out)


class Stop(Sink):
    """Interrupts a run after its first round."""

    def on_start(self, federation: Federation, start_round: int) -> None: ...

    def on_round(self, record: RoundRecord) -> None:
        raise KeyboardInterrupt

    def on_end(self, result: dict[str, Any]) -> None: ...


class TestEvaluate:
    def test_tiers_are_those_of_the_run_to_the_bit(self, run: Path) -> None:
        stored = json.loads((run / "result.json").read_text())
        found = ww.evaluate(run).widths
        assert {f"{row.width:g}": row.accuracy for row in found} == stored["width_accuracy"]
        assert found[-1].loss == stored["final_loss"]
        assert [row.recorded for row in found] == [row.accuracy for row in found]

    def test_command_prints_a_table_or_json_of_any_widths(self, run: Path) -> None:
        table = call("evaluate", run, "--widths", ".6,.25")
        assert table.exit_code == 0, table.output
        assert table.stderr == "parameters: those after 2 of 2 rounds\n"
        assert "batch-norm: 100 test samples" in table.stdout
        printed = json.loads(call("evaluate", run, "--widths", ".6,.25", "--json").stdout)
        assert [row["width"] for row in printed["widths"]] == [0.25, 0.6]
        for row in printed["widths"]:
            assert f"{row['params']:,}" in table.stdout
            assert f"{row['accuracy']:.2%}" in table.stdout
        assert (printed["rounds_done"], printed["rounds"], printed["samples"]) == (2, 2, 100)

    def test_costs_are_those_of_cost(self, run: Path) -> None:
        model = config().task.model_spec()
        expected = ww.cost(model.build(0), model.example_inputs(), [0.6])[0]
        (found,) = ww.evaluate(run, 0.6).widths
        assert (found.params, found.macs, found.kept) == (expected.params, expected.macs, expected.params)
        # Width 0.6 keeps 10 of 16 and 20 of 32 channels: running mean and variance of each, and two counters.
        assert found.bytes == 4 * (found.params + 2 * (10 + 20)) + 2 * 8

    def test_training_samples_of_all_clients(self, run: Path) -> None:
        found = ww.evaluate(run, split="train")
        assert found.samples == 160
        assert {row.recorded for row in found.widths} == {None}

    def test_never_trained_counts_the_coordinates_beyond_the_widest_client(self, tmp_path: Path) -> None:
        run = ww.run(config(capacities=(0.25, 0.25, 0.5, 0.5)), tmp_path / "run")
        half, full = ww.evaluate(run, [0.5, 1.0]).widths
        assert half.never_trained == 0
        # Slices are nested, and all clients train: what width 0.5 holds is what was trained.
        assert full.never_trained == 1 - half.params / full.params

    def test_unfinished_run_gives_what_its_checkpoint_holds(self, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt):
            ww.run(config(), tmp_path / "run", sinks=[Stop()])
        shown = call("evaluate", tmp_path / "run", "--widths", 1)
        assert shown.exit_code == 0, shown.output
        assert shown.stderr == "parameters: those after 1 of 2 rounds; the run is not finished\n"
        accuracy = ww.load_run(tmp_path / "run").rounds.accuracy[0]
        assert ww.evaluate(tmp_path / "run", 1).widths[0].accuracy == accuracy

    def test_run_of_a_device_that_is_not_here_is_evaluated_on_the_cpu(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("widthwise.engine.devices.cuda_devices", lambda: ())
        folder = copied(run, tmp_path)
        content = yaml.safe_load((folder / "config.yaml").read_text())
        del content["name"], content["config_hash"]
        content["engine"]["device"] = "cuda"
        content |= {"name": "heterofl", "config_hash": ww.RunConfig(**content).hash()}
        (folder / "config.yaml").write_text(yaml.safe_dump(content))
        record = folder / "checkpoint" / "round-000002.json"
        stored = {**json.loads(record.read_text()), "config_hash": content["config_hash"]}
        record.write_text(json.dumps(stored))
        assert ww.evaluate(folder).widths == ww.evaluate(run).widths

    def test_warns_where_the_run_has_noted_another_accuracy(self, run: Path, tmp_path: Path) -> None:
        changed = copied(run, tmp_path)
        result = json.loads((changed / "result.json").read_text())
        result["width_accuracy"]["0.25"] = 0.5
        (changed / "result.json").write_text(json.dumps(result))
        assert "but the run noted 50.0000%" in call("evaluate", changed).stderr


class TestExport:
    def test_command_writes_a_file_for_each_width_and_format(self, shipped: tuple[Path, Result]) -> None:
        out, result = shipped
        assert result.exit_code == 0, result.output
        names = {
            f"cnn-small-w{w}{s}" for w in ("0.25", "0.6", "1") for s in (".safetensors", ".pt2", ".onnx")
        }
        assert {path.name for path in out.iterdir()} == names | {"README.md", "export.json", ".lock"}
        assert [*out.parent.iterdir()] == [out]  # nothing of the staging folder is left
        assert f"model card: {out / 'README.md'}" in result.stderr
        manifest = Manifest.model_validate_json((out / "export.json").read_bytes())
        assert {file.file: file.bytes for file in manifest.files} == {
            name: (out / name).stat().st_size for name in names
        }
        assert all(file.largest_difference <= 1e-5 for file in manifest.files)

    def test_figures_are_those_of_evaluate(self, run: Path, shipped: tuple[Path, Result]) -> None:
        manifest = Manifest.model_validate_json((shipped[0] / "export.json").read_bytes())
        expected = {row.width: row for row in ww.evaluate(run, [0.25, 0.6, 1]).widths}
        for file in manifest.files:
            row = expected[file.width]
            assert (file.accuracy, file.loss, file.params) == (row.accuracy, row.loss, row.params)

    def test_snippets_of_the_card_run_and_give_the_scores_of_the_sub_model(
        self, run: Path, shipped: tuple[Path, Result], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = shipped[0]
        monkeypatch.chdir(out)
        blocks = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(), re.S)
        assert len(blocks) == 2 + len(FORMATS.names())
        trained = open_run(run)
        test = trained.fed.task.test
        inputs, _ = test.batch(torch.arange(5))
        for width in ("0.25", "0.6", "1"):
            module = trained.evaluator.calibrated(trained.state, trained.shipped(float(width))).eval()
            expected = module(inputs).detach().numpy()
            scope: dict[str, Any] = {"raw": test.values[:5].numpy()}
            found = []
            for block in blocks:
                exec(re.sub(r"-w[\d.]+\.(?=safetensors|pt2|onnx)", f"-w{width}.", block), scope)
                found += [np.asarray(scope.pop("scores"))] if "scores" in scope else []
            assert len(found) == len(FORMATS.names())
            for scores in found:
                np.testing.assert_allclose(scores, expected, atol=1e-5 * max(1, np.abs(expected).max()))
            assert scope["CLASSES"] == [*"0123456789"]

    def test_card_says_what_it_is_and_where_it_comes_from(
        self, run: Path, shipped: tuple[Path, Result]
    ) -> None:
        text = " ".join((shipped[0] / "README.md").read_text().split())
        stored = ww.load_run(run)
        row = ww.evaluate(run, 0.6).widths[0]
        for part in (
            f"configuration `{stored.config['config_hash']}`",
            "method `heterofl`, seed 3",
            "parameters after 2 of 2 rounds.",
            "1,797 handwritten digits",
            "CC BY 4.0",
            "Changed by the run: limit = 160, test_limit = 100.",
            "estimated for each width from 64 training samples",
            f"| 0.6 | {100 * row.accuracy:.2f} % | {row.loss:.4f} | {row.params:,} | {row.macs:,} | 0.00 % |",
            "[batch, 1, 8, 8]",
            "mean = np.array([77.9]",
            "over 100 test samples",
        ):
            assert part in text, part

    def test_files_carry_their_passport(self, run: Path, shipped: tuple[Path, Result]) -> None:
        out = shipped[0]
        with safe_open(out / "cnn-small-w0.6.safetensors", framework="pt") as file:
            texts = [file.metadata()["widthwise"]]
        model = onnx.load(out / "cnn-small-w0.6.onnx")
        texts += [entry.value for entry in model.metadata_props if entry.key == "widthwise"]
        extra = {"widthwise": ""}
        torch.export.load(out / "cnn-small-w0.6.pt2", extra_files=extra)
        texts.append(extra["widthwise"])
        assert len(set(texts)) == 1
        passport = json.loads(texts[0])
        assert passport["config_hash"] == ww.load_run(run).config["config_hash"]
        assert (passport["width"], passport["model"], passport["dataset"]) == (0.6, "cnn-small", "digits")
        assert passport["kept"] == {"0": [[0, 10]], "4": [[0, 20]], "9": [[0, 39]]}

    def test_onnx_takes_any_batch_and_names_its_ends(self, shipped: tuple[Path, Result]) -> None:
        graph = onnx.load(shipped[0] / "cnn-small-w0.6.onnx").graph
        (given,), (scores,) = graph.input, graph.output
        assert (given.name, scores.name) == ("inputs", "scores")
        assert given.type.tensor_type.shape.dim[0].dim_param
        assert [d.dim_value for d in given.type.tensor_type.shape.dim[1:]] == [1, 8, 8]

    def test_tiers_and_safetensors_are_the_default(self, tmp_path: Path, run: Path) -> None:
        written = ww.export(copied(run, tmp_path))
        assert written.folder == tmp_path / "run" / "export"
        names = [f"cnn-small-w{tier}.safetensors" for tier in ("0.25", "0.5", "1")]
        assert [file.file for file in written.files] == names

    def test_further_files_of_the_run_join_the_card(self, run: Path, tmp_path: Path) -> None:
        first = ww.export(run, 0.5, out=tmp_path / "out")
        ww.export(run, 0.25, "torch-export", tmp_path / "out")
        manifest = Manifest.model_validate_json((tmp_path / "out" / "export.json").read_bytes())
        assert [(file.width, file.format) for file in manifest.files] == [
            (0.25, "torch-export"),
            (0.5, "safetensors"),
        ]
        card = first.card.read_text()
        assert "cnn-small-w0.25.pt2" in card
        assert "cnn-small-w0.5.safetensors" in card

    def test_files_that_are_there_are_left_alone(self, run: Path, tmp_path: Path) -> None:
        ww.export(run, 0.5, out=tmp_path)
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        result = call("export", run, "--width", 0.25, "--width", 0.5, "--out", tmp_path)
        assert result.exit_code == 2
        assert "cnn-small-w0.5.safetensors', but it is there already" in result.stderr
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
        (tmp_path / "cnn-small-w0.5.safetensors").unlink()
        assert [file.width for file in ww.export(run, 0.5, out=tmp_path).files] == [0.5]

    def test_file_that_gives_something_else_is_not_kept(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        kind = FORMATS["torch-export"].value
        save = type(kind).save

        def perturbed(self: Any, sub_model: Any, path: Path) -> None:
            other = copy.deepcopy(sub_model.module)
            with torch.no_grad():
                other.get_parameter("model.11.bias")[3] += 0.01
            save(self, replace(sub_model, module=other), path)

        monkeypatch.setattr(type(kind), "save", perturbed)
        arguments = ("export", run, "--width", 0.5, "--format", "safetensors", "--format", "torch-export")
        result = call(*arguments, "--out", tmp_path / "out")
        assert result.exit_code == 1
        assert re.search(
            r"the torch-export file of width 0\.5 gives .* as score of class 3 for", result.stderr
        )
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.parametrize("kind", ["safetensors", "torch-export", "onnx"])
    def test_full_disk_leaves_nothing_behind(self, run: Path, tmp_path: Path, kind: str) -> None:
        with small_disk(16 * 1024):
            result = call("export", run, "--width", 1, "--format", kind, "--out", tmp_path / "out")
        assert result.exit_code == 2, result.output
        assert re.search(r"error: '.*' cannot be written \(.*File too large", result.stderr)
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
    def test_no_file_is_left_of_which_nothing_tells(
        self, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
    ) -> None:
        ww.export(run, 0.25, out=tmp_path / "out")
        before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

        def fail(path: Path, data: Any) -> None:
            raise error

        monkeypatch.setattr(sys.modules["widthwise.ship.export"], "write_json", fail)
        with pytest.raises(type(error)):
            ww.export(run, [0.5, 1.0], out=tmp_path / "out")
        assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


class TestMethods:
    def test_masked_method_ships_the_full_model_with_zeros(self, tmp_path: Path) -> None:
        run = ww.run(config("fiarse", norm="none"), tmp_path / "run")
        written = ww.export(run, 0.25, ["safetensors", "onnx"])
        (file, _) = written.files
        module = ww.load_export(written.folder / "cnn-small-w0.25.safetensors")
        values = torch.cat([value.flatten() for value in module.parameters()])
        assert len(values) == file.params == ww.evaluate(run, 1).widths[0].params
        assert int(values.count_nonzero()) == file.kept < file.params / 4
        card = " ".join(written.card.read_text().split())
        assert (
            "Width w stands for the full-size model in which all but the weights of largest magnitude" in card
        )
        assert f"| {file.params:,} | {file.kept:,} |" in card

    @pytest.mark.parametrize("method", ["fedrolex", "federated-dropout", "hasfl"])
    def test_moving_slices_ship_what_the_run_has_evaluated(self, method: str, tmp_path: Path) -> None:
        run = ww.run(config(method), tmp_path / "run")
        stored = json.loads((tmp_path / "run" / "result.json").read_text())["width_accuracy"]
        written = ww.export(run)
        assert {f"{file.width:g}": file.accuracy for file in written.files} == stored
        assert "the leading ceil(w * C) channels" in written.card.read_text()


class OneOfSeveral(nn.Module):
    """Returns a mapping, as models with several outputs do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 24), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        states = torch.tanh(self.first(x.flatten(1)))
        return {"loss": states.sum(), "logits": self.last(states)}


class TestOwnModels:
    def test_object_is_handed_over_again(self, tmp_path: Path) -> None:
        module = OneOfSeveral()
        run = ww.run(config(model=module, norm=None), tmp_path / "run")
        alone = call("export", tmp_path / "run")
        assert alone.exit_code == 2
        assert "is a Python object, of which the folder holds the name alone" in alone.stderr
        written = ww.export(run, 0.5, FORMATS.names(), model=module)
        assert len(written.files) == 3
        path = next(written.folder.glob("*.safetensors"))
        again = ww.load_export(path, OneOfSeveral())
        inputs = open_run(run, model=module).fed.task.test.batch(torch.arange(4))[0]
        program = ww.load_export(next(written.folder.glob("*.pt2")))
        torch.testing.assert_close(again(inputs), program(inputs), atol=1e-5, rtol=0)
        with pytest.raises(ww.InputError, match=r"Hand over a module of that kind: load_export\(path, model"):
            ww.load_export(path)
        with pytest.raises(ww.InputError, match="with the weights that it started from"):
            ww.export(run, 0.5, out=tmp_path / "other", model=OneOfSeveral())

    def test_model_of_transformers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(ROOT)
        run = ww.run(config(model="examples.hf_vit:vit", norm=None), tmp_path / "run")
        written = ww.export(run, 0.5, ["safetensors", "onnx"])
        assert [file.file for file in written.files] == ["vit-w0.5.safetensors", "vit-w0.5.onnx"]

    def test_model_that_is_built_by_name_takes_no_object(self, run: Path) -> None:
        with pytest.raises(ww.InputError, match="made with 'cnn-small', which is built again by its name"):
            ww.evaluate(run, model=OneOfSeveral())

    def test_changed_code_is_noticed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        source = (
            "from torch import nn\n"
            "def make(num_classes):\n"
            "    layers = nn.Flatten(), nn.Linear(64, 24), nn.{}(), nn.Linear(24, num_classes)\n"
            "    return nn.Sequential(*layers)\n"
        )
        (tmp_path / "ship_own_model.py").write_text(source.format("ReLU"))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.chdir(tmp_path)
        ww.run(config(model="ship_own_model:make", norm=None), "run")
        (written,) = ww.export("run", 0.5).files
        assert written.file == "make-w0.5.safetensors"
        path = Path("run/export") / written.file
        assert ww.load_export(path)(torch.zeros(3, 1, 8, 8)).shape == (3, 10)
        import ship_own_model

        (tmp_path / "ship_own_model.py").write_text("")
        monkeypatch.setattr(
            ship_own_model,
            "make",
            lambda num_classes: nn.Sequential(
                nn.Flatten(), nn.Linear(64, 24), nn.GELU(), nn.Linear(24, num_classes)
            ),
        )
        with pytest.raises(
            ww.InputError, match=r"'ship_own_model:make' is built differently here: it gives scores"
        ):
            ww.load_export(path)
        monkeypatch.setattr(
            ship_own_model,
            "make",
            lambda num_classes: nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes)),
        )
        with pytest.raises(ww.InputError, match="is built differently here: it has other"):
            ww.load_export(path)


class TestText:
    def test_lstm_on_tokens(self, tmp_path: Path) -> None:
        line = "To be, or not to be: that is the question.\n"
        (tmp_path / "data" / "shakespeare").mkdir(parents=True)
        table = {"play": ["A"], "character": ["X"], "text": [(line * 20)[:700]]}
        pq.write_table(pa.table(table), tmp_path / "data" / "shakespeare" / "plays.parquet")
        text = config(
            dataset="shakespeare",
            model={"name": "lstm", "scale": 0.0625},
            norm=None,
            limit=40,
            test_limit=20,
        )
        run = ww.run(text, tmp_path / "run", data_dir=tmp_path / "data").path
        refused = call("export", run, "--width", 0.5)
        assert refused.exit_code == 2
        formats = [option for name in FORMATS.names() for option in ("--format", name)]
        result = call("export", run, "--width", 0.5, *formats, "--data-dir", tmp_path / "data")
        assert result.exit_code == 0, result.output
        scope: dict[str, Any] = {"raw": [line * 2, line * 3]}
        scores = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(run / "export")
            for block in re.findall(r"```python\n(.*?)```", (run / "export" / "README.md").read_text(), re.S):
                exec(block, scope)
                scores += [np.asarray(scope.pop("scores"))] if "scores" in scope else []
        assert scope["inputs"].dtype == np.int64
        assert [s.shape for s in scores] == [(2, 95)] * 3
        np.testing.assert_allclose(scores[0], scores[1], atol=1e-5)
        np.testing.assert_allclose(scores[0], scores[2], atol=1e-5)


class TestBadInput:
    @pytest.mark.parametrize("width", ["0", "1.5", "-0.5", "nan"])
    @pytest.mark.parametrize("command", [("export", "--width"), ("evaluate", "--widths")])
    def test_width_out_of_range(self, run: Path, command: tuple[str, str], width: str) -> None:
        result = call(command[0], run, f"{command[1]}={width}")
        assert result.exit_code == 2
        assert f"width is {float(width)}, but a width is in (0, 1]" in result.stderr

    def test_width_that_is_no_number(self, run: Path) -> None:
        assert call("export", run, "--width", "half").exit_code == 2
        assert "is no list of numbers" in call("evaluate", run, "--widths", "half").stderr

    def test_unknown_format(self, run: Path) -> None:
        result = call("export", run, "--format", "onx")
        assert result.exit_code == 2
        assert "Did you mean 'onnx'? Known: onnx, safetensors, torch-export." in result.stderr

    def test_nothing_asked_for(self, run: Path) -> None:
        with pytest.raises(ww.InputError, match="list of widths is empty"):
            ww.evaluate(run, [])
        with pytest.raises(ww.InputError, match="list of formats is empty"):
            ww.export(run, 0.5, [])
        for width in ("half", [None]):
            with pytest.raises(ww.InputError, match=r"but a width is a number in \(0, 1\]"):
                ww.export(run, width)  # type: ignore[arg-type]
        with pytest.raises(ww.InputError, match="split is 'val', but no such name is known"):
            ww.evaluate(run, split="val")  # type: ignore[arg-type]

    @pytest.mark.parametrize("command", ["export", "evaluate"])
    def test_folder_that_is_no_run(self, tmp_path: Path, command: str) -> None:
        for folder in (tmp_path, tmp_path / "missing"):
            result = call(command, folder)
            assert result.exit_code == 2
            assert "it holds no config.yaml" in result.stderr

    @pytest.mark.parametrize("command", ["export", "evaluate"])
    def test_run_without_a_checkpoint(self, run: Path, tmp_path: Path, command: str) -> None:
        folder = copied(run, tmp_path)
        for name in ("result.json", "checkpoint/round-000002.json"):
            (folder / name).unlink()
        result = call(command, folder)
        assert result.exit_code == 2
        assert "it holds no checkpoint: nothing that was trained is saved yet" in result.stderr

    def test_damaged_checkpoint(self, run: Path, tmp_path: Path) -> None:
        folder = copied(run, tmp_path)
        path = folder / "checkpoint" / "round-000002.safetensors"
        path.write_bytes(path.read_bytes()[:-4] + b"\0\0\0\0")
        result = call("export", folder)
        assert result.exit_code == 2
        assert "it is damaged (its tensors are not the ones that were saved)" in result.stderr
        assert not (folder / "export").exists()

    def test_data_of_another_partition(self, run: Path, tmp_path: Path) -> None:
        folder = copied(run, tmp_path)
        stored = json.loads((folder / "partition.json").read_text())
        (folder / "partition.json").write_text(json.dumps({**stored, "hash": "other"}))
        result = call("evaluate", folder)
        assert result.exit_code == 2
        assert "its run had other data or another partition" in result.stderr

    def test_folder_that_cannot_be_written(self, run: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        for out in (tmp_path / "file", tmp_path / "file" / "below"):
            result = call("export", run, "--width", 0.25, "--out", out)
            assert result.exit_code == 2
            assert "cannot be written" in result.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["file"]

    def test_folder_of_something_else(self, run: Path, tmp_path: Path) -> None:
        (tmp_path / "README.md").write_text("mine")
        result = call("export", run, "--width", 0.25, "--out", tmp_path)
        assert result.exit_code == 2
        assert "it holds a README.md that is no model card" in result.stderr
        (tmp_path / "export.json").write_text("{}")
        assert "its export.json is damaged" in call("export", run, "--out", tmp_path).stderr
        assert (tmp_path / "README.md").read_text() == "mine"

    def test_folder_of_another_run(self, run: Path, tmp_path: Path) -> None:
        ww.export(run, 0.25, out=tmp_path)
        folder = copied(run, tmp_path)
        environment = json.loads((folder / "environment.json").read_text())
        (folder / "environment.json").write_text(json.dumps({**environment, "commit": "another"}))
        result = call("export", folder, "--width", 0.5, "--out", tmp_path)
        assert result.exit_code == 2
        assert "it holds exports of another run" in result.stderr

    def test_missing_package(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("widthwise.ship.formats.format.find_spec", lambda name: None)
        result = call("export", run, "--format", "onnx")
        assert result.exit_code == 2
        assert "the package 'onnx' is not installed. Run: pip install 'widthwise[export]'" in result.stderr

    def test_files_that_cannot_be_loaded(
        self, run: Path, shipped: tuple[Path, Result], tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        out = shipped[0]
        for name, message in (
            ("cnn-small-w1.onnx", "an ONNX file is no module of torch"),
            ("missing.safetensors", "there is no such file"),
        ):
            with pytest.raises(ww.InputError, match=message):
                ww.load_export(out / name)
        for suffix in ("safetensors", "pt2"):
            damaged = tmp_path / f"damaged.{suffix}"
            damaged.write_bytes((out / f"cnn-small-w1.{suffix}").read_bytes()[:300])
            capfd.readouterr()
            with pytest.raises(ww.InputError, match="it is damaged"):
                ww.load_export(damaged)
            assert capfd.readouterr().err == ""  # torch would log a traceback
        with pytest.raises(ww.InputError, match="it was not exported by widthwise"):
            ww.load_export(run / "final.safetensors")
