"""Control variates against the identities and the known optimum of a quadratic federation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from widthwise.core.errors import ConfigError
from widthwise.training import OBJECTIVES, ModuleCache, TrainingConfig, train
from widthwise.training.control_variates import CLIENT, SERVER, count_holders

SCAFFOLD, PLAIN = OBJECTIVES["control-variates"].value(), OBJECTIVES["plain"].value()
STEPS, LR = 3, 0.2


def federate(toy, widths, objective, rounds, *, cohorts=None, **config):
    """Run rounds with the plain coordinate-wise mean; client i holds sample i alone.

    Returns the trajectory of w, and the final controls: the server's and each client's.
    """
    n, w = len(widths), toy.params["w"].clone()
    controls = [{"w": torch.zeros_like(w)} for _ in widths]
    server = {SERVER: {"w": torch.zeros_like(w)}}
    trajectory, cache = [w.clone()], ModuleCache(toy.space)
    for t in range(rounds):
        toy.params["w"].copy_(w)
        reports = []
        for i in cohorts[t] if cohorts else range(n):
            state = {CLIENT: controls[i], SERVER: server[SERVER]}
            task = toy.task(widths[i], state=state, client=i, lr=LR, local_epochs=STEPS, **config)
            reports.append(
                train(
                    task,
                    space=toy.space,
                    module_for=cache,
                    dataset=toy.data,
                    indices=torch.tensor([i]),
                    objective=objective,
                    criterion=lambda outputs, targets: outputs.mean(),
                )
            )
        total, count = torch.zeros_like(w), torch.zeros_like(w)
        for r in reports:
            toy.space.scatter_add_({"w": total}, r.delta, r.spec)
            toy.space.scatter_add_({"w": count}, {"w": torch.ones_like(r.delta["w"])}, r.spec)
            for name in objective.client_state:
                toy.space.scatter_add_(controls[r.client_id], r.state[name], r.spec)
        w = w + total / count.clamp(min=1)
        fold = objective.server(toy.space, server, count_holders(leading, np.array(widths)))
        for r in reports:
            fold.add_(r)
        server = fold.finish()
        trajectory.append(w.clone())
    return trajectory, server[SERVER]["w"], [c["w"] for c in controls]


def leading(width: float) -> dict[str, torch.Tensor]:
    """Return what nested slices of the four coordinates can reach."""
    return {"w": torch.arange(4) < 4 * width}


def optimum(toy, widths) -> torch.Tensor:
    """Return, for each coordinate, the minimum of the mean over the clients that hold it."""
    a, b = toy.data.inputs[: len(widths)].chunk(2, dim=1)
    held = torch.stack([torch.arange(4) < 4 * width for width in widths])
    return (held * a * b).sum(0) / (held * a).sum(0)


def test_server_control_is_the_mean_gradient_step_when_all_clients_take_part_at_full_width(make_toy) -> None:
    # Sum c_i+ = c_i - c + (x - y_i)/(K eta) over all N clients, with c = mean c_i: c+ = (x - x+)/(K eta).
    toy = make_toy("bowl")
    for rounds in (1, 2, 4):
        path, control, _ = federate(toy, [1.0] * 6, SCAFFOLD, rounds)
        toy.params["w"].zero_()
        torch.testing.assert_close(control, (path[-2] - path[-1]) / (STEPS * LR), rtol=1e-10, atol=1e-12)


def test_first_round_equals_plain_sgd(make_toy) -> None:
    ours, plain = (federate(make_toy("bowl"), [1.0] * 6, o, 1)[0][-1] for o in (SCAFFOLD, PLAIN))
    assert torch.equal(ours, plain)


@pytest.mark.parametrize("widths", [[1.0] * 6, [0.25, 0.5, 0.5, 0.75, 1.0, 1.0]], ids=["full", "slices"])
def test_control_variates_find_the_optimum_that_averaging_misses(make_toy, widths) -> None:
    # Clients differ in curvature, so the fixed point of averaged local SGD is biased; with controls every
    # coordinate converges to the optimum of the clients that hold it. With
    # K eta a between .3 and .9 the error shrinks by at least a quarter in each of 50 rounds: < 1e-6.
    best = optimum(make_toy("bowl"), widths)
    ours, plain = (federate(make_toy("bowl"), widths, o, 50)[0][-1] for o in (SCAFFOLD, PLAIN))
    assert (ours - best).abs().max() < 1e-6
    assert (plain - best).abs().max() > 1e-3


def test_controls_cancel_over_the_holders_of_each_coordinate(make_toy) -> None:
    widths = [0.25, 0.5, 0.5, 0.75, 1.0, 1.0]
    cohorts = [(0, 1, 4), (2, 3, 5), (0, 4, 5), (1, 2, 3)]
    _, control, clients = federate(make_toy("bowl"), widths, SCAFFOLD, 4, cohorts=cohorts)
    # Coordinate j is held by the clients with 4 * width > j: 6, 5, 3 and 2 of them.
    for j, holders in enumerate([range(6), range(1, 6), range(3, 6), range(4, 6)]):
        assert control[j] == pytest.approx(float(np.mean([clients[i][j] for i in holders])), rel=1e-12)
    assert not clients[0][1:].any()


def test_client_control_includes_weight_decay_as_part_of_the_step(make_toy) -> None:
    # One step from x: y = x - eta (g + d x), so c_i+ = (x - y)/eta = g + d x, with g = a (x - b).
    toy = make_toy("bowl")
    toy.params["w"].add_(2.0)
    a, b = toy.data.inputs[0].chunk(2)
    state = {name: {"w": torch.zeros(4, dtype=torch.float64)} for name in (CLIENT, SERVER)}
    report = train(
        toy.task(1.0, state=state, weight_decay=0.3),
        space=toy.space,
        module_for=ModuleCache(toy.space),
        dataset=toy.data,
        indices=torch.tensor([0]),
        objective=SCAFFOLD,
        criterion=lambda outputs, targets: outputs.mean(),
    )
    torch.testing.assert_close(report.state[CLIENT]["w"], a * (2 - b) + 0.3 * 2, rtol=1e-12, atol=0)


def test_count_holders_counts_clients_by_what_they_can_reach() -> None:
    counts = count_holders(leading, np.array([0.25, 0.5, 0.5, 0.0]))
    assert counts["w"].tolist() == [3, 2, 1, 1]  # nobody reaches the last two: 1 keeps the quotient at 0


def test_count_holders_counts_everybody_who_takes_part_when_slices_move_over_everything() -> None:
    counts = count_holders(lambda width: {"w": torch.ones(4, dtype=torch.bool)}, np.array([0.25, 0.5, 0.0]))
    assert counts["w"].tolist() == [2, 2, 2, 2]


def test_momentum_is_refused_unless_forced() -> None:
    config = TrainingConfig(momentum=0.9)
    with pytest.raises(ConfigError, match=r"momentum is 0\.9, but control variates .* 10 times.* to 0 \(or"):
        SCAFFOLD.check(config)
    SCAFFOLD.check(TrainingConfig(momentum=0))
    OBJECTIVES["control-variates"].value(force_momentum=True).check(config)
