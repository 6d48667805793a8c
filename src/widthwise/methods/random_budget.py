"""Random-budget: random widths at a given cost, the control for every method that chooses widths.

Source: arXiv 2608.07157, section 4.1 (baseline "Random-budget").

Widths are drawn anew each round within the capacities and shifted to an exact cost: a number (``budget``) or
the cost of each round of another run (``matched_to``), in widths (the paper's) or another ``currency``. A
method that chooses widths cleverly has to beat this one to show that its choice mattered. Where the rest of
the treatment's method is to stay as it is, write the treatment's configuration with a ``control:`` block,
which comes to the same policy.

Departures: the mean is met per round, not only over the run.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

RANDOM_BUDGET = Composition(policy="random-budget")
