"""What a node says that it can train."""

from __future__ import annotations

from flwr.app import Context

from widthwise.core.errors import ConfigError

CAPACITY = "capacity"


def capacity_of(context: Context) -> float | None:
    """Return the largest width that a node can train, or None where its node-config says nothing of it.

    Raises:
        ConfigError: if it says something that is no number.
    """
    value = context.node_config.get(CAPACITY)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(
            f"{CAPACITY} in the node-config is {value!r}, but a width is a number in (0, 1]. "
            f"Write {CAPACITY}=0.5."
        )
    return float(value)
