"""The kinds of compression against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from widthwise.compression import Bf16, Int8, TopK
from widthwise.core.errors import SliceError
from widthwise.core.seeds import SeedTree

SEEDS = SeedTree(1)


def drawn(count: int) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(0)) * 10.0 ** torch.linspace(
        -6, 3, count
    )


def test_bf16_is_within_two_to_the_minus_eight_and_rounds_to_nearest():
    values = drawn(5000)
    back = Bf16().decode(Bf16().encode(values, SEEDS), 5000)
    assert bool(((back - values).abs() <= 2**-8 * values.abs()).all())
    # By hand: the neighbours of x are those of its upper 16 bits; to nearest, ties to an even last bit.
    bits = values.numpy().view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32)
    assert np.array_equal(back.numpy(), rounded.view(np.float32))


def test_int8_steps_are_those_of_a_slow_loop():
    values, count = drawn(600), 600
    pieces = Int8().encode(values, SEEDS)
    draws = torch.rand(3, 256, generator=SEEDS.torch(), dtype=torch.float64).view(-1).tolist()
    for block in range(3):
        own = values[256 * block : 256 * (block + 1)].double()
        scale = float(pieces["scales"][block])
        assert own.abs().max() / 127 <= scale <= own.abs().max() / 127 * (1 + 2**-22)
        for i, value in enumerate(own.tolist()):
            step = int(np.floor(value / scale + draws[256 * block + i]))
            assert int(pieces["steps"][256 * block + i]) == step
            assert abs(step) <= 127
    back = Int8().decode(pieces, count)
    assert torch.equal(
        back, torch.stack([pieces["steps"][i] * pieces["scales"][i // 256] for i in range(count)])
    )


@pytest.mark.parametrize("peak", [1e-30, 0.1, 1 / 3, 127.0, 1e30])
def test_int8_never_cuts_off_the_largest_value_of_a_block(peak):
    values = torch.tensor([peak, -peak] * 2000)
    back = Int8().decode(Int8().encode(values, SEEDS), len(values))
    assert bool(((back - values).abs() <= peak / 126).all())


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 10, 1000, 70_000])
def test_topk_keeps_the_largest_values_exactly(share, count):
    values, kind = drawn(count), TopK(share=share)
    back = kind.decode(kind.encode(values, SEEDS), count)
    order = np.argsort(-np.abs(values.numpy()), kind="stable")
    k = kind.kept(count)
    assert k == max(1, int(np.ceil(round(share * count, 6))))
    expected = np.zeros(count, dtype=np.float32)
    expected[order[:k]] = values.numpy()[order[:k]]
    assert np.array_equal(back.numpy(), expected)
    error = float((back - values).double().square().sum())
    assert error <= (1 - k / count) * float(values.double().square().sum())


@pytest.mark.parametrize(
    ("count", "share", "places", "size"),
    [
        (1000, 0.01, "places", 10 * 4 + 10 * 2),  # two bytes a position
        (1000, 0.1, "bitmap", 100 * 4 + 125),  # 200 bytes of positions are more than 125 of bits
        (100_000, 0.01, "places", 1000 * 4 + 1000 * 4),  # four bytes a position
        (100_000, 0.1, "bitmap", 10_000 * 4 + 12_500),
    ],
)
def test_topk_names_positions_in_the_smaller_form(count, share, places, size):
    kind = TopK(share=share)
    assert set(kind.layout(count)) == {"values", places}
    assert kind.num_bytes(count) == size


def test_topk_counts_without_float_noise():
    assert TopK(share=0.07).kept(100) == 7  # 0.07 * 100 is 7.000000000000001
    assert TopK(share=0.28).kept(25) == 7


@pytest.mark.parametrize("places", [[0, 0, 5], [5, 4, 6], [0, 1, 10], [-1, 3, 4]])
def test_topk_refuses_positions_that_are_not_ascending_ones_of_the_vector(places):
    kind = TopK(share=0.25)
    pieces = {"values": torch.ones(3), "places": torch.tensor(places, dtype=torch.int16)}
    with pytest.raises(SliceError, match="positions that are not 3 different ones of 10 in ascending order"):
        kind.decode(pieces, 10)


@pytest.mark.parametrize("bits", [0, 0b11111111])
def test_topk_refuses_a_bitmap_of_another_number(bits):
    pieces = {"values": torch.ones(4), "bitmap": torch.tensor([bits], dtype=torch.uint8)}
    with pytest.raises(SliceError, match="not 4 different ones of 8"):
        TopK(share=0.5).decode(pieces, 8)
