"""Options that several commands take, written once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DataDir = Annotated[Path | None, typer.Option(help="Folder of local Parquet files; it wins over the hub.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
