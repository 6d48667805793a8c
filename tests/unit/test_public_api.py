from __future__ import annotations

import subprocess
import sys

import pytest

import widthwise as ww


@pytest.mark.parametrize("name", ww.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(ww, name).__name__ == name


@pytest.mark.parametrize("name", ["trace", "cost", "aggregate", "run", "load_run", "audit"])
def test_public_functions_are_callable(name: str) -> None:
    assert callable(getattr(ww, name))


def test_audit_stays_the_function_when_the_folder_of_that_name_is_imported() -> None:
    code = "import widthwise.audit, widthwise as ww; from widthwise.audit import coverage; ww.audit.__call__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_import_loads_no_torch() -> None:
    code = "import sys, widthwise; assert 'torch' not in sys.modules and widthwise.__version__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="module 'widthwise' has no attribute 'tracee'"):
        ww.tracee  # noqa: B018


def test_dir_lists_the_public_names() -> None:
    assert dir(ww) == sorted(ww.__all__)
