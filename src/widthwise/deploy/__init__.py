"""The same round over Flower's deployment engine: a ServerApp and a ClientApp from one configuration.

Needs the extra ``flower``. Whether Flower reports its use is Flower's own setting
(``FLWR_TELEMETRY_ENABLED``), which nothing here touches.
"""

from __future__ import annotations

from widthwise.core.errors import ConfigError

try:
    import flwr  # noqa: F401 - only whether it is there
except ImportError as error:
    raise ConfigError(
        "widthwise.deploy is imported, but the package 'flwr' is not installed. "
        "Run: pip install 'widthwise[flower]'"
    ) from error

from widthwise.deploy.client import client_app
from widthwise.deploy.server import server_app

__all__ = ["client_app", "server_app"]
