"""The one local training loop, whatever the objective and whatever the width."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from widthwise.core.blocks import kind_of
from widthwise.core.descent import Descent, descending
from widthwise.core.device import download, seeded, upload
from widthwise.core.errors import DivergenceError
from widthwise.core.params import Params, first_non_finite, load_
from widthwise.core.protocols import Criterion, ModuleFor, Samples, Space
from widthwise.core.records import ClientReport, ClientTask
from widthwise.core.recycled import Block, fresh, tensors_in
from widthwise.core.seeds import SeedTree
from widthwise.training.batches import epoch_batches
from widthwise.training.objective import Local, LocalSetting, Objective

LARGE = 2**16
"""Parameters of a weight from which on it pays to take its steps in the backward pass."""


def train(
    task: ClientTask,
    *,
    space: Space,
    module_for: ModuleFor,
    dataset: Samples,
    indices: Tensor,
    objective: Objective,
    criterion: Criterion = cross_entropy,
    memory: Callable[[int], Block] = fresh,
) -> ClientReport:
    """Train one client for one round and report what changed.

    SGD over ``task.config.local_epochs`` epochs on the dense module of ``task.spec``. The optimizer is
    new for every client and round, so momentum never carries over and never moves a coordinate that the
    client does not hold. Order in one step: loss, backward, the objective's correction of the gradients,
    clipping by the norm of the whole gradient, SGD with momentum and weight decay. Where that is plain SGD on
    the CPU, large linear layers take it in the backward pass (``core.descent``): the same to rounding.

    Batch-norm statistics are local: training uses those of the batch, and running statistics are neither
    reported nor averaged (``recalibrate`` makes them anew for evaluation).

    Under a mask (``task.spec.mask``) the module is the full one; what lies outside the mask is received,
    trained and reported as zero (``masking``).

    All randomness comes from ``task.seed`` (shuffle, augmentation, dropout), and the global random state
    is left as it was, so the report depends on the arguments only, not on the process or on what ran
    before. Pure, but for the modules of ``module_for``, which it overwrites.

    A client trains where the tensors of its task lie. Order of samples and augmentation are drawn on the CPU
    wherever that is; dropout draws from the device's own generator. On a device nothing is read before all
    steps are made: the report comes back in one copy.

    Args:
        task: What the server sent; its tensors, masks included, lie on one device.
        space: The width space that made ``task.spec``.
        module_for: The worker's modules (``ModuleCache``), on the same device.
        dataset: The training samples of all clients, on the same device.
        indices: [n_i] positions of this client's samples, n_i >= 1, on the CPU.
        objective: The local objective.
        criterion: Mean loss of a batch.
        memory: Gives the memory of the update, on the CPU.

    Returns:
        The report; its tensors lie on the CPU, are detached and contiguous, and no other tensor is changed
        with them.

    Raises:
        DivergenceError: if a loss or the update is not finite; it names client, round and step.
    """
    module = module_for(task.spec).train()
    inner = task.spec.masked(space.take_within(task.params, task.context_spec, task.spec))
    load_(module, inner, space.take_within(task.buffers, task.context_spec, task.spec))
    received = {name: value.detach() for name, value in inner.items()}
    device = next(iter(received.values())).device
    local = objective.local(LocalSetting(task, space, module_for, module, received, criterion))

    step = Descent(task.config.lr, task.config.weight_decay)
    draws = seeded(SeedTree(task.seed).at("dropout").seed(), device)
    with draws, descending(_stepping(task, objective, space, module, device), step):
        losses, sizes = _epochs(task, local, dataset, indices, device)

    delta = update_of(module, received, memory, device)
    losses, delta, state = download((losses, delta, dict(local.finish(delta, len(sizes)))), device)
    report = ClientReport(
        client_id=task.client_id,
        round_index=task.round_index,
        spec=task.spec,
        delta=delta,
        num_examples=len(indices),
        num_steps=len(sizes),
        metrics={"loss": _mean_loss(task, losses, sizes)},
        state=state,
    )
    for what, params in {"update": delta, **report.state}.items():
        if name := first_non_finite(params):
            raise diverged(task, "train", f"the {what} of {name} is not finite")
    return report


def update_of(
    module: nn.Module, received: Params, memory: Callable[[int], Block], device: torch.device
) -> Params:
    """Return trained minus received parameters, contiguous, where they were trained."""
    trained = {name: p.detach() for name, p in module.named_parameters()}
    if device.type == "cpu":
        places = tensors_in(memory, {name: kind_of(value) for name, value in trained.items()})
    else:
        places = {
            name: torch.empty_like(value, memory_format=torch.contiguous_format)
            for name, value in trained.items()
        }
    return {name: torch.sub(value, received[name], out=places[name]) for name, value in trained.items()}


def _stepping(
    task: ClientTask, objective: Objective, space: Space, module: nn.Module, device: torch.device
) -> list[nn.Parameter]:
    """Return the weights that take their steps in the backward pass: nobody asks for their gradients."""
    config = task.config
    asked = config.momentum > 0 or config.clip_norm is not None or task.spec.mask is not None
    if asked or not objective.plain or device.type != "cpu":
        return []
    return large_linear_weights(space, module)


def large_linear_weights(space: Space, module: nn.Module) -> list[nn.Parameter]:
    """Return the trained weights of a module for which a step in the backward pass is possible and pays."""
    weights = ((name, p) for name, p in module.named_parameters() if p.requires_grad)
    return [p for name, p in weights if name in space.linear_weights and p.numel() >= LARGE]


def _epochs(
    task: ClientTask, local: Local, dataset: Samples, indices: Tensor, device: torch.device
) -> tuple[Tensor, list[int]]:
    """Run all local epochs; return the loss of each step, not read yet, and how many samples it saw."""
    config, seeds = task.config, SeedTree(task.seed)
    parameters = [p for _, p in local.setting.trainable()]
    optimizer = torch.optim.SGD(
        parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
    )
    losses: list[Tensor] = []
    sizes: list[int] = []
    for epoch in range(config.local_epochs):
        augment = seeds.at("augment", epoch).torch()
        batches = epoch_batches(indices, config.batch_size, seeds.at("shuffle", epoch).torch())
        for batch in upload(list(batches), device):
            inputs, targets = dataset.batch(batch, augment)
            optimizer.zero_grad()
            with autocast(config.precision, device):
                loss = local.loss(inputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            local.correct_gradients()
            if config.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm)
            optimizer.step()
            losses.append(loss.detach())
            sizes.append(len(batch))
    optimizer.zero_grad()  # the module stays in memory, its gradients need not
    return torch.stack(losses), sizes


def _mean_loss(task: ClientTask, losses: Tensor, sizes: Sequence[int]) -> float:
    """Return the mean loss over all samples seen."""
    values: list[float] = losses.tolist()
    for step, value in enumerate(values):
        if not math.isfinite(value):
            raise diverged(task, f"train step {step}", f"the training loss is {value}")
    return sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass: bfloat16 where ``precision`` is "bf16", else as it is."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def diverged(task: ClientTask, stage: str, what: str) -> DivergenceError:
    """Return the error of a client whose training left the finite numbers."""
    return DivergenceError(
        f"{what}. Lower training.lr, or check the client's data.",
        client=task.client_id,
        round_index=task.round_index,
        stage=stage,
    )
