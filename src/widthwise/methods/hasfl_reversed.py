"""HAS-FL the wrong way round: the least divergent client gets most.

Source: widthwise, a control for arXiv 2608.07157, equation 6.

Everything is that of ``hasfl``, but the estimates are mirrored before they become widths: the client of rank
k of N gets what equation 6 would give to the client of rank N + 1 - k, before caps and guarantee. If
divergence told which clients need width, this method would have to lose to ``hasfl``, and to random widths at
its own cost.

Departures: the direction.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

HASFL_REVERSED = Composition(policy="adaptive-reversed")
