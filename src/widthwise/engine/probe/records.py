"""What a probe is told and what it finds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from widthwise.core.errors import ConfigError

MIB = 2**20
Bound = Literal["memory", "time"]


@dataclass(frozen=True)
class Bounds:
    """What a training step may take.

    Attributes:
        memory_mib: Largest memory of the process that trains, in MiB (2^20 bytes).
        seconds_per_step: Longest time of a step, the median of several.

    Raises:
        ConfigError: if a bound is not a positive, finite number.
    """

    memory_mib: float
    seconds_per_step: float

    def __post_init__(self) -> None:
        for name, value in (
            ("memory", self.memory_mib),
            ("seconds per step", self.seconds_per_step),
        ):
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(
                    f"the bound of {name} is {value:g}, but it must be above 0 and finite. "
                    "Say what the machine may spend."
                )

    def exceeded(self, peak: float, seconds: float) -> tuple[Bound, ...]:
        """Return which bounds a peak in bytes and the seconds of a step exceed."""
        over: dict[Bound, bool] = {
            "memory": peak > self.memory_mib * MIB,
            "time": seconds > self.seconds_per_step,
        }
        return tuple(bound for bound, is_over in over.items() if is_over)

    def __str__(self) -> str:
        return f"{self.memory_mib:g} MiB and {self.seconds_per_step:g} s a step"


@dataclass(frozen=True)
class Measured:
    """What the training steps of one width took.

    Attributes:
        peak: Largest memory of the process, in bytes. Where ``seconds`` is None, what it was when it ended.
        growth: How much of the peak came with the training: the slice, its gradients, momentum, activations.
        seconds: Median time of a step; None where the steps did not end.
        exceeds: The bounds that were exceeded.
    """

    peak: int
    growth: int
    seconds: float | None
    exceeds: tuple[Bound, ...]


@dataclass(frozen=True)
class ProbeRow:
    """A width that was tried.

    Attributes:
        width: The width.
        params: Parameters of its sub-model.
        macs: Multiply-accumulates of one sample's forward pass.
        peak_mib: Largest memory of the process, in MiB. Where ``seconds`` is None, what it was when it ended.
        growth_mib: How much of the peak came with the training.
        seconds: Median time of a step; None where the steps did not end within the bounds.
        exceeds: The bounds that were exceeded; none, if the width fits.
    """

    width: float
    params: int
    macs: int
    peak_mib: float
    growth_mib: float
    seconds: float | None
    exceeds: tuple[Bound, ...]

    @property
    def fits(self) -> bool:
        """Whether no bound was exceeded."""
        return not self.exceeds


@dataclass(frozen=True)
class ProbeResult:
    """What a probe has found.

    Attributes:
        bounds: The bounds.
        rows: The widths that were tried, ascending.
    """

    bounds: Bounds
    rows: tuple[ProbeRow, ...]

    @property
    def width(self) -> float | None:
        """Largest width that was tried and fits, or None."""
        return max((row.width for row in self.rows if row.fits), default=None)

    @property
    def sentence(self) -> str:
        """The answer in words: the width, or why not even the smallest one fits."""
        if self.width is not None:
            return f"The largest width that fits {self.bounds} is {written(self.width)}."
        row = self.rows[0]
        reasons = []
        if "memory" in row.exceeds:
            least = "" if row.seconds is not None else "at least "
            reasons.append(
                f"its process takes {least}{row.peak_mib:.0f} MiB ({row.growth_mib:.0f} of them by training)"
            )
        if "time" in row.exceeds:
            reasons.append(
                f"a step takes {row.seconds:.3g} s" if row.seconds is not None else "its steps did not end"
            )
        return f"Not even width {written(row.width)} fits {self.bounds}: {' and '.join(reasons)}."

    def to_json(self) -> dict[str, Any]:
        """Return the answer and all rows as a JSON-able dictionary."""
        rows = [{**asdict(row), "exceeds": list(row.exceeds), "fits": row.fits} for row in self.rows]
        return {"width": self.width, **asdict(self.bounds), "rows": rows}


def written(width: float) -> str:
    """Return a width in at most six digits, rounded down: read back, it keeps no channel more.

    Example:
        >>> written(2 / 3), written(0.25)
        ('0.666666', '0.25')
    """
    return f"{math.floor(round(width * 1e6, 3)) / 1e6:g}"
