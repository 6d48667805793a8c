"""What a study will cost, before it is started: simulated widths, counted operations, a short timing."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from widthwise.core.device import working_on
from widthwise.core.errors import InputError, WidthwiseError
from widthwise.core.records import SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.core.threads import one_thread
from widthwise.engine import Federation, is_run, load_run
from widthwise.engine.costs import slice_cost
from widthwise.engine.evaluator import Evaluator
from widthwise.engine.round import Assignment, Broadcast, allocate, dispatch, sample_cohort
from widthwise.engine.state import ServerState
from widthwise.slicing import Moment
from widthwise.studies.build import build
from widthwise.studies.control import resolve
from widthwise.studies.runner import finished
from widthwise.studies.study import PlannedRun
from widthwise.training import OBJECTIVES, ModuleCache, train

TIMED_BATCHES = 2


@dataclass(frozen=True)
class Estimate:
    """What one run will cost.

    Attributes:
        state: Whether its folder holds all of it, a part, or nothing yet.
        rounds_done: Rounds that need not be trained again.
        mean_width: Mean width over clients and rounds.
        macs: Multiply-accumulates of all training.
        bytes: Sent and received by all clients.
        seconds: Wall-clock time of the whole run on one core.
        seconds_left: The same for the rounds that are missing.
        epsilon: What the whole run spends of its privacy; None where it promises none.
        problem: Why nothing could be estimated, and the run cannot start; the numbers are 0 then.
    """

    state: Literal["finished", "started", "new"] = "new"
    rounds_done: int = 0
    mean_width: float = 0.0
    macs: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    seconds_left: float = 0.0
    epsilon: float | None = None
    problem: str | None = None


def estimate_study(planned: Sequence[PlannedRun], data_dir: Path | None = None) -> list[Estimate]:
    """Estimate every run of a study.

    Widths: the policy is run over all rounds on the run's own cohorts and capacities, with every client's
    heterogeneity estimate at 1 (the estimates themselves come only from training). A run that is matched to
    another one costs what that one costs. Multiply-accumulates and bytes: counted for these widths, with as
    many samples for each client as the first seed's partition gives it. Time: a client's step is timed at
    each tier on one core and scaled by the counted operations between the tiers; evaluation likewise.

    Args:
        planned: The runs, each after the one that it is matched to.
        data_dir: Folder of local data files.

    Returns:
        One estimate for each run, in order.
    """
    workloads: dict[str, _Workload | str] = {}
    found: dict[Path, Estimate] = {}
    for run in planned:
        with contextlib.suppress(WidthwiseError):  # its source is not finished yet
            run = replace(run, config=resolve(run.config))
        if run.source in found:
            whole = found[run.source]
        else:
            key = _work_key(run)
            if key not in workloads:
                try:
                    workloads[key] = _Workload(build(run.config, data_dir))
                except InputError as error:  # data that are not there: the other tasks can be estimated
                    workloads[key] = str(error)
            work = workloads[key]
            whole = Estimate(problem=work) if isinstance(work, str) else work.estimate(run)
        found[run.path] = _rest(run, whole)
    return [found[run.path] for run in planned]


def _work_key(run: PlannedRun) -> str:
    """Return what decides the time of a step: runs that share it are timed once."""
    config = run.config.to_dict()
    where = [config["engine"][key] for key in ("precision", "device")]
    return json.dumps([config["task"], config["training"]["batch_size"], where])


def _rest(run: PlannedRun, whole: Estimate) -> Estimate:
    rounds = run.config.training.rounds
    if finished(run):
        return replace(whole, state="finished", rounds_done=rounds, seconds_left=0.0)
    done = min(len(load_run(run.path).rounds), rounds) if is_run(run.path) else 0
    left = whole.seconds * (1 - done / rounds)
    return replace(whole, state="started" if done else "new", rounds_done=done, seconds_left=left)


class _Workload:
    """A task that is loaded and traced once, with the measured time of a step at each tier."""

    def __init__(self, fed: Federation) -> None:
        self._fed, self._device = fed, fed.own_device
        self._data = fed.task.train.to(self._device)
        plain = OBJECTIVES["plain"].value()
        self._timed = replace(fed, method=replace(fed.method, objective=plain))
        with one_thread(), working_on(self._device):
            state = ServerState.initial(self._timed)
            seconds = {tier: self._seconds_of_a_sample(state, tier) for tier in fed.task.tiers}
            start = time.perf_counter()
            Evaluator(fed)(state, fed.space.full())
            self._evaluation = time.perf_counter() - start
        macs = [3.0 * fed.space.macs(fed.space.nested(tier)) for tier in seconds]
        self._macs, self._seconds = np.array(macs), np.array(list(seconds.values()))

    def _seconds_of_a_sample(self, state: ServerState, width: float) -> float:
        fed = self._timed
        spec = fed.space.nested(width)
        client = int(fed.task.partition.sizes().argmax())
        indices = fed.task.partition.client(client)[: TIMED_BATCHES * fed.training.batch_size]
        assignment = Assignment(
            client_id=client,
            round_index=0,
            samples=len(indices),
            spec=spec,
            context_spec=spec,
            capacity=1.0,
            client_state={},
            config=replace(fed.training.local(0, fed.engine.precision), local_epochs=1),
            seed=0,
        )
        modules, fastest = ModuleCache(fed.space, self._device), np.inf
        broadcast = Broadcast.of(state).on(self._device)
        for _ in range(3):  # the first pass compiles kernels; the fastest was disturbed least
            start = time.perf_counter()
            train(
                dispatch(fed.space, broadcast, assignment),
                space=fed.space,
                module_for=modules,
                dataset=self._data,
                indices=indices,
                objective=fed.method.objective,
            )
            fastest = min(fastest, time.perf_counter() - start)
        return float(fastest) / len(indices)

    def estimate(self, run: PlannedRun) -> Estimate:
        """Simulate the run's allocation and add up what it costs."""
        config, space = run.config, self._fed.space
        capacities = config.capacity.draw(config.task.clients, SeedTree(config.seed))
        fed = replace(
            self._fed,
            task=replace(self._fed.task, capacities=capacities, tiers=config.capacity.levels()),
            method=config.built_method,
            training=config.training,
            engine=config.engine,
            seed=config.seed,
            compression=config.compression,
            privacy=config.privacy,
        )
        policy, estimator = fed.method.policy, fed.method.estimator
        params = dict(fed.task.build_model(config.seed).named_parameters())
        moment = Moment(0, 0, fed.seeds, params)

        @cache
        def example(width: float) -> SliceSpec:
            """Return a slice of a width; what it costs is the same for every client and round."""
            return fed.method.selector.select(space, width, moment)

        state = policy.init(fed.population)
        widths: list[float] = []
        macs = sent = seconds = 0.0
        for t in range(fed.training.rounds):
            cohort = sample_cohort(fed, t)
            given, state = allocate(fed, state, cohort)
            for i, width in given.items():
                widths.append(width)
                if not width:
                    continue
                spec = example(width)
                context = example(fed.method.objective.context_width(width, float(capacities[i])))
                samples = len(fed.task.partition.client(i)) * fed.training.local_epochs
                cost = slice_cost(space, fed.method.objective, spec, context, samples, fed.compression)
                macs, sent = macs + cost.macs, sent + cost.bytes_up + cost.bytes_down
                step = fed.method.objective.training_macs(space, spec, context)
                seconds += samples * self._seconds_at(step)
            if estimator is not None and estimator.due(t):
                state = policy.observe(state, fed.population, np.ones(len(capacities)))
        evaluations = -(-fed.training.rounds // fed.engine.eval_every) + len(fed.task.tiers)
        seconds += evaluations * self._evaluation
        spent = fed.epsilon(fed.training.rounds)
        return Estimate("new", 0, float(np.mean(widths)), macs, sent, seconds, seconds, epsilon=spent)

    def _seconds_at(self, macs: float) -> float:
        """Return the seconds of a sample whose training step takes so many multiply-accumulates."""
        if macs > self._macs[-1]:  # an objective that does more than a plain step at full width
            return float(self._seconds[-1] * macs / self._macs[-1])
        return float(np.interp(macs, self._macs, self._seconds))
