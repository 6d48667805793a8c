from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from widthwise.core.errors import ExportError
from widthwise.ship.compare import BATCH_SIZES, compare
from widthwise.ship.passport import stretches


class Ramp:
    """Sample i is the number i; so is its first score, the second is its negative."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def batch(self, indices: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        return indices.float()[:, None], indices


class Both(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([inputs, -inputs], dim=1)


scores = Both()


class Cancelling(nn.Module):
    """A score of .53 that loses digits in single precision."""

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.cat([(inputs * 0 + 2.0**20 + 0.53) - 2.0**20, inputs * 0], dim=1)


def test_compare_tries_every_batch_size_on_other_samples():
    seen: list[list[float]] = []

    def watched(inputs: Tensor) -> Tensor:
        seen.append(inputs.flatten().tolist())
        return scores(inputs)

    assert compare("x", watched, scores, Ramp(100)) == 0
    assert [len(batch) for batch in seen] == list(BATCH_SIZES)
    assert [i for batch in seen for i in batch] == list(range(sum(BATCH_SIZES)))


def test_compare_uses_samples_again_where_there_are_few():
    seen: list[float] = []
    compare("x", lambda inputs: seen.extend(inputs.flatten().tolist()) or scores(inputs), scores, Ramp(3))
    assert len(seen) == sum(BATCH_SIZES)
    assert set(seen) == {0, 1, 2}


def test_compare_allows_rounding_in_proportion_to_the_largest_score():
    # The last batch holds samples 10 .. 41: 4.1e-4 may be apart there, but 1e-5 in the first one, whose
    # only score is 0.
    assert compare("x", lambda x: scores(x) * (1 + 5e-6), scores, Ramp(42)) == pytest.approx(
        41 * 5e-6, rel=0.05
    )
    with pytest.raises(ExportError, match=r"for sample 0 of a batch of 1, .* may be 1\.0e-05 apart"):
        compare("x", lambda x: scores(x) + 2e-5, scores, Ramp(42))


def test_compare_allows_what_the_sub_model_itself_is_off_by():
    # Floats near 2^20 are 1/8 apart, so the score .53 is .5 in single precision: 0.03 from the exact one.
    exact = Cancelling()(torch.zeros(1, 1).double())
    assert exact.tolist() == [[pytest.approx(0.53, abs=1e-9), 0]]
    assert Cancelling()(torch.zeros(1, 1)).tolist() == [[0.5, 0]]
    found = exact.float()
    difference = compare("x", lambda x: found.expand(len(x), 2), Cancelling(), Ramp(9))
    assert difference == pytest.approx(0.03)
    with pytest.raises(ExportError, match=r"gives 0\.5\d* as .* gives 0\.5, and they may be 3\.0e-02"):
        compare("x", lambda x: found.expand(len(x), 2) + torch.tensor([0.02, 0]), Cancelling(), Ramp(9))


def test_compare_names_the_score_that_differs_most():
    def wrong(inputs: Tensor) -> Tensor:
        found = scores(inputs)
        if len(found) == 7:
            found[4, 1] += 0.5
        return found

    # The batch of 7 holds samples 3 .. 9: the score of its row 4 is -7.
    message = r"^the file gives -6\.5 as score of class 1 for sample 4 of a batch of 7, .* gives -7, and"
    with pytest.raises(ExportError, match=message):
        compare("the file", wrong, scores, Ramp(42))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_compare_refuses_what_is_no_number(value: float):
    def wrong(inputs: Tensor) -> Tensor:
        return torch.where(inputs == 5, value, scores(inputs))

    with pytest.raises(ExportError, match="for sample 2 of a batch of 7"):
        compare("x", wrong, scores, Ramp(42))


def test_compare_refuses_another_shape():
    with pytest.raises(ExportError, match=r"x gives scores of shape \[1, 1\] for a batch of 1, .* \[1, 2\]"):
        compare("x", lambda inputs: scores(inputs)[:, :1], scores, Ramp(42))


@pytest.mark.parametrize("channels", [range(4), (0, 2, 3, 9), (5,), range(3, 8)])
def test_stretches_are_the_channels(channels):
    assert [c for first, end in stretches(channels) for c in range(first, end)] == list(channels)
