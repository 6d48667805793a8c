"""The model card: ``export.json`` in words, with the code that runs each file."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined

from widthwise.ship.manifest import Manifest


def card(manifest: Manifest) -> str:
    """Return the model card of an export folder, in Markdown."""
    environment = Environment(
        loader=PackageLoader("widthwise.ship"),
        autoescape=False,  # Markdown, which nobody runs; names of the user's own models may hold anything
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    widths = {file.width: file for file in manifest.files}
    formats = {file.format: file for file in manifest.files}
    untrained = [file for file in widths.values() if file.never_trained]
    return environment.get_template("card.md.j2").render(
        about=manifest.about,
        files=manifest.files,
        widths=list(widths.values()),
        formats=formats,
        untrained=untrained,
        largest=max(file.largest_difference for file in manifest.files),
    )
