"""Uniform: one fixed width for everybody, cut to the capacity of those who cannot train it.

Source: arXiv 2608.07157, section 4.1 (baseline "Uniform", width 0.5).

With the default width nobody ever trains the coordinates beyond it: they keep their first values and still
take part in every forward pass of the full model (Proposition 3 of the same paper). ``widthwise coverage``
shows how many.

Departures: none.
"""

from __future__ import annotations

from widthwise.methods.method import Composition

UNIFORM = Composition(policy="fixed")
