"""Random-budget: random widths at a given average, the control for every method that chooses widths.

Source: arXiv 2608.07157, section 4.1 (baseline "Random-budget").

Widths are drawn anew each round within the capacities and scaled to an exact mean: a number (``budget``) or
the mean width of each round of another run (``matched_to``). A method that chooses widths cleverly has to
beat this one to show that its choice mattered.

Departures: the mean is met per round, not only over the run.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

RANDOM_BUDGET = Composition(policy="random-budget")
