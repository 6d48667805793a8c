"""Builds a method from its flat configuration, or says what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from pydantic import ValidationError

from widthwise.allocation import POLICIES, Policy
from widthwise.core.errors import ConfigError, unknown_name
from widthwise.core.registry import Registry
from widthwise.heterogeneity import ESTIMATORS
from widthwise.methods.method import Composition, Method
from widthwise.methods.problems import problems, unknown_key
from widthwise.methods.registry import METHODS
from widthwise.slicing import SELECTORS
from widthwise.training import OBJECTIVES

#: Parts whose options are written flat under ``method:``.
PARTS: Mapping[str, Registry[Any]] = {
    "policy": POLICIES,
    "objective": OBJECTIVES,
    "estimator": ESTIMATORS,
    "selector": SELECTORS,
}
_SLOTS = tuple(field.name for field in fields(Composition))
_NOTHING = "none"


def build_method(config: Mapping[str, Any]) -> Method:
    """Build a method.

    Args:
        config: ``name``, any part that replaces the method's own (``policy``, ``objective``, ``estimator``,
            ``selector``, ``weighting``, ``uncovered``) and the options of the chosen parts, flat.
            ``estimator: none`` measures nothing.

    Raises:
        ConfigError: for an unknown name, an option that no chosen part has, a value out of its range, or a
            part that needs other slices than the selector makes.
            Several problems are listed one per line.

    Example:
        >>> build_method({"name": "hasfl", "objective": "proximal", "mu": 0.1}).objective.mu
        0.1
    """
    if "name" not in config:
        raise ConfigError(
            f"method.name is missing, but it is required. Add one of: {', '.join(METHODS.names())}."
        )
    if config["name"] not in METHODS.names():
        raise ConfigError(unknown_name("method.name", config["name"], METHODS.names()))
    chosen = {slot: config[slot] for slot in _SLOTS if slot in config}
    parts = replace(METHODS[config["name"]].value, **chosen)
    found = _unknown_parts(parts)
    if found:
        raise ConfigError("\n".join(found))

    options = {key: value for key, value in config.items() if key != "name" and key not in _SLOTS}
    built: dict[str, Any] = {}
    for slot, registry in PARTS.items():
        name = getattr(parts, slot)
        if name == _NOTHING:
            built[slot] = None
            continue
        part = registry[name].value
        own = {key: options.pop(key) for key in part.model_fields if key in options}
        try:
            built[slot] = part(**own)
        except ValidationError as error:
            found += problems(error, part, ("method",))
    found += [_unknown_option(key, value, parts) for key, value in options.items()]
    if built.get("estimator", ...) is None and reacts(PARTS["policy"][parts.policy].value):
        found.append(
            f"method.estimator is 'none', but policy {parts.policy} chooses widths by the estimates. "
            f"Choose one of: {', '.join(ESTIMATORS.names())}."
        )
    if not found:
        found = _unmet_needs(parts, built)
    if found:
        raise ConfigError("\n".join(found))
    return Method(config["name"], parts, **built)


def reacts(policy: type[Policy]) -> bool:
    """Return whether a policy changes widths by what the estimator measures."""
    return policy.observe is not Policy.observe


def _unmet_needs(parts: Composition, built: Mapping[str, Any]) -> list[str]:
    """Return a message for each part that cannot work on the selector's slices."""
    selector = built["selector"]
    return [
        f"method.selector is {parts.selector!r}, but {slot} {getattr(parts, slot)} needs {need}. "
        f"Choose another {slot}, or a selector such as nested."
        for slot, part in built.items()
        if slot != "selector" and part is not None
        for need in sorted(part.needs - selector.traits)
    ]


def _unknown_parts(parts: Composition) -> list[str]:
    """Return a message for each choice that is not a registered part or a known rule."""
    rules = get_type_hints(Composition)
    known = {
        **{slot: registry.names() for slot, registry in PARTS.items()},
        "weighting": list(get_args(rules["weighting"])),
        "uncovered": list(get_args(rules["uncovered"])),
    }
    known["estimator"] = [*known["estimator"], _NOTHING]
    return [
        unknown_name(f"method.{slot}", getattr(parts, slot), names)
        for slot, names in known.items()
        if getattr(parts, slot) not in names
    ]


def _unknown_option(key: str, value: object, parts: Composition) -> str:
    """Say which part has this option, or which known option is nearest."""
    for slot, registry in PARTS.items():
        owners = [entry.name for entry in registry if key in entry.value.model_fields]
        if owners:
            chosen = getattr(parts, slot)
            return (
                f"method.{key} is {value!r}, but it is an option of {slot} {' and '.join(owners)}, and the "
                f"{slot} here is {chosen}. Remove it or choose that {slot}."
            )
    known = [
        *_SLOTS,
        *(
            option
            for slot, registry in PARTS.items()
            if getattr(parts, slot) != _NOTHING
            for option in registry[getattr(parts, slot)].value.model_fields
        ),
    ]
    return unknown_key(f"method.{key}", value, known)
