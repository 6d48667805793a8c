"""The round loop: the one place where time passes."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from widthwise.core.allocator import UnusedMemory, keep_freed_memory
from widthwise.core.errors import RunError
from widthwise.core.records import RoundRecord
from widthwise.core.recycled import Recycled
from widthwise.core.traits import Trait
from widthwise.engine.accounting import budget_summary, privacy_summary
from widthwise.engine.client_rows import client_rows
from widthwise.engine.disk import Disk
from widthwise.engine.evaluator import Evaluator
from widthwise.engine.executors import EXECUTORS, Executor, RepeatRound
from widthwise.engine.federation import Federation
from widthwise.engine.files import write_text
from widthwise.engine.fold import RoundOutcome, finish_round
from widthwise.engine.folder import ERROR, RunFolder
from widthwise.engine.round import (
    Broadcast,
    RoundPlan,
    assignments,
    listed_clients,
    plan_round,
    remembered,
)
from widthwise.engine.runs import RunResult, load_run
from widthwise.engine.sinks import Sink, TensorBoardSink
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner


def run_federation(
    fed: Federation,
    out: Path,
    *,
    resume: bool = False,
    sinks: Sequence[Sink] = (),
    executor: Executor | None = None,
) -> RunResult:
    """Run a federation to its last round and return the stored run.

    The result depends on the configuration and the seed alone: not on the executor, on the number of
    workers, or on whether the run was interrupted and resumed.

    Args:
        fed: What to run.
        out: The run folder.
        resume: Go on with the run that ``out`` holds; a finished run is only read.
        sinks: Further receivers of the run's events.
        executor: Where clients are trained; by default as ``engine.executor`` says.

    Returns:
        The run as ``load_run`` reads it.

    Raises:
        CheckpointError: if ``out`` holds something else, or its checkpoint is damaged.
        RunError: if a client fails or training diverges; everything up to the last finished round is
            saved and ``error.txt`` in the run folder holds the traceback.
        KeyboardInterrupt: on Ctrl-C, after everything up to the last finished round has been saved.
    """
    keep_freed_memory()
    # These first: they refuse a device or package that is not there, and then nothing must have been written.
    sinks = [*sinks, *([TensorBoardSink(out)] if fed.engine.tensorboard else [])]
    executor = executor or _executor(fed)
    folder = RunFolder(out)
    with contextlib.closing(folder):
        return _run(fed, folder, resume, sinks, executor)


def _executor(fed: Federation) -> Executor:
    runner = ClientRunner(
        fed.task.train,
        fed.task.partition,
        fed.space,
        fed.method.objective,
        fed.engine.stack,
        fed.devices,
        fed.compression,
    )
    workers = min(fed.engine.workers, fed.training.cohort)  # more would have nothing to do
    return EXECUTORS[fed.engine.executor].value(runner, workers, fed.engine.address)


def _run(
    fed: Federation, folder: RunFolder, resume: bool, sinks: Sequence[Sink], executor: Executor
) -> RunResult:
    out, state = folder.path, folder.open(fed, resume)
    if state is not None and folder.complete:
        return load_run(out)
    state = state or ServerState.initial(fed)
    evaluator, unused, recycled = Evaluator(fed), UnusedMemory(), Recycled()
    for sink in sinks:
        sink.on_start(fed, state.round_index)
    try:
        with executor:
            while state.round_index < fed.training.rounds:
                new, record, rows = _one_round(fed, state, executor, evaluator, folder.disk, recycled)
                folder.append(record, rows)
                state = new
                unused.give_back()
                for sink in sinks:
                    sink.on_round(record)
                if _due(state.round_index, fed.engine.checkpoint_every, fed.training.rounds):
                    folder.save(state, fed)
    except RunError as error:
        folder.save(state, fed)
        write_text(out / ERROR, "".join(traceback.format_exception(error)))
        raise
    except KeyboardInterrupt:
        folder.save(state, fed)
        raise
    folder.save_model(evaluator.calibrated(state, fed.space.full()))
    result = _summary(fed, state, folder.read_rounds())
    folder.finish(result)
    for sink in sinks:
        sink.on_end(result)
    return load_run(out)


def _due(rounds_done: int, every: int, rounds: int) -> bool:
    return rounds_done % every == 0 or rounds_done == rounds


def _one_round(
    fed: Federation,
    state: ServerState,
    executor: Executor,
    evaluator: Evaluator,
    disk: Disk,
    recycled: Recycled,
) -> tuple[ServerState, RoundRecord, pa.Table]:
    start = time.perf_counter()
    plan, state = plan_round(fed, state)
    assigned = state.policy.widths
    state, outcome = _trained(fed, state, plan, executor, disk, recycled)
    record = _record(fed, state, plan, outcome)
    record = _evaluated(fed, state, evaluator, record)
    rows = client_rows(fed, state, assigned, plan, outcome)
    return state, replace(record, seconds=time.perf_counter() - start), rows


def _trained(
    fed: Federation,
    state: ServerState,
    plan: RoundPlan,
    executor: Executor,
    disk: Disk,
    recycled: Recycled,
) -> tuple[ServerState, RoundOutcome]:
    while True:
        handed_out, told = remembered(assignments(fed, state, plan, disk))
        with contextlib.suppress(RepeatRound):
            answers = executor.run(Broadcast.of(state), handed_out)
            return finish_round(fed, state, told, answers, disk, recycled)


def _record(fed: Federation, state: ServerState, plan: RoundPlan, outcome: RoundOutcome) -> RoundRecord:
    costs = [one.cost for one in outcome.trained]
    return RoundRecord(
        round=plan.cohort.round_index,
        accuracy=None,
        loss=None,
        mean_width=sum(one.width for one in outcome.trained) / len(plan.cohort.client_ids),
        coverage=outcome.coverage,
        bytes_up=sum(c.bytes_up for c in costs),
        bytes_down=sum(c.bytes_down for c in costs),
        macs=sum(c.macs for c in costs),
        seconds=0.0,
        train_loss=outcome.train_loss,
        ever_covered=outcome.ever_covered,
        estimate_mean=float(state.estimates.mean()) if state.measured else None,
        budget=state.policy.extra.get("budget"),
        spent=state.policy.extra.get("spent"),
        params=sum(c.params for c in costs) if fed.compression else None,
        epsilon=fed.epsilon(state.round_index),
        clipped=outcome.clipped,
        dropped=Counter(one.kind for one in outcome.dropped) or None,
    )


def _evaluated(fed: Federation, state: ServerState, evaluator: Evaluator, record: RoundRecord) -> RoundRecord:
    done, last = state.round_index, state.round_index == fed.training.rounds
    if _due(done, fed.engine.eval_every, fed.training.rounds):
        accuracy, loss = evaluator(state, fed.space.full())
        record = replace(record, accuracy=accuracy, loss=loss)
    every = fed.engine.eval_tiers_every
    if last or (every and done % every == 0):
        record = replace(record, tier_accuracy=evaluator.tiers(state))
    return record


def _summary(fed: Federation, state: ServerState, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    evaluated = [r for r in rounds if r["accuracy"] is not None]
    best = max(evaluated, key=lambda r: r["accuracy"])
    listed = list(listed_clients(fed))
    control = budget_summary(fed, rounds, state.policy.extra.get("carry", 0.0))
    return {
        "name": fed.label,
        "method": fed.method.name,
        "seed": fed.seed,
        "rounds": len(rounds),
        "best_accuracy": best["accuracy"],
        "best_round": best["round"],
        "final_accuracy": rounds[-1]["accuracy"],
        "final_loss": rounds[-1]["loss"],
        "mean_width": sum(r["mean_width"] for r in rounds) / len(rounds),
        "width_accuracy": rounds[-1]["tier_accuracy"],
        "ever_covered": rounds[-1]["ever_covered"],
        "bytes_up": sum(r["bytes_up"] for r in rounds),
        "bytes_down": sum(r["bytes_down"] for r in rounds),
        "macs": sum(r["macs"] for r in rounds),
        "compute": "dense" if Trait.DENSE in fed.method.selector.traits else "masked",
        "seconds": sum(r["seconds"] for r in rounds),
        "config_hash": fed.config_hash,
        "widths": state.policy.widths[listed].tolist(),
        "estimates": state.estimates[listed].tolist() if state.measured else None,
        **({"control": control} if control else {}),
        **({"privacy": privacy_summary(fed)} if fed.privacy else {}),
    }
