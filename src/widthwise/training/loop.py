"""The one local training loop, whatever the objective and whatever the width."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from widthwise.core.errors import DivergenceError
from widthwise.core.params import Params, first_non_finite
from widthwise.core.protocols import Criterion, ModuleFor, Samples, Space
from widthwise.core.records import ClientReport, ClientTask
from widthwise.core.seeds import SeedTree
from widthwise.training.batches import epoch_batches
from widthwise.training.modules import device_of, load_
from widthwise.training.objective import Local, LocalSetting, Objective


def train(
    task: ClientTask,
    *,
    space: Space,
    module_for: ModuleFor,
    dataset: Samples,
    indices: Tensor,
    objective: Objective,
    criterion: Criterion = cross_entropy,
) -> ClientReport:
    """Train one client for one round and report what changed.

    SGD over ``task.config.local_epochs`` epochs on the dense module of ``task.spec``. The optimizer is
    new for every client and round, so momentum never carries over and never moves a coordinate that the
    client does not hold. Order in one step: loss, backward, the objective's correction of the gradients,
    clipping by the norm of the whole gradient, SGD with momentum and weight decay.

    Batch-norm statistics are local: training uses those of the batch, and running statistics are neither
    reported nor averaged (``recalibrate`` makes them anew for evaluation).

    All randomness comes from ``task.seed`` (shuffle, augmentation, dropout), and the global random state
    is left as it was, so the report depends on the arguments only, not on the process or on what ran
    before. Pure, but for the modules of ``module_for``, which it overwrites.

    Args:
        task: What the server sent.
        space: The width space that made ``task.spec``.
        module_for: The worker's modules (``ModuleCache``).
        dataset: The training samples of all clients.
        indices: [n_i] positions of this client's samples, n_i >= 1.
        objective: The local objective.
        criterion: Mean loss of a batch.

    Returns:
        The report; its tensors are detached, contiguous, on the CPU, and shared with nothing.

    Raises:
        DivergenceError: if a loss or the update is not finite; it names client, round and step.
    """
    module = module_for(task.spec).train()
    inner = space.take_within(task.params, task.context_spec, task.spec)
    load_(module, inner, space.take_within(task.buffers, task.context_spec, task.spec))
    device = device_of(module)
    received = {name: value.to(device) for name, value in inner.items()}
    local = objective.local(LocalSetting(task, space, module_for, module, received, criterion))

    with _seeded(SeedTree(task.seed).at("dropout").seed(), device):
        num_steps, loss = _epochs(task, local, dataset, indices, device)

    delta = {
        name: torch.sub(p.detach(), received[name]).cpu().contiguous()
        for name, p in module.named_parameters()
    }
    report = ClientReport(
        client_id=task.client_id,
        round_index=task.round_index,
        spec=task.spec,
        delta=delta,
        num_examples=len(indices),
        num_steps=num_steps,
        metrics={"loss": loss},
        state=local.finish(delta, num_steps),
    )
    for what, params in {"update": delta, **report.state}.items():
        _refuse_non_finite(task, what, params)
    return report


def _epochs(
    task: ClientTask, local: Local, dataset: Samples, indices: Tensor, device: torch.device
) -> tuple[int, float]:
    """Run all local epochs; return the number of steps and the mean loss over all samples seen."""
    config, seeds = task.config, SeedTree(task.seed)
    parameters = [p for _, p in local.setting.trainable()]
    optimizer = torch.optim.SGD(
        parameters, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
    )
    num_steps, total, seen = 0, 0.0, 0
    for epoch in range(config.local_epochs):
        losses: list[Tensor] = []
        sizes: list[int] = []
        augment = seeds.at("augment", epoch).torch()
        for batch in epoch_batches(indices, config.batch_size, seeds.at("shuffle", epoch).torch()):
            inputs, targets = (part.to(device) for part in dataset.batch(batch, augment))
            optimizer.zero_grad()
            with autocast(config.precision, device):
                loss = local.loss(inputs, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            local.correct_gradients()
            if config.clip_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, config.clip_norm, foreach=True)
            optimizer.step()
            losses.append(loss.detach())
            sizes.append(len(batch))
        # Looked at once per epoch: reading a loss at every step would make an accelerator wait.
        values = torch.stack(losses).double().cpu()
        if not bool(values.isfinite().all()):
            step = int((~values.isfinite()).nonzero()[0])
            raise DivergenceError(
                f"the training loss is {float(values[step])}. Lower training.lr, or check the client's data.",
                client=task.client_id,
                round_index=task.round_index,
                stage=f"train step {num_steps + step}",
            )
        total += float(values @ torch.tensor(sizes, dtype=torch.float64))
        num_steps, seen = num_steps + len(sizes), seen + sum(sizes)
    return num_steps, total / seen


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context of a forward pass: bfloat16 where ``precision`` is "bf16", else as it is."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generators inside the context; their former state comes back afterwards."""
    cuda = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        # Not torch.manual_seed: on a machine without CUDA it keeps each call in a list that only grows.
        torch.default_generator.manual_seed(seed)
        if cuda:
            torch.cuda.default_generators[device.index or 0].manual_seed(seed)
        yield


def _refuse_non_finite(task: ClientTask, what: str, params: Params) -> None:
    """Raise if a reported tensor is not finite."""
    name = first_non_finite(params)
    if name is not None:
        raise DivergenceError(
            f"the {what} of {name} is not finite. Lower training.lr, or check the client's data.",
            client=task.client_id,
            round_index=task.round_index,
            stage="train",
        )
