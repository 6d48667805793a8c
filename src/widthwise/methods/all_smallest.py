"""All-smallest: everybody trains what the weakest device can.

Source: widthwise, a control.

The floor of every allocation: no width beyond the smallest tier is ever trained. ``uniform`` with its width
chosen by the fleet. What another method gains over this one is what the larger devices are worth; read it
on the sub-model of the smallest tier too, since the coordinates beyond it keep their first values and still
take part in every forward pass of the full model (``widthwise coverage`` shows how many).

Departures: none.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

ALL_SMALLEST = Composition(policy="smallest-tier")
