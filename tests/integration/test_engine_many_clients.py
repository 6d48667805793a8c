"""A run over more clients than are listed: what is written, read, audited and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from interruption import interrupt_round

from widthwise.audit.runs import clients_of
from widthwise.engine.round import MAX_LISTED_CLIENTS, sample_cohort
from widthwise.heterogeneity import label_divergence
from widthwise.studies.build import build, run
from widthwise.studies.config import RunConfig

CLIENTS, ROUNDS, COHORT = 50_000, 3, 6


def config(**method: object) -> RunConfig:
    return RunConfig(
        task={
            "dataset": "digits",
            "model": {"name": "mlp", "hidden": [8]},
            "clients": CLIENTS,
            "partition": {"kind": "pool", "size": 30},
        },
        method={"name": "hasfl", "warmup": 0, "adapt_every": 1, **method},
        training={"rounds": ROUNDS, "cohort": COHORT, "local_epochs": 1, "batch_size": 16, "momentum": 0.0},
        engine={"executor": "serial", "checkpoint_every": 1},
        seed=3,
    )


def test_folder_describes_the_clients_of_the_cohorts(tmp_path: Path) -> None:
    result = run(config(), tmp_path / "run")
    fed = build(config())
    cohorts = [sample_cohort(fed, t).client_ids for t in range(ROUNDS)]
    ids = sorted({i for cohort in cohorts for i in cohort})
    described = result.partition
    assert CLIENTS > MAX_LISTED_CLIENTS
    assert described["num_clients"] == CLIENTS
    assert described["clients"] == ids
    assert described["capacities"] == fed.task.capacities[ids].tolist()
    # Against the definition over all clients, 100 times as many as samples.
    counts = fed.task.class_counts()
    assert described["class_counts"] == counts[ids].tolist()
    assert described["label_divergence"] == pytest.approx(label_divergence(counts)[ids].tolist(), rel=1e-12)
    assert result.result is not None
    assert len(result.result["widths"]) == len(result.result["estimates"]) == len(ids)
    assert result.clients["client"].tolist() == [i for cohort in cohorts for i in cohort]
    last = result.clients.loc[result.clients["round"] == ROUNDS - 1].set_index("client")
    places = [ids.index(i) for i in last.index]
    assert last["estimate"].tolist() == np.array(result.result["estimates"])[places].tolist()
    audited = clients_of(result)
    assert list(audited.capacity) == described["capacities"]
    assert audited.statistic is not None
    assert list(audited.statistic) == result.result["estimates"]
    assert sum(path.stat().st_size for path in (tmp_path / "run").glob("*.json")) < 20_000


def test_run_is_resumed_to_the_same_bits_with_states_of_the_sampled_clients_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(objective="control-variates")
    whole = run(settings, tmp_path / "whole")
    interrupt_round(monkeypatch, 3)
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "parts")
    monkeypatch.undo()
    parts = run(settings, tmp_path / "parts", resume=True)
    pd.testing.assert_frame_equal(parts.clients, whole.clients, check_exact=True)
    names = [sorted(p.name for p in (tmp_path / n / "clients").iterdir()) for n in ("whole", "parts")]
    assert names[0] == names[1]
    assert len(names[0]) == len(whole.partition["clients"])
    record = json.loads((tmp_path / "parts" / "checkpoint" / f"round-{ROUNDS:06d}.json").read_text())
    assert (
        record["sha256"]
        == json.loads((tmp_path / "whole" / "checkpoint" / f"round-{ROUNDS:06d}.json").read_text())["sha256"]
    )
