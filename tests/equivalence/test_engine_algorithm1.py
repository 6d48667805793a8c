"""Three rounds of the engine against Algorithm 1 of the HAS-FL paper, transcribed line by line.

The transcription shares no code with the slicing, allocation, aggregation and estimation rooms: it trains
masked full-size matrices and writes every formula out. It takes from the package only what Algorithm 1
leaves to chance: initial weights, cohorts and the order of samples.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from widthwise.core.seeds import SeedTree
from widthwise.engine.disk import Disk
from widthwise.engine.fold import finish_round
from widthwise.engine.round import Broadcast, assignments, plan_round, sample_cohort
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig
from widthwise.training.batches import epoch_batches

ROUNDS, SEED, CLIENTS, COHORT = 3, 7, 8, 5
LR, DECAY, MOMENTUM, WEIGHT_DECAY, CLIP, BATCH, EPOCHS = 0.05, 0.9, 0.9, 1e-3, 2.0, 8, 2
P_MIN, GAMMA, BETA, EPS = 0.4, 0.25, 0.6, 1e-12
CAPACITIES = [0.3, 0.5, 1.0, 0.75, 0.25, 0.5, 1.0, 0.75]
HIDDEN = (12, 9)


def config(guarantee: bool) -> RunConfig:
    return RunConfig(
        task={
            "dataset": "digits",
            "model": {"name": "mlp", "hidden": list(HIDDEN)},
            "clients": CLIENTS,
            "partition": {"kind": "dirichlet", "alpha": 0.5},
            "limit": 300,
        },
        capacity={"list": CAPACITIES},
        method={
            "name": "hasfl",
            "p_min": P_MIN,
            "gamma": GAMMA,
            "beta": BETA,
            "adapt_every": 1,
            "warmup": 0,
            "normalise_every": 2,
            "guarantee": guarantee,
            "estimator": "restricted",
        },
        training={
            "rounds": ROUNDS,
            "cohort": COHORT,
            "local_epochs": EPOCHS,
            "batch_size": BATCH,
            "lr": LR,
            "lr_decay": DECAY,
            "momentum": MOMENTUM,
            "weight_decay": WEIGHT_DECAY,
            "clip_norm": CLIP,
        },
        engine={"executor": "serial"},
        seed=SEED,
    )


def masks(p: float) -> list[torch.Tensor]:
    """Algorithm 2 for the MLP: W1, b1, W2, b2, W3, b3 as 0/1 masks."""
    k1, k2 = math.ceil(p * HIDDEN[0] - 1e-9), math.ceil(p * HIDDEN[1] - 1e-9)
    shapes = [(HIDDEN[0], 64), (HIDDEN[0],), (HIDDEN[1], HIDDEN[0]), (HIDDEN[1],), (10, HIDDEN[1]), (10,)]
    m = [torch.zeros(s) for s in shapes]
    m[0][:k1, :] = 1
    m[1][:k1] = 1
    m[2][:k2, :k1] = 1
    m[3][:k2] = 1
    m[4][:, :k2] = 1
    m[5][:] = 1
    return m


def forward(w: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    h = torch.relu(x.flatten(1) @ w[0].T + w[1])
    h = torch.relu(h @ w[2].T + w[3])
    return h @ w[4].T + w[5]


def local_sgd(fed, w, m, client, t):
    """Lines 8-14: masked SGD with momentum, weight decay and clipping, on full-size matrices."""
    w_i = [(a * b).clone() for a, b in zip(w, m, strict=True)]
    velocity = [None] * len(w_i)
    seeds = SeedTree(fed.seeds.at("client", t, client).seed())
    lr = LR * DECAY**t
    for epoch in range(EPOCHS):
        order = seeds.at("shuffle", epoch).torch()
        for batch in epoch_batches(fed.task.partition.client(client), BATCH, order):
            x, y = fed.task.train.batch(batch)
            leaves = [v.clone().requires_grad_() for v in w_i]
            grads = torch.autograd.grad(cross_entropy(forward(leaves, x), y), leaves)
            grads = [g * b for g, b in zip(grads, m, strict=True)]
            norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in grads))
            scale = min(1.0, CLIP / (norm + 1e-6))
            for j, g in enumerate(grads):
                g = g * scale + WEIGHT_DECAY * w_i[j]
                velocity[j] = g if velocity[j] is None else MOMENTUM * velocity[j] + g
                w_i[j] = w_i[j] - lr * velocity[j]
    return [a - b * c for a, b, c in zip(w_i, m, w, strict=True)]


def transcription(fed, guarantee):
    """Algorithm 1. Yields w, H~ and p after each round."""
    model = fed.task.build_model(SEED)
    w = [p.detach().clone() for p in model.parameters()]
    h = np.ones(CLIENTS)
    p = np.array(CAPACITIES)
    for t in range(ROUNDS):
        cohort = sample_cohort(fed, t).client_ids
        n = {i: len(fed.task.partition.client(i)) for i in cohort}
        m = {i: masks(p[i]) for i in cohort}
        delta = {i: local_sgd(fed, w, m[i], i, t) for i in cohort}
        dbar = []
        for j in range(len(w)):  # line 18
            top = sum(n[i] * m[i][j].double() * delta[i][j].double() for i in cohort)
            bottom = sum(n[i] * m[i][j].double() for i in cohort)
            dbar.append(torch.where(bottom > 0, top / bottom.clamp(min=1), torch.zeros_like(top)))
        w = [(a.double() + d).float() for a, d in zip(w, dbar, strict=True)]  # line 19
        for i in cohort:  # lines 21-24
            parts = range(len(w))
            num = sum(float(((m[i][j] * (delta[i][j].double() - dbar[j])) ** 2).sum()) for j in parts)
            den = sum(float(((m[i][j] * dbar[j]) ** 2).sum()) for j in parts)
            h[i] = BETA * h[i] + (1 - BETA) * num / (den + EPS)
        if t > 0 and t % 2 == 0:
            h = h / h.mean()
        p = np.minimum(CAPACITIES, P_MIN + GAMMA * h / (h.mean() + EPS))  # lines 25-28
        if guarantee:  # line 29
            top_tier = np.array(CAPACITIES) == max(CAPACITIES)
            p[top_tier] = np.array(CAPACITIES)[top_tier]
        yield [v.clone() for v in w], h.copy(), p.copy()


def engine_round(fed, runner, state, disk):
    plan, state = plan_round(fed, state)
    todo = list(assignments(fed, state, plan, disk))
    answers = (runner(Broadcast.of(state), (a,))[0] for a in todo)
    return finish_round(fed, state, iter(todo), answers, disk)


@pytest.mark.parametrize("guarantee", [True, False])
def test_engine_equals_algorithm_1_over_three_rounds(guarantee, tmp_path):
    fed = build(config(guarantee))
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    state = ServerState.initial(fed)
    for w, h, p in transcription(fed, guarantee):
        state, _ = engine_round(fed, runner, state, Disk(tmp_path))
        for ours, theirs in zip(state.params.values(), w, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=2e-6)
        np.testing.assert_allclose(state.estimates, h, rtol=1e-3)
        np.testing.assert_allclose(state.policy.widths, p, rtol=1e-3)
    assert state.policy.widths.min() < state.policy.widths.max()
    # The widths really moved away from the capacities, so the adaptation was exercised.
    assert not np.allclose(state.policy.widths, CAPACITIES)


def test_full_width_full_cohort_equals_fedavg_by_hand(tmp_path):
    """w(t+1) = sum_i n_i w_i / sum_i n_i with every client at width 1 and in every cohort."""
    base = config(True).to_dict()
    base["capacity"] = {"tiers": [1.0], "shares": [1.0]}
    base["method"] = {"name": "heterofl"}
    base["training"] = {**base["training"], "cohort": CLIENTS, "rounds": 1}
    fed = build(RunConfig(**base))
    start = [p.detach().clone() for p in fed.task.build_model(SEED).parameters()]
    full = masks(1.0)
    sizes = [len(fed.task.partition.client(i)) for i in range(CLIENTS)]
    local = [local_sgd(fed, start, full, i, 0) for i in range(CLIENTS)]
    expected = [
        sum(n * (start[j] + d[j]).double() for n, d in zip(sizes, local, strict=True)) / sum(sizes)
        for j in range(len(start))
    ]
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    state, outcome = engine_round(fed, runner, ServerState.initial(fed), Disk(tmp_path))
    assert outcome.coverage == 1.0
    for ours, theirs in zip(state.params.values(), expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-6)
