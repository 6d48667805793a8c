from __future__ import annotations

import sys

import pytest

from widthwise.core.errors import ConfigError
from widthwise.studies.build import run
from widthwise.studies.config import RunConfig


def config() -> RunConfig:
    return RunConfig(
        task={
            "dataset": "digits",
            "model": {"name": "mlp", "hidden": [8]},
            "clients": 4,
            "partition": {"kind": "iid"},
            "limit": 80,
        },
        method={"name": "heterofl"},
        training={"rounds": 3, "cohort": 2, "local_epochs": 1},
        engine={"executor": "serial", "tensorboard": True, "eval_every": 2},
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_run_writes_the_figures_of_rounds_jsonl_as_events(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = run(config(), tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    widths = events.Scalars("mean_width")
    assert [e.step for e in widths] == [0, 1, 2]
    assert [e.value for e in widths] == pytest.approx(result.rounds["mean_width"].tolist())
    # Evaluated after round 1 (every second) and after the last round.
    assert [e.step for e in events.Scalars("accuracy")] == [1, 2]
    assert "tier_accuracy/0.25" in events.Tags()["scalars"]


def test_run_says_what_to_install_and_writes_nothing_when_tensorboard_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match=r"pip install 'widthwise\[tensorboard\]'"):
        run(config(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
