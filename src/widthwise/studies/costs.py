"""What the models of a paper and of runs cost at every width: Table 1, computed by tracing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from widthwise.slicing.cost import Cost, cost
from widthwise.studies.config import RunConfig
from widthwise.studies.expected import PaperCosts
from widthwise.tasks import DATASETS, resolve_model

__all__ = ["Cost", "model_costs", "paper_costs", "run_costs"]


def paper_costs(model: PaperCosts) -> list[Cost]:
    """Return the cost of a paper's model at the widths that it prints, by our count."""
    options = {key: value for key, value in model.model.items() if key != "name"}
    return model_costs(model.model["name"], model.dataset, options, model.rows)


def model_costs(name: str, dataset: str, options: Mapping[str, Any], widths: Iterable[float]) -> list[Cost]:
    """Return the cost of a registered model on a data set's shapes at these widths; needs no data.

    Raises:
        ConfigError: if the name is unknown, the model does not take such data or an option is not valid.
        TraceError: if the model cannot be traced.

    Example:
        >>> [c.params for c in model_costs("mlp", "digits", {}, [0.5, 1.0])]
        [6570, 17226]
    """
    return list(_costs(name, dataset, json.dumps(options, sort_keys=True), tuple(widths)))


@cache  # tracing takes seconds, and the tasks of a study often share a model
def _costs(name: str, dataset: str, options: str, widths: tuple[float, ...]) -> tuple[Cost, ...]:
    spec = resolve_model(name, DATASETS[dataset].value.signature, json.loads(options))
    return tuple(cost(spec.build(0), spec.example_inputs(), widths, freeze=spec.freeze))


def run_costs(config: RunConfig) -> list[Cost]:
    """Return the cost of a run's model at the widths of its capacity tiers."""
    spec = config.task.model_spec()
    options = spec.options.model_dump(mode="json")
    return model_costs(spec.name, config.task.dataset, options, config.capacity.levels())
