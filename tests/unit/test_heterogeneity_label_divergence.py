"""Total variation of each client's labels to the global labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from widthwise.core.errors import InputError
from widthwise.heterogeneity.label_divergence import label_divergence


def test_label_divergence_equals_hand_computation() -> None:
    # Global: (4 + 0 + 2, 0 + 1 + 3) = (6, 4) of 10, p = (.6, .4).
    # Client 0: (1, 0): (.4 + .4) / 2 = .4. Client 1: (0, 1): (.6 + .6) / 2 = .6. Client 2: (.4, .6): .2.
    counts = np.array([[4, 0], [0, 1], [2, 3]])
    assert label_divergence(counts) == pytest.approx([0.4, 0.6, 0.2], abs=1e-15)
    assert label_divergence(counts).dtype == np.float64


def test_label_divergence_is_zero_when_all_clients_mirror_the_whole() -> None:
    assert label_divergence(np.array([[1, 2, 3], [10, 20, 30]])) == pytest.approx([0, 0], abs=1e-15)


@settings(deadline=None, max_examples=50)
@given(hnp.arrays(np.int64, st.tuples(st.integers(1, 8), st.integers(1, 8)), elements=st.integers(0, 50)))
def test_label_divergence_lies_in_range_and_ignores_order_of_classes(counts: np.ndarray) -> None:
    counts[:, 0] += 1
    divergence = label_divergence(counts)
    assert ((divergence >= 0) & (divergence < 1)).all()
    assert divergence == pytest.approx(label_divergence(counts[:, ::-1]))


def test_label_divergence_refuses_empty_client() -> None:
    with pytest.raises(
        InputError, match=r"^client 1 holds 0 samples, but a label distribution needs at least 1\."
    ):
        label_divergence(np.array([[1, 1], [0, 0]]))
