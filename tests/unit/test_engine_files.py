"""Files are there in full, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_disk import small_disk

from widthwise.core.errors import InputError
from widthwise.engine.files import write_atomic


@pytest.mark.parametrize(
    "write",
    [
        lambda path: path.write_bytes(bytes(40_000)),
        lambda path: safetensors.torch.save_file({"a": torch.zeros(10_000)}, path),
    ],
    ids=["bytes", "safetensors"],
)
def test_write_atomic_says_so_and_keeps_what_was_there_when_the_disk_is_full(tmp_path: Path, write) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with (
        small_disk(16 * 1024),
        pytest.raises(InputError, match=r"cannot be written \(.*File too large.*\), but .* Free some space"),
    ):
        write_atomic(path, write)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "before"
