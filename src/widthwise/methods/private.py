"""Which methods can run under privacy: those whose clients reach the model through the noisy sum alone."""

from __future__ import annotations

from collections.abc import Iterator

from widthwise.core.traits import Trait
from widthwise.methods.build import reacts
from widthwise.methods.method import Method


def leaks(method: Method) -> Iterator[str]:
    """Yield a message for each part of a method by which a client would reach the model past the noise.

    What is released is the sum of clipped updates with noise. All else that shapes the model must be known
    without the data: how much an update counts, the denominators, and which client trains which slice.
    """
    parts = method.parts
    if parts.weighting != "clients":
        yield (
            f"method.weighting is {parts.weighting!r}, but under privacy every client counts once: weights "
            "by samples would tell how many it has. Write method.weighting: clients."
        )
    objective = method.objective
    if states := (*objective.client_state, *objective.server_state):
        yield (
            f"method.objective is {parts.objective!r}, but privacy covers the update alone, and its "
            f"{states[0]} would reach the model without noise. Choose another objective."
        )
    if reacts(type(method.policy)):
        yield (
            f"method.policy is {parts.policy!r}, but it follows what is measured on single updates, which "
            "carry no noise. Choose a policy that follows capacities."
        )
    if method.policy.shares_a_budget:
        yield (
            f"method.policy is {parts.policy!r}, but the widths of its cohort depend on each other, so that "
            "they tell who takes part. Choose a policy that follows capacities."
        )
    if Trait.COMMON not in method.selector.traits:
        yield (
            f"method.selector is {parts.selector!r}, but privacy needs {Trait.COMMON}: how many clients hold "
            "a coordinate must not depend on the cohort. Choose another selector, or shared_draw."
        )
