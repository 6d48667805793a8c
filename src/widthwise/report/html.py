"""What every page shares: templates in which all text is escaped, and writing a page as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from widthwise.core.errors import InputError


def render(template: str, **values: Any) -> str:
    """Return a template of this room, filled in."""
    # Names, labels and commands come from files: everything is escaped except our own SVG.
    environment = Environment(
        loader=PackageLoader("widthwise.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["svg"] = lambda plot: Markup(plot.svg())
    return environment.get_template(template).render(**values)


@contextmanager
def writing(page: Path) -> Iterator[None]:
    """Turn a failure to write into a message about the page.

    Raises:
        InputError: if something inside the block cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise InputError(
            f"report {str(page)!r} cannot be written ({error.strerror}), but its folder must be writable. "
            "Choose another place with --out."
        ) from error


def write_page(page: Path, html: str) -> None:
    """Write a page at once, so that a reader never finds half of it."""
    half = page.with_name(f".{page.name}.part")
    half.write_text(html, encoding="utf-8")
    half.replace(page)
