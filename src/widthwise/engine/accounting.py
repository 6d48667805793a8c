"""What a round costs, client by client, and whether a run kept its budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from widthwise.engine.costs import ClientCost, slice_cost
from widthwise.engine.federation import Federation
from widthwise.engine.round import Assignment


def client_cost(fed: Federation, assignment: Assignment, num_examples: int) -> ClientCost:
    """Return what a client of so many samples sent, received and computed (see ``slice_cost``)."""
    samples = num_examples * assignment.config.local_epochs
    specs = assignment.spec, assignment.context_spec
    return slice_cost(fed.space, fed.method.objective, *specs, samples, fed.compression)


def privacy_summary(fed: Federation) -> dict[str, Any]:
    """Return what a run that is over has promised, and how it was counted."""
    assert fed.privacy is not None
    return {
        "epsilon": fed.epsilon(fed.training.rounds),
        **fed.privacy.model_dump(),
        "neighbours": "replace one client",
        "clients": fed.task.num_clients,
        "cohort": fed.training.cohort,
    }


def budget_summary(fed: Federation, rounds: Sequence[dict[str, Any]], owed: float) -> dict[str, Any] | None:
    """Return how well a run kept its budget, or None where its policy had none.

    Errors are relative to the mean budget of a round: ``largest_error`` and ``mean_error`` over rounds,
    ``total_error`` of the whole run (positive: it spent too much). ``met`` says whether the run ends within
    one step of one client of what it should have spent.

    Args:
        fed: What was run.
        rounds: The lines of ``rounds.jsonl``.
        owed: What the policy still owes at the end, summed over clients.
    """
    budgets = [r["budget"] for r in rounds if "budget" in r]
    if not budgets:
        return None
    total = sum(budgets)
    spent = [r["spent"] for r in rounds]
    differences = [s - b for s, b in zip(spent, budgets, strict=True)]
    mean = total / len(budgets) or 1.0  # a treatment that trained nobody has no scale
    rounding = 1e-9 * total * fed.training.cohort
    return {
        "currency": fed.method.policy.currency_of_budget,
        "matched_to": fed.config["method"].get("matched_to"),
        "budget": total / len(budgets),
        "spent": sum(spent) / len(budgets),
        "largest_error": max(map(abs, differences)) / mean,
        "mean_error": sum(map(abs, differences)) / len(budgets) / mean,
        "total_error": sum(differences) / len(budgets) / mean,
        "met": abs(owed) <= fed.population.costs.largest_step + rounding,
    }
