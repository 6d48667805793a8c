"""One transfer for many tensors, random numbers that leave no trace, instructions for bfloat16."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from widthwise.core.blocks import ALIGNMENT
from widthwise.core.device import (
    CPU,
    carried,
    download,
    has_bfloat16,
    seeded,
    upload,
    working_on,
)

ODD = [
    torch.arange(6.0).view(2, 3).t(),  # not contiguous
    torch.tensor(7, dtype=torch.int64),
    torch.tensor([True, False, True]),
    torch.empty(0, 4),
    torch.full((5,), 1.5, dtype=torch.bfloat16),
    torch.arange(24, dtype=torch.float64).view(2, 3, 4)[:, 1:],
    torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last),
]


def test_carried_tensors_keep_values_types_and_shapes() -> None:
    for before, after in zip(ODD, carried(ODD, CPU), strict=True):
        assert after.dtype == before.dtype
        assert torch.equal(after, before)
        assert after.is_contiguous()


def test_carried_tensors_lie_in_one_buffer_at_aligned_places_without_overlap() -> None:
    found = [value for value in carried(ODD, CPU) if value.numel()]
    (start,) = {value.untyped_storage().data_ptr() for value in found}
    ends = [start]
    for value in found:
        assert (value.data_ptr() - start) % ALIGNMENT == 0
        assert value.data_ptr() >= ends[-1]
        ends.append(value.data_ptr() + value.nbytes)


def test_carried_tensors_are_copies() -> None:
    source = torch.ones(3)
    (copy,) = carried([source], CPU)
    copy.add_(1)
    assert source.tolist() == [1.0, 1.0, 1.0]


def test_carried_of_nothing_is_nothing() -> None:
    assert carried([], CPU) == []


def test_nested_values_keep_their_nesting_when_tensors_are_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []

    def to_other(tensors: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
        sent.append(len(tensors))
        return [torch.empty(value.shape, device=device) for value in tensors]

    monkeypatch.setattr("widthwise.core.device.carried", to_other)
    value = {"a": torch.ones(2), "b": [None, {"c": torch.zeros(3)}], "d": ("text", torch.ones(()))}
    moved = upload(value, torch.device("meta"))
    assert sent == [3]
    assert moved["b"][0] is None
    assert moved["d"][0] == "text"
    assert [x.device.type for x in (moved["a"], moved["b"][1]["c"], moved["d"][1])] == ["meta"] * 3
    assert moved["b"][1]["c"].shape == (3,)


def test_on_the_cpu_nothing_is_moved() -> None:
    value = {"w": torch.ones(2)}
    assert upload(value, CPU) is value
    assert download(value, CPU) is value


def test_seeded_draws_the_same_numbers_and_leaves_the_global_state_as_it_was() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with seeded(5):
        first = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with seeded(5):
        assert torch.equal(torch.rand(3), first)
    with seeded(None):  # goes on, and goes back
        ahead = torch.rand(2)
    assert torch.equal(torch.rand(2), ahead)


def test_working_on_the_cpu_changes_no_setting() -> None:
    before = torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32
    with working_on(CPU):
        assert (torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32) == before


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"avx512_bf16": False, "avx_ne_convert": True}, True),  # laptops without AVX512
        ({"neon": True, "bf16": False, "sve_bf16": False}, False),
        ({"neon": True, "bf16": True}, True),
        ({"architecture": "ppc64le", "num_sockets": 1}, None),
    ],
)
def test_bfloat16_of_a_cpu_is_what_torch_knows_of_its_instructions(
    known: dict[str, Any], expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: known, raising=False)
    assert has_bfloat16(CPU) is expected


def test_bfloat16_is_unknown_where_torch_does_not_tell_or_the_device_is_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert has_bfloat16(torch.device("meta")) is None
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert has_bfloat16(CPU) is None


def test_bfloat16_of_a_gpu_is_asked_of_that_gpu_and_leaves_emulation_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext(asked.append(device)))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    second = torch.device("cuda", 1)
    assert has_bfloat16(second) is False
    assert asked == [second]
