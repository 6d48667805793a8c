"""Copy a study's results, without checkpoints, to where they are kept, and make its report from the copy.

    python docs/results/collect.py runs/paper-small docs/results/small

What is copied is all that the report reads: ``study.json`` and, of every run that has begun, the files below
as far as it has come. What an earlier copy holds of the study's runs is replaced.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq

from widthwise.core.errors import InputError, WidthwiseError
from widthwise.report import build_study_report
from widthwise.studies import read_manifest

FILES = ("config.yaml", "environment.json", "partition.json", "rounds.jsonl", "result.json")
CLIENTS = "clients.parquet"


def collect(source: Path, target: Path) -> Path:
    """Copy the study in ``source`` to ``target`` and return the path of its page there.

    Raises:
        InputError: if ``source`` holds no study, or is ``target`` itself.
    """
    manifest = read_manifest(source)
    if manifest is None:
        raise InputError(
            f"source is {str(source)!r}, but it holds no study.json. Name the folder of a study."
        )
    if source.resolve() == target.resolve():
        raise InputError(f"target is {str(target)!r}, but that is the source. Name another folder.")
    for run in manifest.runs:
        _copy_run(source / run.path, target / run.path)
    shutil.copyfile(source / "study.json", target / "study.json")
    return build_study_report(target)


def _copy_run(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (target / name).unlink(missing_ok=True)
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)
    (target / CLIENTS).unlink(missing_ok=True)
    if (source / CLIENTS).is_file():  # there from the first checkpoint on
        # In one row group and packed tightly: it is kept for good.
        pq.write_table(pq.read_table(source / CLIENTS), target / CLIENTS, compression="zstd")


def main() -> None:
    """Copy the study that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", type=Path, help="folder that the study was run into")
    parser.add_argument("target", type=Path, help="folder where its results are kept")
    try:
        print(collect(**vars(parser.parse_args())))
    except WidthwiseError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
