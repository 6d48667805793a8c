from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from widthwise.core.errors import CheckpointError
from widthwise.engine.runs import CLIENT_COLUMNS, ROUND_COLUMNS, is_run, load_run


def test_load_run_reads_every_file_of_a_finished_run(make_run):
    path = make_run("hasfl", seed=43, clients=8, rounds=6, eval_every=4)
    run = load_run(path)
    assert (run.name, run.method, run.seed, run.complete) == ("hasfl", "hasfl", 43, True)
    assert set(run.rounds.columns) == set(ROUND_COLUMNS)
    assert set(run.clients.columns) == set(CLIENT_COLUMNS)
    assert len(run.clients) == 6 * 8
    assert run.rounds["accuracy"].isna().tolist() == [True, True, True, False, True, False]
    assert run.rounds["accuracy"].dtype == np.float64
    assert run.result["final_accuracy"] == run.rounds["accuracy"].iloc[-1]
    assert run.partition["num_clients"] == 8
    assert run.environment["commit"] == "0123456789ab"


def test_load_run_keeps_a_column_of_nulls_numeric(make_run):
    run = load_run(make_run(capacity_link=None))
    assert run.rounds["estimate_mean"].dtype == np.float64
    assert run.rounds["estimate_mean"].isna().all()


def test_load_run_takes_an_unfinished_run_as_far_as_it_got(make_run):
    path = make_run(rounds=8, finished=False)
    with (path / "rounds.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"round": 4, "accu')
    (path / "clients.parquet").unlink()
    run = load_run(path)
    assert not run.complete
    assert run.result is None
    assert run.name == "hasfl"
    assert run.rounds["round"].tolist() == [0, 1, 2, 3]
    assert run.clients.empty
    assert set(run.clients.columns) == set(CLIENT_COLUMNS)


def test_load_run_takes_a_run_that_has_only_its_configuration(make_run):
    path = make_run(finished=False)
    for name in ("rounds.jsonl", "clients.parquet", "partition.json", "environment.json"):
        (path / name).unlink()
    run = load_run(path)
    assert run.rounds.empty
    assert (run.partition, run.environment, run.complete) == ({}, {}, False)


def test_load_run_refuses_a_folder_that_is_not_a_run(tmp_path: Path):
    assert not is_run(tmp_path)
    with pytest.raises(CheckpointError, match=r"holds no config\.yaml\. Give the folder of a run\."):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("config.yaml", "method: [unclosed", "while parsing a flow sequence"),
        ("config.yaml", "just words", "it holds str where a mapping belongs"),
        ("config.yaml", "method: {name: hasfl}", "it lacks seed"),
        ("config.yaml", "method: hasfl\nseed: 1", "the method has no name"),
        ("environment.json", "[]", "it holds list where a mapping belongs"),
        ("partition.json", "{}", "it lacks hash, num_clients"),
        ("rounds.jsonl", '{"round": 0}', "its last line is cut off"),
        ("rounds.jsonl", '{"round": 0}\n', "it has 1 of 12 rounds"),
        ("rounds.jsonl", '{"round": 0}\n' * 12, "it lacks accuracy, loss"),
        ("rounds.jsonl", "nonsense\n", "Expecting value"),
        ("clients.parquet", "not parquet", "Parquet"),
        ("result.json", '{"name": "x"', "Expecting"),
        ("result.json", '{"name": "x"}', "it lacks method, seed"),
    ],
)
def test_load_run_names_the_damaged_file(make_run, file, content, why):
    path = make_run()
    (path / file).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=rf"^{file} in run folder .* is damaged.*{why}"):
        load_run(path)


@pytest.mark.parametrize("file", ["environment.json", "partition.json", "rounds.jsonl", "clients.parquet"])
def test_load_run_names_the_missing_file_of_a_finished_run(make_run, file):
    path = make_run()
    (path / file).unlink()
    with pytest.raises(CheckpointError, match=rf"^{file} in .*the file is missing"):
        load_run(path)


def test_load_run_reads_what_the_contract_names(make_run):
    path = make_run()
    result = json.loads((path / "result.json").read_text(encoding="utf-8"))
    assert load_run(path).result == result
