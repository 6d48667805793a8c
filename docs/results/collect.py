"""Copy a study's results, without checkpoints, to where they are kept, and make its report from the copy.

    python docs/results/collect.py runs/paper-small docs/results/small

What is copied is all that the report reads: ``study.json`` and, of every run that has begun, the files below.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq

from widthwise.report import build_study_report
from widthwise.studies import read_manifest

FILES = ("config.yaml", "environment.json", "partition.json", "rounds.jsonl", "result.json")


def collect(source: Path, target: Path) -> Path:
    """Copy the study in ``source`` to ``target`` and return the path of its page there."""
    manifest = read_manifest(source)
    if manifest is None:
        raise SystemExit(f"{source} holds no study.json. Name the folder of a study.")
    for run in manifest.runs:
        if not (source / run.path / "config.yaml").is_file():
            continue
        (target / run.path).mkdir(parents=True, exist_ok=True)
        for name in FILES:
            if (source / run.path / name).is_file():
                shutil.copyfile(source / run.path / name, target / run.path / name)
        # In one row group and packed tightly: it is kept for good.
        rows = pq.read_table(source / run.path / "clients.parquet")
        pq.write_table(rows, target / run.path / "clients.parquet", compression="zstd")
    shutil.copyfile(source / "study.json", target / "study.json")
    return build_study_report(target)


if __name__ == "__main__":
    print(collect(*map(Path, sys.argv[1:3])))
