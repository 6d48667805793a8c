"""Real data in tests: where it lies, and what happens to tests that need it where it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
PLACES = (ROOT.parent / "shared" / "data", ROOT / "shared" / "data")


def real_data() -> Path | None:
    """Return the folder of Parquet files: ``WIDTHWISE_DATA``, or ``shared/data`` here or beside here."""
    named = os.environ.get("WIDTHWISE_DATA")
    places = [Path(named)] if named else PLACES
    return next((place for place in places if place.is_dir()), None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests marked ``real_data`` where there is none, or fail if it was required."""
    if real_data() is not None:
        return
    if os.environ.get("WIDTHWISE_REQUIRE_DATA"):
        raise pytest.UsageError("WIDTHWISE_REQUIRE_DATA is set, but no folder of real data was found.")
    for item in items:
        if item.get_closest_marker("real_data"):
            item.add_marker(pytest.mark.skip(reason="no real data: set WIDTHWISE_DATA to a folder of it"))


def pytest_report_header() -> str:
    """Say at the top whether tests on real data run."""
    return f"real data: {real_data() or 'none found, tests that need it are skipped (WIDTHWISE_DATA)'}"


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data; for tests marked ``real_data``."""
    found = real_data()
    assert found is not None, "the test lacks the mark real_data"
    return found
