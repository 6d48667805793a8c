"""What Flower's log says of an app that fails."""

from __future__ import annotations

import logging

import pytest
from flwr.common.logger import log

from widthwise.core.errors import ConfigError
from widthwise.deploy.explain import explain_errors


@pytest.fixture(autouse=True)
def no_debugging(monkeypatch):
    monkeypatch.delenv("WIDTHWISE_DEBUG", raising=False)


def logged(caplog, error):
    """Return the record of an error that is logged as Flower does."""
    explain_errors()
    try:
        raise error
    except Exception as raised:
        log(logging.ERROR, "%s raised an exception", "ServerApp", exc_info=raised)
    return caplog.records[-1]


def test_error_that_explains_itself_is_one_line(caplog):
    record = logged(caplog, ConfigError("seed is -1, but 100 % of seeds are not."))
    assert record.getMessage() == "ServerApp raised an exception: seed is -1, but 100 % of seeds are not."
    assert record.exc_info is None


def test_error_of_any_other_kind_keeps_its_traceback(caplog):
    record = logged(caplog, ValueError("broken"))
    assert record.getMessage() == "ServerApp raised an exception"
    assert "ValueError: broken" in caplog.text


def test_debugging_lets_the_traceback_through(caplog, monkeypatch):
    monkeypatch.setenv("WIDTHWISE_DEBUG", "1")
    assert logged(caplog, ConfigError("seed is -1.")).exc_info is not None
