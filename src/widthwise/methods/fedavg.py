"""FedAvg: everybody trains the full model, whatever its capacity.

Source: B. McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
AISTATS 2017, Algorithm 1.

The server adds the mean of the updates weighted by the clients' sample counts. It is the ceiling that the
sub-model methods are compared with, and ignores their constraint: a client whose capacity is 0.25 trains
at width 1.

Departures: none in the rule. The optimizer of a client is the run's (SGD with momentum by default).
"""

from __future__ import annotations

from widthwise.methods.method import Composition

FEDAVG = Composition(policy="full")
