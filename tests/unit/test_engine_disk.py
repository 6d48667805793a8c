"""Client states and spooled reports: what was written is read back, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from widthwise.core.errors import CheckpointError, InputError
from widthwise.core.records import ClientReport, SliceSpec
from widthwise.engine import disk
from widthwise.engine.disk import Disk

STATE = {
    "control": {"w": torch.arange(6.0).view(2, 3), "b": torch.tensor(1.5)},
    "other": {"w": torch.ones(1)},
}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "clients").iterdir())


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    one = Disk(tmp_path)
    one.write(7, 3, STATE)
    one.write(7, 4, {"control": {"w": torch.zeros(2, 3)}})
    found = one.read(7, 3)
    assert found.keys() == STATE.keys()
    for name, params in STATE.items():
        assert found[name].keys() == params.keys()
        assert all(torch.equal(found[name][n], value) for n, value in params.items())


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:-5], ""),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its tensors are not the ones that were saved"),
        (lambda data: b"", ""),
    ],
)
def test_damaged_state_is_refused(tmp_path: Path, damage, why: str) -> None:
    one = Disk(tmp_path)
    one.write(7, 3, STATE)
    path = tmp_path / "clients" / "7-3.safetensors"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=rf"client state .*7-3\.safetensors' cannot be read \(.*{why}"):
        one.read(7, 3)


def test_missing_state_is_refused(tmp_path: Path) -> None:
    one = Disk(tmp_path)
    one.check({})
    with pytest.raises(
        CheckpointError, match=r"client state .*2-5\.safetensors' is missing, but the checkpoint"
    ):
        one.check({2: 5})
    with pytest.raises(CheckpointError, match="cannot be read"):
        one.read(2, 5)


def test_only_named_states_are_kept(tmp_path: Path) -> None:
    one = Disk(tmp_path)
    one.keep({})
    for client, round_index in [(1, 0), (1, 2), (12, 0), (3, 1)]:
        one.write(client, round_index, STATE)
    one.check({1: 2, 12: 0})
    one.keep({1: 2, 12: 0})
    assert names(tmp_path) == ["1-2.safetensors", "12-0.safetensors"]


def test_state_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "clients").write_text("x")
    with pytest.raises(InputError, match=r"cannot be written .* Free some space"):
        Disk(tmp_path).write(1, 0, STATE)


@pytest.mark.parametrize("in_memory", [1, 10**9])
def test_spool_gives_reports_back_in_order_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(disk, "IN_MEMORY", in_memory)
    reports = [
        ClientReport(
            i, 0, SliceSpec(0.5, {"g": range(2)}), {"w": torch.full((2,), 1.0 * i)}, 1, 1, {"loss": 0.0}
        )
        for i in (5, 2, 9)
    ]
    with Disk(tmp_path).spool() as spool:
        assert list(spool) == []
        for report in reports:
            spool.add(report)
        for _ in range(2):
            found = list(spool)
            assert [r.client_id for r in found] == [5, 2, 9]
            assert all(torch.equal(a.delta["w"], b.delta["w"]) for a, b in zip(found, reports, strict=True))
    assert list(tmp_path.iterdir()) == []
