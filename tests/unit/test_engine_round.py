"""Planning, accounting and evaluation of a round, on one small traced model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from weakref import ref

import pytest
import torch

from widthwise.core.errors import DivergenceError
from widthwise.core.records import Dropped
from widthwise.engine.accounting import client_cost
from widthwise.engine.disk import Disk
from widthwise.engine.evaluator import Evaluator
from widthwise.engine.fold import finish_round
from widthwise.engine.round import Broadcast, assignments, dispatch, plan_round, remembered, sample_cohort
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.methods import build_method
from widthwise.studies.build import build
from widthwise.studies.config import RunConfig

CAPACITIES = [0.25, 0.5, 0.75, 1.0, 0.5, 0.25]


NOWHERE = Disk(Path("nowhere"))  # for clients that keep no state


@pytest.fixture(scope="module")
def fed():
    return build(
        RunConfig(
            task={
                "dataset": "digits",
                "model": "cnn-small",
                "norm": "batch",
                "clients": 6,
                "partition": {"kind": "iid"},
                "limit": 120,
                "test_limit": 100,
            },
            capacity={"list": CAPACITIES},
            method={"name": "heterofl"},
            training={"rounds": 3, "cohort": 4, "local_epochs": 2, "batch_size": 8, "momentum": 0.0},
            engine={"executor": "serial", "recalibration_samples": 60},
            seed=5,
        )
    )


def with_method(fed, **method):
    return replace(fed, method=build_method(method))


@pytest.fixture(scope="module")
def disk(tmp_path_factory):
    return Disk(tmp_path_factory.mktemp("run"))


def planned(fed, state=None, disk=NOWHERE):
    plan, state = plan_round(fed, state or ServerState.initial(fed))
    return list(assignments(fed, state, plan, disk)), state


def one_round(fed, disk, state=None):
    todo, state = planned(fed, state, disk)
    runner = ClientRunner(fed.task.train, fed.task.partition, fed.space, fed.method.objective)
    reports = [runner(Broadcast.of(state), (a,))[0] for a in todo]
    new, outcome = finish_round(fed, state, iter(todo), reports, disk)
    return todo, reports, new, outcome


def test_cohort_depends_on_seed_and_round_only(fed):
    cohorts = [sample_cohort(fed, t).client_ids for t in range(20)]
    assert cohorts == [sample_cohort(with_method(fed, name="fedavg"), t).client_ids for t in range(20)]
    assert len(set(cohorts)) > 3
    assert all(len(set(c)) == 4 and list(c) == sorted(c) for c in cohorts)
    assert {i for c in cohorts for i in c} == set(range(6))


def test_client_stream_is_its_own_in_every_round(fed):
    first, state = planned(fed)
    later, _ = planned(fed, replace(state, round_index=1))
    seeds = [a.seed for a in (*first, *later)]
    assert len(set(seeds)) == len(seeds)


def test_dispatch_sends_the_leading_channels_only(fed):
    todo, state = planned(fed)
    for a in todo:
        task = dispatch(fed.space, Broadcast.of(state), a)
        assert a.spec.width == CAPACITIES[a.client_id]
        kept = task.params["0.weight"].shape[0]
        assert kept == 16 * a.spec.width
        assert torch.equal(task.params["0.weight"], state.params["0.weight"][:kept])


def test_round_leaves_the_state_it_started_from_unchanged(fed, disk):
    start = ServerState.initial(fed)
    before = {name: value.clone() for name, value in start.params.items()}
    _, _, new, _ = one_round(fed, disk, start)
    assert all(torch.equal(start.params[name], before[name]) for name in before)
    assert not torch.equal(new.params["0.weight"], before["0.weight"])
    assert new.round_index == 1


def test_batch_norm_statistics_are_never_averaged(fed, disk):
    start = ServerState.initial(fed)
    _, reports, new, _ = one_round(fed, disk, start)
    assert new.buffers.keys() == start.buffers.keys()
    assert all(torch.equal(new.buffers[name], start.buffers[name]) for name in start.buffers)
    assert not set(start.buffers) & set(reports[0].delta)


def test_costs_are_those_of_the_slices(fed, disk):
    """HeteroFL sends and returns the slice; a step is three forward passes; SCAFFOLD doubles the bytes."""
    todo, reports, _, _ = one_round(fed, disk)
    for a, report in zip(todo, reports, strict=True):
        cost = client_cost(fed, a, report.num_examples)
        slice_bytes = 4 * sum(value.numel() for value in report.delta.values())
        assert cost.bytes_up == cost.bytes_down == slice_bytes
        assert cost.macs == 3 * fed.space.macs(a.spec) * report.num_examples * 2
    scaffold = with_method(fed, name="heterofl", objective="control-variates")
    todo, reports, _, _ = one_round(scaffold, disk)
    for a, report in zip(todo, reports, strict=True):
        cost = client_cost(scaffold, a, report.num_examples)
        assert cost.bytes_up == cost.bytes_down == 2 * 4 * sum(v.numel() for v in report.delta.values())


def test_distillation_counts_the_teacher(fed, disk):
    fjord = with_method(fed, name="fjord")
    todo, reports, _, _ = one_round(fjord, disk)
    below = [(a, r) for a, r in zip(todo, reports, strict=True) if a.spec.width < a.capacity]
    assert below
    for a, report in below:
        cost = client_cost(fjord, a, report.num_examples)
        assert a.context_spec.width == a.capacity
        assert cost.bytes_down == fed.space.upload_bytes(fed.space.nested(a.capacity))
        assert cost.bytes_up == fed.space.upload_bytes(a.spec)
        per_sample = 3 * fed.space.macs(a.spec) + fed.space.macs(a.context_spec)
        assert cost.macs == per_sample * report.num_examples * 2


def test_coverage_counts_what_the_cohort_trains(fed, disk):
    uniform = with_method(fed, name="uniform")
    _, _, state, outcome = one_round(uniform, disk)
    half = fed.space.num_params(fed.space.nested(0.5)) / fed.space.num_params(fed.space.full())
    assert outcome.coverage == outcome.ever_covered == pytest.approx(half)
    untouched = ServerState.initial(uniform).params["0.weight"][8:]
    assert torch.equal(state.params["0.weight"][8:], untouched)


def test_weighting_by_clients_counts_every_client_once(fed, disk):
    by_client = with_method(fed, name="fedavg", weighting="clients")
    start = ServerState.initial(by_client)
    _, reports, new, _ = one_round(by_client, disk, start)
    mean = torch.stack([r.delta["11.bias"].double() for r in reports]).mean(dim=0)
    torch.testing.assert_close(new.params["11.bias"].double(), start.params["11.bias"] + mean)


@pytest.mark.parametrize("place", [0, 1, 3])
@pytest.mark.parametrize("objective", ["plain", "control-variates"])
def test_dropped_client_leaves_no_trace(fed, tmp_path, objective, place):
    """The round is that of the others alone: same sums, states, estimates and costs."""
    method = with_method(fed, name="hasfl", objective=objective, adapt_every=1, warmup=1)
    start = replace(ServerState.initial(method), round_index=1)
    (tmp_path / "whole").mkdir()
    todo, reports, _, _ = one_round(method, Disk(tmp_path / "whole"), start)
    lost = Dropped(todo[place].client_id, 1, "shape", "not that of its slice")
    second = Dropped(todo[-1].client_id, 1, "duplicate", "it has answered already")
    answers = [*reports[:place], lost, *reports[place + 1 :], second]
    others = [pair for i, pair in enumerate(zip(todo, reports, strict=True)) if i != place]
    folders = [Disk(tmp_path / name) for name in ("dropped", "without")]
    for folder in folders:
        folder.path.mkdir()
    state = plan_round(method, start)[1]
    new, outcome = finish_round(method, state, iter(todo), answers, folders[0])
    told, found = zip(*others, strict=True)
    expected, without = finish_round(method, state, iter(told), found, folders[1])
    assert outcome.dropped == (lost, second)
    assert outcome.trained == without.trained
    assert (outcome.coverage, outcome.train_loss) == (without.coverage, without.train_loss)
    assert all(torch.equal(new.params[name], value) for name, value in expected.params.items())
    for name, tensors in expected.server.items():
        assert all(torch.equal(new.server[name][n], value) for n, value in tensors.items())
    assert new.clients == expected.clients
    assert lost.client_id not in new.clients
    assert new.measured
    assert new.estimates.tolist() == expected.estimates.tolist()
    assert new.policy.widths.tolist() == expected.policy.widths.tolist()


def test_server_step_names_the_parameter_that_is_not_finite(fed, disk):
    state = ServerState.initial(fed)
    todo, reports, _, _ = one_round(fed, disk, state)
    state.params["11.bias"][0] = float("inf")
    with pytest.raises(DivergenceError, match=r"round 0, stage server step: .*'11.bias' is not finite"):
        finish_round(fed, state, iter(todo), reports, disk)


class TestEvaluator:
    def test_it_recalibrates_batch_norm_of_the_slice(self, fed, disk):
        _, _, state, _ = one_round(fed, disk)
        evaluator = Evaluator(fed)
        spec = fed.space.nested(0.5)
        first = evaluator(state, spec)
        assert 0 <= first[0] <= 1
        module = evaluator._modules(spec)
        statistics = {n: b.clone() for n, b in module.named_buffers() if n.endswith("running_mean")}
        assert len(statistics) == 2
        assert all(value.abs().sum() > 0 for value in statistics.values())
        # By hand: the first convolution's outputs over the same samples, in the same batches.
        inputs = fed.task.train.batch(evaluator._sample)[0]
        outputs = torch.nn.functional.conv2d(
            inputs, state.params["0.weight"][:8], state.params["0.bias"][:8], padding=1
        )
        torch.testing.assert_close(
            statistics["1.running_mean"], outputs.mean(dim=(0, 2, 3)), rtol=1e-4, atol=1e-5
        )
        assert evaluator(state, spec) == first

    def test_it_refuses_a_loss_that_is_not_finite(self, fed):
        state = ServerState.initial(fed)
        state.params["11.weight"].fill_(1e38)
        with pytest.raises(DivergenceError, match="stage evaluation: the test loss is"):
            Evaluator(fed)(state, fed.space.full())

    def test_it_gives_one_accuracy_for_each_tier(self, fed):
        assert list(Evaluator(fed).tiers(ServerState.initial(fed))) == ["0.25", "0.5", "0.75", "1"]


def test_nothing_is_kept_of_an_assignment_whose_report_is_taken(fed):
    plan, state = plan_round(fed, ServerState.initial(fed))
    (one, *_) = assignments(fed, state, plan, NOWHERE)
    kept = []

    def many():
        for client in range(200):
            value = torch.zeros(3)
            kept.append(ref(value))
            yield replace(one, client_id=client, client_state={"control": {"w": value}})

    handed_out, told = remembered(many())
    for client in range(200):
        for _ in range(3 if client == 0 else int(client < 198)):  # three in flight
            next(handed_out)
        assert sum(one() is not None for one in kept) <= 1  # the generator's own
        answered = next(told)
        assert (answered.client_id, dict(answered.client_state)) == (client, {})
