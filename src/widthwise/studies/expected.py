"""A paper's printed numbers, which the report of a study puts beside ours."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from widthwise.core.errors import ConfigError, unknown_name
from widthwise.methods import problems
from widthwise.studies.config import read_yaml

Quantity = Literal["best", "final", "peak_to_final", "width"]
"""Best and final test accuracy of the global model (%), final minus best (points), average width."""


class _Printed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PaperResult(_Printed):
    """One row of a table of results; (mean, standard deviation) in %, None where nothing is printed."""

    best: tuple[float, float]
    final: tuple[float, float]
    width: float
    peak_to_final: float | None = None

    def mean(self, quantity: Quantity) -> float:
        """Return the printed mean; the decay is final minus best where it is not printed itself."""
        value: tuple[float, float] | float | None = getattr(self, quantity)
        if value is None:
            return self.final[0] - self.best[0]
        return value[0] if isinstance(value, tuple) else value

    def sd(self, quantity: Quantity) -> float | None:
        """Return the printed standard deviation over seeds."""
        value = getattr(self, quantity)
        return value[1] if isinstance(value, tuple) else None


class PaperTable(_Printed):
    """The shape of one table of results: names of the tasks and labels of the methods that it lists."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    columns: tuple[Quantity, ...]


class PaperCosts(_Printed):
    """A model of the cost table.

    Attributes:
        title: Its name in the paper.
        dataset: The data set whose shapes it takes.
        model: Registered model that reproduces it: ``name`` and options.
        rows: Width -> parameters (10^6), MACs of one sample (10^6), upload (10^6 bytes).
    """

    title: str
    dataset: str
    model: dict[str, Any]
    rows: dict[float, tuple[float, float, float]]


class Expected(_Printed):
    """All printed numbers of a paper that a study stands beside.

    Attributes:
        source: The paper.
        tasks: Name of a task in the paper -> our name of its data set. A study's task that stands beside it
            but is on another data set is a stand-in.
        methods: Label of a method in a study -> its name in the paper.
        costs: The models of its cost table.
        tables: Number of a table of results -> which rows it has.
        results: Task -> label of a method -> row.
        correlations: Task -> seed -> the audit's four correlations, in the order of ``audit.table.COLUMNS``.
    """

    source: str
    tasks: dict[str, str]
    methods: dict[str, str]
    costs: tuple[PaperCosts, ...]
    tables: dict[int, PaperTable]
    results: dict[str, dict[str, PaperResult]]
    correlations: dict[str, dict[int, tuple[float, float, float, float]]]

    def result(self, task: str | None, method: str) -> PaperResult | None:
        """Return the paper's row, or None where it has none."""
        return self.results.get(task or "", {}).get(method)


def expected_names() -> list[str]:
    """Return the papers whose numbers come with the package."""
    folder = resources.files("widthwise.studies") / "expected"
    return sorted(Path(item.name).stem for item in folder.iterdir() if item.name.endswith(".yaml"))


def load_expected(name: str) -> Expected:
    """Read a paper's numbers by name.

    Raises:
        ConfigError: for an unknown name.

    Example:
        >>> load_expected("moayedikia-2026").results["CIFAR-10"]["hasfl"].final
        (74.5, 5.6)
    """
    if name not in expected_names():
        raise ConfigError(unknown_name("paper", name, expected_names()))
    content = read_yaml(str(resources.files("widthwise.studies") / "expected" / f"{name}.yaml"))
    try:
        return Expected(**content)
    except ValidationError as error:
        raise ConfigError("\n".join(problems(error, Expected))) from None
