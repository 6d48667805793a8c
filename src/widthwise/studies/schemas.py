"""JSON Schemas of runs and studies, with which editors complete and check the YAML files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from widthwise.studies.config import RunConfig
from widthwise.studies.study import Study, StudyTask

_PLACE = "#/$defs/{model}"


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a run's configuration."""
    return RunConfig.model_json_schema()


def study_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study's file.

    Where a study says what differs, a part of a run's configuration will do, and a key may be dotted; only
    planning the study shows whether all parts together make a run.
    """
    run = _partial(RunConfig.model_json_schema(ref_template=_PLACE))
    study = Study.model_json_schema(ref_template=_PLACE)
    parts: dict[str, Any] = {**run.pop("$defs"), **study.pop("$defs")}
    changes = {"$ref": _PLACE.format(model="Changes")}
    of_label = {"type": "object", "additionalProperties": _or_null(changes)}
    task = parts[StudyTask.__name__]["properties"]
    task |= {"base": changes, "changes": of_label}
    known = study["properties"]
    known |= {"base": changes, "methods": of_label}
    known["tasks"]["additionalProperties"] = _or_null(known["tasks"]["additionalProperties"])
    profiles = known.pop("profiles")
    profile = _partial({**study, "title": "Profile", "description": "Changes to the study."})
    known["profiles"] = {**profiles, "additionalProperties": profile}
    return {**study, "$defs": {**parts, "Changes": {**run, "title": "Changes"}}}


def _or_null(schema: Any) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _partial(whole: Any) -> Any:
    """Return a schema for a part of what another one describes: nothing is required, keys may be dotted."""
    if isinstance(whole, list):
        return [_partial(item) for item in whole]
    if not isinstance(whole, Mapping):
        return whole
    # Of alternatives, a part may fit several. What else tells them apart is in "discriminator".
    names = {"oneOf": "anyOf"}
    part = {
        names.get(key, key): _partial(value)
        for key, value in whole.items()
        if key not in ("required", "discriminator", "default", "minProperties")
    }
    if whole.get("additionalProperties") is False:
        part["patternProperties"] = {r"\.": {}}
    return part
