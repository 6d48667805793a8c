"""Which run folders a user means, and where the page about them goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from widthwise.core.errors import CheckpointError, InputError
from widthwise.engine.runs import is_run


def report_paths(folders: Sequence[Path | str]) -> tuple[list[Path], Path]:
    """Find run folders and the default place of their report.

    Args:
        folders: Run folders, or folders that hold run folders at any depth.

    Returns:
        The run folders, each once, and the path of the page: inside the run where there is only one,
        otherwise in the folder that holds them all.

    Raises:
        InputError: if no folder is given.
        CheckpointError: if a folder holds no run.
    """
    if not folders:
        raise InputError(
            "the list of folders is empty, but a report needs at least one run. Name a run folder."
        )
    runs: dict[Path, None] = {}
    for folder in map(Path, folders):
        inside = [folder] if is_run(folder) else sorted(file.parent for file in folder.rglob("config.yaml"))
        if not inside:
            raise CheckpointError(
                f"folder is {str(folder)!r}, but there is no run in it (no config.yaml). "
                "Name a run folder or a folder of runs."
            )
        runs.update(dict.fromkeys(inside))
    common = Path(os.path.commonpath([run.absolute() for run in runs]))
    return list(runs), Path(os.path.relpath(common)) / "report.html"
