"""The ServerApp of a run."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from widthwise.deploy.explain import explain_errors
from widthwise.deploy.settings import configured
from widthwise.deploy.strategy import SliceStrategy


def server_app(config: Path | str) -> ServerApp:
    """Return the ServerApp that runs a configuration over the nodes of a grid.

    Flower's run-config changes it: ``out`` names the run folder (by default that of ``widthwise run``),
    ``rounds`` is ``training.rounds``, and any other key is a dotted key of the configuration. Started again
    with the folder of a run that was stopped, it goes on after the last finished round.

    Args:
        config: The file that ``widthwise run`` takes too. It is read when the app starts.

    Example:
        >>> app = server_app("config.yaml")
    """
    explain_errors()
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        SliceStrategy(*configured(Path(config), context.run_config)).start(grid)

    return app
