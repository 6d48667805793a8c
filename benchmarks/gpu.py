"""A GPU in less than six minutes: does it compute what the CPU computes, and how fast?

* equality: rounds of every objective on the device against the CPU, as a share of what the rounds changed;
  and whether the device repeats itself, and several processes it, to the bit.
* clients: samples a second for the paper's network at four widths in fp32 and bf16, and which share that is
  of a large matrix product's speed; beside it a bare loop (two layouts in memory; on CUDA also replayed as a
  graph, which says what launching kernels costs).
* stacks: clients trained as batched products, and clients alone; also with convolutions, which the engine
  does not stack.
* processes: samples a second of a mixed cohort by workers on the device.
* protocol: rounds of the paper's CIFAR-10 setting, and what 200 would take; on real images where
  ``WIDTHWISE_DATA`` has them, else on patterns of the same size.

Exits with code 2 where torch finds no CUDA device, and with 1 if a part failed or the device computes
something else than the CPU. ``--device cpu --tiny`` runs every part in miniature: a test of this file.

    python benchmarks/gpu.py [--out FILE] [--device cuda:0] [--seconds 330]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_parts.bare import BareLoop
from gpu_parts.work import TIERS, TINY, Bench, Scale, federation, images, skewed

from widthwise.core.device import working_on
from widthwise.core.errors import ConfigError
from widthwise.core.params import Params
from widthwise.core.records import ClientTask
from widthwise.engine import EngineConfig, Federation, run_federation
from widthwise.engine.devices import devices
from widthwise.engine.disk import Disk
from widthwise.engine.environment import environment
from widthwise.engine.executors import EXECUTORS
from widthwise.engine.fold import finish_round
from widthwise.engine.round import Broadcast, assignments, plan_round, remembered
from widthwise.engine.state import ServerState
from widthwise.engine.worker import ClientRunner
from widthwise.slicing import trace
from widthwise.studies import RunConfig, build
from widthwise.tasks import ListedPartition, resolve_model
from widthwise.training import ModuleCache, TrainingConfig, train, train_stack
from widthwise.training.plain import Plain

METHODS: dict[str, dict[str, Any]] = {
    "plain": {"name": "heterofl"},
    "proximal": {"name": "fedprox", "policy": "capacity"},
    "control variates": {"name": "scaffold", "policy": "capacity"},
    "distillation, round": {"name": "fjord"},
    "distillation, step": {"name": "fjord", "policy": "capacity", "draw": "step"},
    "masks": {"name": "fiarse"},
    "rolling windows": {"name": "fedrolex"},
}
TOLERANCE = 1e-3
"""Of the distance that the rounds covered: rounding grows by steps, an error spoils all of something."""


def rounds(fed: Federation, count: int) -> Iterator[ServerState]:
    """Yield the state before the first round and after each."""
    runner = ClientRunner(
        fed.task.train, fed.task.partition, fed.space, fed.method.objective, fed.engine.stack, fed.devices
    )
    state = ServerState.initial(fed)
    yield state
    executor = EXECUTORS[fed.engine.executor].value(runner, fed.engine.workers)
    with tempfile.TemporaryDirectory() as folder, executor:
        disk = Disk(Path(folder))
        for _ in range(count):
            plan, state = plan_round(fed, state)
            given, told = remembered(assignments(fed, state, plan, disk))
            state, _ = finish_round(fed, state, told, executor.run(Broadcast.of(state), given), disk)
            yield state


def distance(a: Params, b: Params) -> float:
    """Return the Euclidean distance of parameters."""
    return sum(float((a[name].double() - b[name].double()).square().sum()) for name in a) ** 0.5


def equality(bench: Bench) -> list[dict[str, Any]]:
    """Compare two rounds of every objective on the device with the CPU's, and with themselves."""
    cohort, samples = bench.scale.equal
    total = cohort * samples
    data = images(total, (1, 8, 8))
    partition = ListedPartition(torch.arange(0, total + 1, samples), torch.arange(total))
    rows = []
    for label, method in METHODS.items():
        for model in ("cnn-small", "mlp"):
            training = TrainingConfig(
                rounds=2, cohort=cohort, local_epochs=2, batch_size=10, lr=0.05, momentum=0.0, clip_norm=1.0
            )
            own = EngineConfig(executor="serial", device=str(bench.device))
            fed = federation(data, partition, model, method, training, own)
            on_cpu = replace(fed, engine=EngineConfig(executor="serial"))
            several = replace(fed, engine=own.model_copy(update={"executor": "process", "workers": 2}))
            first, *_, expected = (state.params for state in rounds(on_cpu, 2))
            once, again = ([state.params for state in rounds(fed, 2)][-1] for _ in range(2))
            row = {
                "objective": label,
                "model": model,
                "difference": distance(once, expected) / distance(expected, first),
                "repeats_itself": distance(once, again) == 0,
            }
            if label == "plain":  # starting processes takes longer than all the rest
                shared = [state.params for state in rounds(several, 2)][-1]
                row["processes_equal_serial"] = distance(once, shared) == 0
            rows.append(row)
            tell(f"{label}, {model}", **row)
    if worst := [row for row in rows if not row["difference"] < TOLERANCE]:
        raise AssertionError(f"the device computes something else than the CPU: {worst}")
    return rows


def peak(bench: Bench) -> dict[str, float]:
    """Measure a large matrix product and a copy."""
    n, generator = bench.scale.matrix, torch.Generator(bench.device).manual_seed(0)
    found = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = (torch.randn(n, n, device=bench.device, generator=generator).to(dtype) for _ in range(2))
        found[f"{name}_flops"] = 2 * n**3 / bench.time(lambda a=a, b=b: a @ b)
    x = torch.empty(bench.scale.copy // 4, device=bench.device)
    y = torch.empty_like(x)
    found["copy_bytes_per_second"] = 2 * x.nbytes / bench.time(lambda: y.copy_(x))
    tell("peak", **found)
    return found


def one_client(scale: Scale, precision: str, device: torch.device) -> tuple[Federation, ClientRunner]:
    """Return a federation of clients with equally many samples and a worker for it."""
    data = images(4 * scale.samples, (3, 32, 32))
    partition = ListedPartition(torch.arange(0, len(data) + 1, scale.samples), torch.arange(len(data)))
    training = TrainingConfig(rounds=1, cohort=4, local_epochs=1)
    engine = EngineConfig(executor="serial", device=str(device), precision=precision)
    fed = federation(data, partition, "cnn", {"name": "heterofl"}, training, engine, scale=scale.model)
    return fed, ClientRunner(data, partition, fed.space, fed.method.objective, 1, fed.devices)


def clients(bench: Bench) -> list[dict[str, Any]]:
    """Time one client of the paper's network at each width and precision, by the engine and by bare loops."""
    rows = []
    ceilings = peak(bench)
    for precision in ("fp32", "bf16"):
        fed, runner = one_client(bench.scale, precision, bench.device)
        plan, state = plan_round(fed, ServerState.initial(fed))
        broadcast = Broadcast.of(state)
        given = list(assignments(fed, state, plan, Disk(Path("nowhere"))))
        for width in TIERS:
            spec = fed.space.nested(width)
            one = replace(given[0], spec=spec, context_spec=spec, weight=None)
            rate = bench.scale.samples / bench.time(partial(runner, broadcast, (one,)))
            bare = {
                "bare": {"channels_last": True},
                "bare_contiguous": {"channels_last": False},
                "bare_graph": {"channels_last": True, "graph": True},
            }
            row = {"width": width, "precision": precision, "samples_per_second": rate}
            for name, how in bare.items():
                if bench.device.type == "cuda" or not how.get("graph"):
                    step = BareLoop(fed, spec, bench.device, **how)
                    row[name] = bench.scale.samples / bench.time(step.epoch)
            row["share_of_peak"] = 6 * fed.space.macs(spec) * rate / ceilings[f"{precision}_flops"]
            rows.append(row)
            tell("client", **row)
    return rows


def stacks(bench: Bench) -> list[dict[str, Any]]:
    """Time clients that are trained together against clients alone."""
    rows = []
    cases: list[tuple[str, tuple[int, ...], dict[str, Any], int]] = [
        ("mlp", (1, 8, 8), {}, 20),
        ("cnn", (3, 32, 32), {"scale": bench.scale.model}, 100),
    ]
    for model, shape, options, samples in cases:
        data = images(max(bench.scale.stacks) * samples, shape).to(bench.device)
        spec_of_model = resolve_model(model, data.signature, options)
        built = spec_of_model.build(0)
        space = trace(built, spec_of_model.example_inputs(), check=False)
        cache, part = ModuleCache(space, bench.device), space.nested(0.25)
        params = {name: p.detach().to(bench.device) for name, p in built.named_parameters()}
        config = replace(TrainingConfig(local_epochs=1, batch_size=10).local(0), precision="bf16")
        for count in bench.scale.stacks:
            if model == "cnn" and count > 25:  # as many images as channels of a convolution
                continue
            tasks = [
                ClientTask(i, 0, part, part, 1.0, space.take(params, part), {}, {}, config, seed=i)
                for i in range(count)
            ]
            own = [torch.arange(samples * i, samples * (i + 1)) for i in range(count)]
            common: dict[str, Any] = {"space": space, "module_for": cache, "dataset": data}

            def together(tasks: Any = tasks, own: Any = own, common: Any = common) -> object:
                with working_on(bench.device):
                    if len(tasks) == 1:
                        return train(tasks[0], indices=own[0], objective=Plain(), **common)
                    return train_stack(tasks, indices=own, weights=[1.0] * len(tasks), **common)

            rate = count * samples / bench.time(together)
            rows.append({"model": model, "width": part.width, "clients": count, "samples_per_second": rate})
            tell("stack", **rows[-1])
    return rows


def processes(bench: Bench) -> list[dict[str, Any]]:
    """Time a cohort of all widths by several processes on the device."""
    rows = []
    fed, _ = one_client(bench.scale, "bf16", bench.device)
    plan, state = plan_round(fed, ServerState.initial(fed))
    given = list(assignments(fed, state, plan, Disk(Path("nowhere"))))
    cohort = [given[i % len(given)] for i in range(4 * max(bench.scale.workers))]
    for workers in bench.scale.workers:
        runner = ClientRunner(
            fed.task.train, fed.task.partition, fed.space, fed.method.objective, 1, fed.devices
        )
        with EXECUTORS["process"].value(runner, workers) as executor:

            def go(executor: Any = executor) -> None:
                for _ in executor.run(Broadcast.of(state), cohort):
                    pass

            rate = len(cohort) * bench.scale.samples / bench.time(go)
        rows.append({"workers": workers, "samples_per_second": rate})
        tell("processes", **rows[-1])
    return rows


def protocol(bench: Bench) -> dict[str, Any]:
    """Run rounds of the paper's CIFAR-10 setting and extrapolate to 200."""
    scale = bench.scale
    training = TrainingConfig(rounds=scale.rounds + 1, cohort=10, local_epochs=scale.epochs)
    engine = EngineConfig(device=str(bench.device), precision="bf16", workers=4 if scale.rounds > 1 else 1)
    found = "patterns"
    if os.environ.get("WIDTHWISE_DATA") and scale.rounds > 1:
        task = {"dataset": "cifar10", "model": "cnn", "partition": {"kind": "dirichlet", "alpha": 0.3}}
        settings = {"training": training.model_dump(), "engine": engine.model_dump()}
        fed, found = build(RunConfig(task=task, method={"name": "hasfl"}, **settings)), "cifar10"
    else:
        data = images(scale.images, (3, 32, 32))
        partition = skewed(data.targets, 20)
        fed = federation(data, partition, "cnn", {"name": "hasfl"}, training, engine, scale=scale.model)
    with tempfile.TemporaryDirectory() as folder:
        result = run_federation(fed, Path(folder) / "run")
    seconds = result.rounds["seconds"].tolist()[1:]  # in the first, processes start
    row = {
        "data": found,
        "workers": engine.workers,
        "seconds_per_round": statistics.median(seconds),
        "minutes_for_200_rounds": 200 * statistics.median(seconds) / 60,
        "accuracy": result.rounds["accuracy"].tolist(),
    }
    tell("protocol", **row)
    return row


PARTS: dict[str, Callable[[Bench], Any]] = {
    "equality": equality,
    "clients": clients,
    "stacks": stacks,
    "processes": processes,
    "protocol": protocol,
}


def tell(label: str, **figures: Any) -> None:
    """Print figures on one line."""
    told = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())
    print(f"{label}: {', '.join(told)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=330, help="no further part is begun after that")
    parser.add_argument("--tiny", action="store_true", help="everything in miniature")
    parser.add_argument("--parts", default=",".join(PARTS))
    options = parser.parse_args(arguments)
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}. The parts are {', '.join(PARTS)}")
    try:
        device = devices(options.device)[0]
    except ConfigError as error:
        print(f"{error} This script measures CUDA devices.", file=sys.stderr)
        return 2
    bench, start = Bench(device, TINY if options.tiny else Scale()), time.perf_counter()
    result: dict[str, Any] = {"environment": environment([device]), "tiny": options.tiny}
    failed: dict[str, str] = {}
    for name in options.parts.split(","):
        begun = time.perf_counter()
        try:
            if begun - start > options.seconds:
                raise TimeoutError(f"not begun: {options.seconds:.0f} s had passed")
            result[name] = PARTS[name](bench)
        except Exception as error:  # a part that fails must not cost the others' time on the device
            failed[name] = "".join(traceback.format_exception(error))
            print(f"{name} failed: {failed[name]}", file=sys.stderr, flush=True)
        tell(name, seconds=time.perf_counter() - begun)
    result |= {"failed": failed, "seconds": time.perf_counter() - start}
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
