"""Blocks of memory come back when nothing that was seen in them is alive, and not before."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widthwise.core.recycled import Recycled


def test_a_block_is_not_handed_out_again_while_a_tensor_lies_in_it():
    recycled = Recycled()
    first = torch.frombuffer(recycled(64), dtype=torch.float32)
    kept = first[:4].view(2, 2)
    kept.fill_(1.0)
    place = first.data_ptr()
    del first
    other = torch.frombuffer(recycled(64), dtype=torch.float32)
    other.fill_(2.0)
    assert other.data_ptr() != place
    assert kept.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    del kept
    assert torch.frombuffer(recycled(64), dtype=torch.float32).data_ptr() == place


def test_the_smallest_block_that_fits_is_taken_and_a_smaller_one_makes_room():
    recycled = Recycled()
    blocks = [recycled(size) for size in (1000, 10, 100)]
    places = {len(block): block.ctypes.data for block in blocks}
    del blocks
    assert recycled(50).ctypes.data == places[100]
    large = recycled(2000)  # the one of 10 bytes is gone now, those of 100 and 1000 are free
    assert len(large) == 2000
    first, second = recycled(1), recycled(1)
    assert sorted((len(first), len(second))) == [100, 1000]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 4)), max_size=60))
def test_there_are_never_more_blocks_than_were_in_use_at_one_time(steps):
    """Blocks of random sizes, each held for a random number of steps."""
    recycled, held, most = Recycled(), [], 0
    places: set[int] = set()
    for now, (size, steps_held) in enumerate(steps):
        held = [(until, block) for until, block in held if until >= now]
        block = recycled(size)
        assert len(block) >= size
        assert block.ctypes.data % 64 == 0
        held.append((now + steps_held, block))
        places = {other.ctypes.data for _, other in held}
        assert len(places) == len(held)
        most = max(most, len(held))
        del block
    del held
    taken = [recycled(1) for _ in range(most)]
    assert len({block.ctypes.data for block in taken}) == most
    assert not recycled._free
