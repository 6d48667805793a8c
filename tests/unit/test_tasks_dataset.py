"""Batches, augmentation and text windows, by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from widthwise.core.errors import DataError
from widthwise.tasks import ArraySet, Signature, TextSet
from widthwise.tasks.dataset import crop_and_flip


def images(augment: bool, height: int = 6, width: int = 5) -> ArraySet:
    count = 3
    values = torch.arange(1, 1 + count * 2 * height * width).view(count, 2, height, width).to(torch.uint8)
    return ArraySet(
        name="toy",
        signature=Signature("image", (2, height, width), 3),
        class_names=("a", "b", "c"),
        values=values,
        targets=torch.tensor([2, 0, 1]),
        mean=(10.0, 20.0),
        std=(2.0, 5.0),
        augment=augment,
    )


def features(values: torch.Tensor) -> ArraySet:
    columns = values.shape[1]
    return ArraySet(
        name="sensors",
        signature=Signature("features", (columns,), 2),
        class_names=("no", "yes"),
        values=values,
        targets=torch.zeros(len(values), dtype=torch.int64),
        mean=(0.0,) * columns,
        std=(1.0,) * columns,
    )


def test_batch_normalises_each_channel() -> None:
    data = images(augment=False)
    inputs, targets = data.batch(torch.tensor([1, 1, 0]))
    assert targets.tolist() == [0, 0, 2]
    # Image 0 starts at 1: (1 - 10) / 2; its second channel starts at 31: (31 - 20) / 5.
    assert inputs[2, 0, 0, 0] == pytest.approx(-4.5)
    assert inputs[2, 1, 0, 0] == pytest.approx(2.2)
    assert data.values.dtype == torch.uint8


def test_batch_leaves_the_stored_values_alone() -> None:
    values = torch.tensor([[1.0, 2.0]])
    data = features(values.clone())
    data.batch(torch.tensor([0]))[0].fill_(7)
    assert torch.equal(data.values, values)


def test_batch_augments_only_with_a_generator_and_when_asked() -> None:
    every = torch.arange(3)
    plain = images(augment=False)
    assert torch.equal(images(augment=True).batch(every)[0], plain.batch(every)[0])
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(plain.batch(every, generator)[0], plain.batch(every)[0])
    assert not torch.equal(images(augment=True).batch(every, generator)[0], plain.batch(every)[0])


def test_crop_and_flip_equals_a_loop_over_images() -> None:
    batch, padding = 40, 4
    pixels = torch.arange(batch * 2 * 6 * 5).view(batch, 2, 6, 5) % 251 + 1
    augmented = crop_and_flip(pixels.to(torch.uint8), torch.Generator().manual_seed(3), padding)
    padded = np.pad(pixels.numpy(), ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2))
    seen = set()
    for original, result in zip(padded, augmented.numpy(), strict=True):
        matches = [
            (top, left, mirror)
            for top in range(2 * padding + 1)
            for left in range(2 * padding + 1)
            for mirror in (1, -1)
            if np.array_equal(original[:, top : top + 6, left : left + 5][:, :, ::mirror], result)
        ]
        assert matches  # each result is a shift of its own image, mirrored or not
        seen.update(matches)
    assert {mirror for *_, mirror in seen} == {1, -1}
    assert len(seen) > 20


def test_example_tokens_differ_and_are_in_the_vocabulary() -> None:
    tokens = Signature("text", (5,), 4).example_inputs(2)
    assert tokens.tolist() == [[0, 1, 2, 3, 0], [1, 2, 3, 0, 1]]
    assert tokens.dtype == torch.int64
    assert not Signature("image", (1, 2, 2), 3).example_inputs(2).any()


def test_text_batch_gathers_windows_and_next_characters() -> None:
    data = TextSet(
        name="toy",
        signature=Signature("text", (3,), 10),
        class_names=tuple("0123456789"),
        tokens=torch.tensor([3, 1, 4, 1, 5, 9, 2, 6], dtype=torch.uint8),
        starts=torch.tensor([0, 4, 2]),
    )
    inputs, targets = data.batch(torch.tensor([1, 0]))
    assert inputs.tolist() == [[5, 9, 2], [3, 1, 4]]
    assert targets.tolist() == [6, 1]
    assert data.labels().tolist() == [1, 6, 9]
    assert inputs.dtype == targets.dtype == torch.int64


def test_text_holds_no_copies_of_windows() -> None:
    tokens, starts = torch.zeros(10_000, dtype=torch.uint8), torch.arange(9_000)
    data = TextSet("toy", Signature("text", (80,), 2), ("a", "b"), tokens, starts)
    held = sum(each.numel() * each.element_size() for each in vars(data).values() if torch.is_tensor(each))
    assert held == 10_000 + 9_000 * 8


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_array_set_refuses_values_that_are_not_finite(bad: float) -> None:
    values = torch.zeros(5, 4)
    values[1:4, 2] = bad
    with pytest.raises(
        DataError, match=r"^column 2 of 'sensors' is not finite in 3 of 5 rows, but features must be"
    ):
        features(values)


def test_array_set_refuses_all_nan_data() -> None:
    with pytest.raises(DataError, match=r"^column 0 of 'sensors' is not finite in 5 of 5 rows"):
        features(torch.full((5, 4), float("nan")))
