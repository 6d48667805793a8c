"""The table of the study ``examples/studies/digits-precision.yaml``: accuracy in float32 and in bfloat16."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from widthwise.report.study.cells import interval_text, spread
from widthwise.report.study.statistics import estimate, paired

from .common import grid

SUFFIX = "-bf16"


def table(file: Path) -> str:
    """Return final accuracies in %, and differences between runs of one seed with their t intervals."""
    runs = pd.read_csv(file)
    final = {
        label: dict(zip(own["seed"], 100 * own["final_accuracy"], strict=True))
        for label, own in runs.groupby("label")
    }
    lines = []
    for label in (label for label in final if label + SUFFIX in final):
        full, half = final[label], final[label + SUFFIX]
        means = [estimate(list(by_seed.values())) for by_seed in (full, half)]
        difference = interval_text(estimate(list(paired(half, full).values())), 1)
        lines.append((label, *(spread(mean.mean, mean.sd, 1) for mean in means if mean), difference))
    commits = ", ".join(f"`{commit}`" for commit in sorted(set(runs["commit"])))
    header = ("method", "float32 (%)", "bfloat16 (%)", "difference, points [95 %]")
    return f"{grid(header, lines)}\n\n{len(runs)} runs at {commits}."
