from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from widthwise.cli_progress import PLAIN_LINES, ProgressSink
from widthwise.core.records import RoundRecord


def federation(rounds: int) -> Any:
    return SimpleNamespace(label="hasfl", training=SimpleNamespace(rounds=rounds))


def record(index: int, accuracy: float | None = 0.5) -> RoundRecord:
    return RoundRecord(
        round=index,
        accuracy=accuracy,
        loss=None,
        mean_width=0.525,
        coverage=0.75,
        bytes_up=1_000_000,
        bytes_down=2_000_000,
        macs=1,
        seconds=1.0,
        train_loss=1.0,
        ever_covered=1.0,
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    now = SimpleNamespace(seconds=100.0)
    monkeypatch.setattr("widthwise.cli_progress.time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def plain() -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, width=200), file


def test_progress_says_round_accuracy_width_coverage_megabytes_and_time_left(clock: SimpleNamespace) -> None:
    console, file = plain()
    with ProgressSink(console) as sink:
        sink.on_start(federation(4), 0)
        clock.seconds += 40  # 40 s for one round: 120 s for the three that are left
        sink.on_round(record(0))
    expected = "hasfl: round 1/4  accuracy  50.0%  width 0.53  coverage  75%  3.0 MB  2:00 left\n"
    assert file.getvalue() == expected


def test_progress_adds_megabytes_up_and_keeps_the_last_accuracy_known(clock: SimpleNamespace) -> None:
    console, file = plain()
    with ProgressSink(console) as sink:
        sink.on_start(federation(3), 0)
        for index, accuracy in enumerate([None, 0.25, None]):
            sink.on_round(record(index, accuracy))
    lines = file.getvalue().splitlines()
    assert [line.split("accuracy")[1].split()[0] for line in lines] == ["--", "25.0%", "25.0%"]
    assert [line.split(" MB")[0].split()[-1] for line in lines] == ["3.0", "6.0", "9.0"]


def test_progress_measures_speed_from_where_a_resumed_run_went_on(clock: SimpleNamespace) -> None:
    console, file = plain()
    with ProgressSink(console) as sink:
        sink.on_start(federation(10), 8)
        clock.seconds += 5
        sink.on_round(record(8))
    assert file.getvalue().splitlines()[0] == "hasfl: going on at round 9"
    assert file.getvalue().endswith("0:05 left\n")


@pytest.mark.parametrize("rounds", [1, PLAIN_LINES, 1000])
def test_progress_prints_few_lines_without_a_terminal_and_always_the_last(
    rounds: int, clock: SimpleNamespace
) -> None:
    console, file = plain()
    with ProgressSink(console) as sink:
        sink.on_start(federation(rounds), 0)
        for index in range(rounds):
            sink.on_round(record(index))
        sink.on_end({})
    lines = file.getvalue().splitlines()
    assert 1 <= len(lines) <= PLAIN_LINES
    assert f"round {rounds}/{rounds}" in lines[-1]


def test_progress_draws_one_bar_on_a_terminal_and_takes_it_away(clock: SimpleNamespace) -> None:
    file = io.StringIO()
    console = Console(file=file, width=200, force_terminal=True)
    with ProgressSink(console) as sink:
        sink.on_start(federation(2), 0)
        sink.on_round(record(0))
        sink.on_round(record(1))
        sink.on_end({})
    assert "round 2/2" in file.getvalue()
    assert file.getvalue().endswith("\x1b[2K"), "the bar's line is erased at the end"
