"""Runs that are stopped as Ctrl-C stops them, at a known round."""

from __future__ import annotations

from typing import Any

import pytest

from widthwise.engine import loop


def interrupt_round(monkeypatch: pytest.MonkeyPatch, number: int) -> list[Any]:
    """Interrupt the next run when its round with this number, counted from 1, begins.

    Returns:
        One entry for each round that has begun since, also in runs that go on afterwards.
    """
    original, calls = loop._one_round, list[Any]()

    def interrupted(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == number:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(loop, "_one_round", interrupted)
    return calls
