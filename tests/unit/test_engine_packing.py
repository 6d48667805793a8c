"""What goes to the object store of Ray: equal, of the same types, and not copied where torch can use it."""

from __future__ import annotations

import pickle

import pytest
import torch

from widthwise.engine.executors.packing import ALIGNMENT, pack, unpack

pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")

TENSORS = {
    "matrix": torch.arange(12.0).view(3, 4),
    "number": torch.tensor(2),
    "nothing": torch.zeros(0, 3),
    "half": torch.arange(4).bfloat16(),
    "flags": torch.tensor([True, False]),
    "transposed": torch.arange(20.0).view(4, 5).t(),
    "expanded": torch.tensor(3).expand(5),
    "trained": torch.ones(2, requires_grad=True),
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_unpack_returns_what_was_packed(name: str) -> None:
    (found,) = unpack(pack([TENSORS[name]]))
    assert type(found) is type(TENSORS[name])
    assert (found.dtype, found.requires_grad) == (TENSORS[name].dtype, TENSORS[name].requires_grad)
    assert torch.equal(found, TENSORS[name])


def test_unpack_sees_aligned_tensors_where_they_lie_and_copies_the_others() -> None:
    memory = torch.arange(64.0)
    assert memory.data_ptr() % ALIGNMENT == 0
    aligned, other = memory[16:32], memory[1:9]
    data, buffers = pack((aligned, other, aligned))
    assert len(buffers) == 2  # one tensor, twice: the same memory
    first, second, again = unpack((data, buffers))
    assert first.data_ptr() == again.data_ptr() == aligned.data_ptr()
    assert second.data_ptr() % ALIGNMENT == 0
    assert torch.equal(second, other)


def test_unpack_reads_memory_that_is_not_writable() -> None:
    data, buffers = pack(torch.arange(16.0))
    held = [pickle.PickleBuffer(bytes(buffer.raw())) for buffer in buffers]
    assert torch.equal(unpack((data, held)), torch.arange(16.0))
