"""Identities of configurations that stored runs carry: a new key must not change those of old runs.

Each value is ``RunConfig.hash()`` of the example as runs of the study ``paper`` carry it. (Earlier runs, made
before ``task.imbalance`` and the options of ``random-budget`` were there, carry others.) A change here makes
every finished run of that method look like another experiment: it would be trained again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from widthwise.studies.config import load_config

EXAMPLES = Path(__file__).parents[2] / "examples"
HASHES = {
    "fedavg": "9e81d8c8cd457d05",
    "fedprox": "a5d5ebf85fc01f52",
    "scaffold": "74d0f8cec87747bc",
    "heterofl": "ceebfa5c47c75f01",
    "fjord": "42918979fea82cfb",
    "uniform": "c542060e8e611c99",
    "hasfl": "52ed345ad0e6cc54",
}


@pytest.mark.parametrize("method", HASHES)
def test_hash_is_that_of_stored_runs(method: str) -> None:
    assert load_config(EXAMPLES / f"digits-{method}.yaml").hash() == HASHES[method]
