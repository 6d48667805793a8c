"""What the methods of a study are to each other and to a paper, by their settings and not their labels."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from widthwise.allocation import POLICIES
from widthwise.methods import METHODS
from widthwise.methods.build import reacts
from widthwise.studies.config import RunConfig
from widthwise.studies.control import SAME_COHORTS, leaves
from widthwise.studies.expected import PaperMethod

Configs = Mapping[str, RunConfig]
Sources = Mapping[str, str]
"""Label of a matched method -> label of what it is matched to, or a folder outside the study."""

#: Sections that make of a published method one of its variants.
ADDED = ("compression.", "privacy.")
#: Policy and objective of full-model plain training.
FULL = ("full", "plain")


def labels_by_method(
    methods: Mapping[str, PaperMethod], configs: Configs, sources: Sources
) -> dict[str, tuple[str, ...]]:
    """Return for each of a paper's methods the labels of a task that are it: same parts, same given options.

    What is only measured makes no other method of one that does not react to it. A control must also be
    matched to the label that is its treatment (``the_one``).
    """
    flat = {label: dict(leaves(config.to_dict())) for label, config in configs.items()}
    found: dict[str, tuple[str, ...]] = {}
    for name, method in methods.items():
        treatment = the_one(method.matched_to, found) if method.matched_to else None
        wanted = _wanted(method)
        fitting = [
            label
            for label, settings in flat.items()
            if sources.get(label) == treatment
            and all(settings.get(k) == v for k, v in wanted.items())
            and not any(key.startswith(ADDED) for key in settings)
        ]
        found[name] = () if method.matched_to and treatment is None else tuple(fitting)
    return found


def _wanted(method: PaperMethod) -> dict[str, Any]:
    """Return the settings that a label must have, by dotted key."""
    parts = METHODS[method.method["name"]].value
    wanted = dict(leaves({"method": {**vars(parts), **method.method}, "control": method.control}))
    free = {"method.name", "method.matched_to", "control.matched_to"}
    if not reacts(POLICIES[wanted["method.policy"]].value):
        free.add("method.estimator")
    return {key: value for key, value in wanted.items() if key not in free}


def the_one(name: str, labels: Mapping[str, Sequence[str]]) -> str | None:
    """Return the label that is a paper's method; of several, the one that bears its name, or None.

    Example:
        >>> the_one("hasfl", {"hasfl": ["ours"]}), the_one("hasfl", {"hasfl": ["a", "b"]})
        ('ours', None)
    """
    fitting = labels.get(name, ())
    return fitting[0] if len(fitting) == 1 else name if name in fitting else None


def pairs(configs: Configs, sources: Sources, sweep: Collection[str] = ()) -> dict[tuple[str, str], str]:
    """Return the pairs of labels of a task whose runs are compared, first minus second -> what they are.

    In this order: a treatment and its control; two methods that differ in one switch, on minus off; a method
    in question and every other one, except for other methods' controls; every method and full-model plain
    training. In question are the methods that have a control; where none has, those whose widths follow what
    is measured; where none does, all. Only methods are paired whose runs of one seed meet the same clients
    in the same cohorts, and, but for a switch, under the same values of the sweep (its dotted keys).
    """
    flat = {label: dict(leaves(config.identity())) for label, config in configs.items()}
    treatments = [label for label in configs if label in sources.values()]
    adaptive = [
        label
        for label, config in configs.items()
        if label not in sources and reacts(type(config.built_method.policy))
    ]
    full = [label for label, s in flat.items() if (s["method.policy"], s["method.objective"]) == FULL]

    def same(first: str, second: str, keys: Collection[str]) -> bool:
        return _part(flat[first], keys) == _part(flat[second], keys)

    def listed() -> Iterator[tuple[tuple[str, str], str]]:
        for control, treatment in sources.items():
            yield (treatment, control), f"matched control ({_currency(flat[control])})"
        for first, second in permutations(configs, 2):
            if switch := _switch(flat[first], flat[second]):
                yield (first, second), f"{switch.rpartition('.')[2]} on − off"
        for first in treatments or adaptive or configs:
            for second in configs:
                of_another = sources.get(second) not in (None, first)
                if second not in full and not of_another and same(first, second, sweep):
                    yield (first, second), ""
        for second in full:
            for first in configs:
                if same(first, second, sweep):
                    yield (first, second), "full model"

    found: dict[tuple[str, str], str] = {}
    for (first, second), what in listed():
        known = first == second or first not in flat or (second, first) in found
        if not known and same(first, second, SAME_COHORTS):
            found.setdefault((first, second), what)
    return found


def eq_6(configs: Configs, sources: Sources) -> str | None:
    """Return the label whose widths follow eq. 6 of HAS-FL, if any; of several, the first under guarantee."""
    found = [
        label
        for label, config in configs.items()
        if label not in sources and config.method["policy"] == "adaptive"
    ]
    return min(found, key=lambda label: not configs[label].method["guarantee"], default=None)


def _currency(settings: Mapping[str, Any]) -> str:
    return str(settings.get("control.currency") or settings["method.currency"])


def _switch(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | None:
    """Return the only setting in which two methods differ, if it is a switch that the first has on."""
    differing = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    is_switch = len(differing) == 1 and (first.get(differing[0]), second.get(differing[0])) == (True, False)
    return differing[0] if is_switch else None


def _part(settings: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Return the settings under some dotted keys, or in a section of them (``task.``)."""
    return {name: value for name, value in settings.items() if name.startswith(tuple(keys))}
