"""Exclude-the-weak: devices that cannot hold the model stay out, the others train it.

Source: widthwise, a control. It is what federated averaging does with a fleet of which some devices are too
small; Diao et al. 2021 and Horvath et al. 2021 name it as the practice that sub-models replace.

Cohorts are the same as for every other method and the weak clients in them do nothing, so fewer clients train
in a round; a round whose cohort has no strong client changes nothing. Every coordinate is trained, but the
data of the weak is not: what a sub-model method gains over this one is what that data is worth.

Departures: none.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

EXCLUDE_THE_WEAK = Composition(policy="strong-only")
