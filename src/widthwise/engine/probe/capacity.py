"""The capacity of this machine: the largest width whose training step fits its bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from widthwise.core.errors import ConfigError
from widthwise.core.params import clone
from widthwise.core.records import ClientTask, LocalConfig
from widthwise.engine.devices import devices, resolved
from widthwise.engine.probe.child import LEARNING_RATE, Job
from widthwise.engine.probe.memory import footprint
from widthwise.engine.probe.records import MIB, Bounds, ProbeResult, ProbeRow
from widthwise.engine.probe.search import search, spaced
from widthwise.engine.probe.watch import measure
from widthwise.slicing import WidthSpace
from widthwise.training import Objective, TrainingConfig
from widthwise.training.plain import Plain

STEPS, PATIENCE = 5, 60.0


def probe(
    space: WidthSpace,
    model: nn.Module,
    batch: tuple[Tensor, Tensor],
    bounds: Bounds,
    *,
    widths: Sequence[float] = (),
    training: LocalConfig | None = None,
    objective: Objective | None = None,
    steps: int = STEPS,
    threads: int = 1,
    device: str = "cpu",
    patience: float = PATIENCE,
    held: int | None = None,
    watch: Callable[[float], Any] = lambda width: None,
) -> ProbeResult:
    """Find the largest width whose training step fits both bounds on this machine.

    For each width that is tried a fresh process receives the nested slice and trains it with the loop of a
    run (`training.train`): forward, loss, backward, clipping, SGD. Time is the median of ``steps`` steps
    after two that warm up. Memory is the peak of the process, from its start on: what it takes to be
    able to train anything, and the growth by what it receives and trains. A process that exceeds the memory
    is ended within hundredths of a second, and so is one whose steps do not end in time; neither width fits.

    Named widths are all tried. Without names a bisection over the widths at which a slice gains a
    channel (k / C of each group, at least 1/64 apart) tries at most eight; the answer was tried and fits, and
    the next larger width of those was tried and does not.

    The process holds one batch and no data set beside it. A method that trains with a teacher at the client's
    capacity (`distillation`) has none at that width, so it needs some room above what is measured.

    Args:
        space: The width space.
        model: The traced model; slices of its values are trained, and it is left as it was.
        batch: Inputs [B, ...] and targets int64 [B] of one step.
        bounds: What a step may take.
        widths: Widths to try, in any order; none: search.
        training: Momentum, weight decay, clipping and precision; by default those of a run's defaults.
        objective: The local objective; by default plain SGD.
        steps: Steps that are timed, at least 1.
        threads: Threads of torch; clients of a run train on one.
        device: ``cpu``, ``cuda``, ``cuda:N`` or ``auto``. On a CUDA device memory is what torch allocates for
            tensors there, without the libraries.
        patience: Seconds for each width, beside those that the bound allows for its steps.
        held: Bytes that the process which is going to train holds now (``footprint().now``); growth is
            counted on top of them. None: those of a process that has loaded all of torch.
        watch: Called with each width before it is tried.

    Returns:
        The widths that were tried, and the largest that fits, if any does.

    Raises:
        ConfigError: if the batch is empty, a number is not positive, the device is not there, or this system
            has no ``/proc``.
        SliceError: if a width is not in (0, 1].
        RunError: if a step fails for another reason than memory or time.

    Example:
        ::

            space = ww.trace(model, inputs)
            found = probe(space, model, (inputs, targets), Bounds(memory_mib=512, seconds_per_step=0.2))
            print(found.sentence)
            capacity = found.width  # None: not even the smallest slice fits
    """
    inputs, targets = batch
    for name, value in (("batch size", len(targets)), ("steps", steps), ("threads", threads)):
        if value < 1:
            raise ConfigError(f"{name} is {value}, but at least 1 is needed. Raise it.")
    if not patience > 0:
        raise ConfigError(f"patience is {patience:g} s, but it must be above 0. Raise it.")
    place = devices(resolved(device))[0]
    footprint()  # says so if this system does not count memory
    local = training or TrainingConfig().local(0)
    local = replace(local, local_epochs=1, batch_size=len(targets), lr=LEARNING_RATE)
    own = objective or Plain()
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())

    def tried(width: float) -> ProbeRow:
        watch(width)
        spec = space.nested(width)
        states = (*own.client_state, *own.server_state)
        task = ClientTask(
            client_id=0,
            round_index=0,
            spec=spec,
            context_spec=spec,
            capacity=width,
            params=clone(space.take(parameters, spec)),
            buffers=clone(space.take(buffers, spec)),
            state={
                name: {n: torch.zeros(shape) for n, shape in space.shapes(spec).items()} for name in states
            },
            config=local,
            seed=0,
        )
        job = Job(space, task, inputs, targets, own, steps, threads, place)
        found = measure(job, bounds, patience=patience, held=held)
        return ProbeRow(
            width=width,
            params=space.num_params(spec),
            macs=space.macs(spec),
            peak_mib=found.peak / MIB,
            growth_mib=found.growth / MIB,
            seconds=found.seconds,
            exceeds=found.exceeds,
        )

    if widths:
        named = sorted(set(widths))
        for width in named:
            space.nested(width)  # all are refused before one is tried
        return ProbeResult(bounds, tuple(map(tried, named)))
    return ProbeResult(bounds, tuple(search(spaced(space.levels), tried)))
