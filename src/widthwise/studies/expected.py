"""A paper's printed numbers, which the report of a study puts beside ours."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from widthwise.core.errors import ConfigError, unknown_name
from widthwise.methods import problems
from widthwise.studies.claims import Claim, PaperData, Quantity
from widthwise.studies.config import read_yaml


class PaperMethod(PaperData):
    """A method that a paper or its claims speak of, written as in a study.

    A method of a study is this one if it has these settings, whatever its label is.

    Attributes:
        title: Its name in the paper's tables; empty for a control of ours.
        method: Settings of ``method:`` that make it what it is.
        control: The same of ``control:``.
    """

    title: str = ""
    method: dict[str, Any]
    control: dict[str, Any] = Field(default_factory=dict)

    @property
    def matched_to(self) -> str | None:
        """The method (a key of ``Expected.methods`` that stands before it) whose runs it is matched to."""
        source: str | None = {**self.method, **self.control}.get("matched_to")
        return source


class PaperResult(PaperData):
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


class PaperTable(PaperData):
    """The shape of one table of results: the tasks and methods that it lists."""

    title: str
    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    columns: tuple[Quantity, ...]


class PaperCurves(PaperData):
    """A figure over rounds: what it draws of which methods."""

    title: str
    methods: tuple[str, ...]
    column: Literal["accuracy", "loss"] = "accuracy"


class PaperCosts(PaperData):
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


class Expected(PaperData):
    """All printed numbers of a paper that a study stands beside, and what it claims.

    Attributes:
        source: The paper.
        tasks: Name of a task in the paper -> our name of its data set. A study's task that stands beside it
            but is on another data set is a stand-in.
        methods: Name that all of the following use -> the method, a treatment before its controls.
        costs: The models of its cost table.
        tables: Number of a table of results -> which rows it has.
        figures: Number of a figure over rounds -> what it draws.
        results: Task -> method -> row.
        correlations: Method -> task -> seed -> the audit's four correlations, in the order of
            ``audit.table.COLUMNS``.
        claims: What the paper concludes.
    """

    source: str
    tasks: dict[str, str]
    methods: dict[str, PaperMethod]
    costs: tuple[PaperCosts, ...]
    tables: dict[int, PaperTable]
    figures: dict[int, PaperCurves]
    results: dict[str, dict[str, PaperResult]]
    correlations: dict[str, dict[str, dict[int, tuple[float, float, float, float]]]]
    claims: tuple[Claim, ...]

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
