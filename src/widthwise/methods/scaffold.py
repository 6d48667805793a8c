"""SCAFFOLD: full models with control variates against client drift.

Source: S. P. Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML
2020, Algorithm 1 with option II.

Each local step adds ``c - c_i`` to the gradient; controls start at 0. The rule assumes plain local SGD: with
momentum the control is too large by up to ``1 / (1 - momentum)``, so ``training.momentum`` must be 0.

Departures: server step size 1. On a sub-model (``policy: capacity``) controls are sliced like the
parameters, and a coordinate's server control moves by the clients that hold it.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

SCAFFOLD = Composition(policy="full", objective="control-variates")
