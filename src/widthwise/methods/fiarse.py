"""FIARSE: each client trains the weights of largest magnitude, in the full module under a mask.

Source: F. Wu et al., "FIARSE: Model-Heterogeneous Federated Learning via Importance-Aware Submodel
Extraction", NeurIPS 2024, arXiv 2407.19389.

Masked compute: whatever its width, a client runs the full model and pays the multiply-accumulates of the
full model; only its traffic shrinks. Compare it with the other methods by bytes, not by MACs. The width p
stands for as many weights as the dense sub-model of width p has, so that both send the same number of values.

Departures: sizes are widths, not shares of the parameters; a coordinate's update is the mean, weighted by
sample counts, over the clients whose mask holds it (``weighting: clients`` for plain means), where the
released code leaves out clients whose update is exactly 0; vectors are never masked; the optimizer is the
run's, where the paper's is plain SGD (``training.momentum: 0``). Tiers are evaluated under their masks.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

FIARSE = Composition(policy="capacity", selector="magnitude")
