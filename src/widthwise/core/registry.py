"""One table of named parts for each room: explicit entries, refused duplicates, helpful misses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from widthwise.core.errors import ConfigError, unknown_name

T = TypeVar("T")


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered part.

    Attributes:
        name: The name that users write.
        value: The part itself (a class or a factory).
        summary: One line that says what it does.
        source: Where it comes from (authors, year, equation), or "widthwise".
        module: Name of the module that added it.
    """

    name: str
    value: T
    summary: str
    source: str
    module: str


class Registry(Generic[T]):
    """Names of parts of one kind, in the order in which they were added.

    Args:
        kind: The word for one part, used in messages ("method", "dataset").

    Example:
        >>> models = Registry[type]("model")
        >>> models.add("list", list, summary="a list", source="Python")
        >>> models["list"].value
        <class 'list'>
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}

    def add(self, name: str, value: T, *, summary: str, source: str) -> None:
        """Add a part.

        Raises:
            ConfigError: if the name is taken.
        """
        if name in self._entries:
            raise ConfigError(
                f"{self.kind} {name!r} is registered twice, but names are unique. Choose another."
            )
        # A method is plain data that does not know where it was made, so the caller is looked at.
        module = str(sys._getframe(1).f_globals["__name__"])
        self._entries[name] = Entry(name, value, summary, source, module)

    def __getitem__(self, name: str) -> Entry[T]:
        try:
            return self._entries[name]
        except KeyError:
            raise ConfigError(unknown_name(self.kind, name, self._entries)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter(self._entries.values())

    def names(self) -> list[str]:
        """Return the registered names."""
        return list(self._entries)
