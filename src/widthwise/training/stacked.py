"""Clients of one shape trained together: their parameters in stacks, one batched product for all of them.

Legend: K clients, B samples of a batch (of the largest one; smaller ones are padded).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from widthwise.core.device import download, upload
from widthwise.core.errors import DivergenceError
from widthwise.core.params import Params, first_non_finite, sum_dtype
from widthwise.core.protocols import ModuleFor, Samples, Space
from widthwise.core.records import ClientReport, ClientTask, SummedReports
from widthwise.core.seeds import SeedTree
from widthwise.training.batches import batch_sizes
from widthwise.training.loop import autocast, diverged


def train_stack(
    tasks: Sequence[ClientTask],
    *,
    space: Space,
    module_for: ModuleFor,
    dataset: Samples,
    indices: Sequence[Tensor],
    weights: Sequence[float] | None = None,
) -> list[ClientReport] | SummedReports:
    """Train several clients for one round by plain SGD on the cross-entropy, all at once.

    The reports are those of ``train``, client by client, up to the rounding of sums: same samples in the same
    order, same steps, same clipping of each client's own gradient. A batch that is smaller than the largest
    one of its step is filled up; what is filled in has weight 0 and no gradient.

    Args:
        tasks: K tasks whose specs keep equally many channels, without masks, with the same configuration.
        space: The width space; its ``samplewise`` must hold.
        module_for: The worker's modules.
        dataset: The training samples of all clients, without augmentation, where the tasks' tensors lie.
        indices: Positions of each client's samples, on the CPU. All must take equally many steps.
        weights: Weights of the clients in a sum; all must train the same slice then.

    Returns:
        One report of each task, in their order; with ``weights`` their sum.

    Raises:
        DivergenceError: if a loss or an update is not finite; it names client, round and step.
    """
    first = tasks[0]
    config, module = first.config, module_for(first.spec).train()
    received = _received(tasks, space, [task.params for task in tasks])
    buffers = _received(tasks, space, [task.buffers for task in tasks])
    params = {
        name: value.clone(memory_format=torch.contiguous_format).requires_grad_()
        for name, value in received.items()
    }
    trained = [params[name] for name, p in module.named_parameters() if p.requires_grad]
    device = trained[0].device
    optimizer = torch.optim.SGD(
        trained, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay, fused=True
    )
    forward = space.stacked(module)
    losses: list[Tensor] = []
    sizes: list[Tensor] = []
    for picked, shares in _steps(tasks, indices, device):
        inputs, targets = dataset.batch(picked.flatten())
        optimizer.zero_grad()
        with autocast(config.precision, device):
            scores = forward({**params, **buffers}, inputs.view(*picked.shape, *inputs.shape[1:]))
            each = cross_entropy(scores.flatten(0, 1), targets, reduction="none")
            loss = (each.view(picked.shape) * shares).sum(1)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        if config.clip_norm is not None:
            _clip_each_(trained, config.clip_norm)
        optimizer.step()
        losses.append(loss.detach())
        sizes.append((shares > 0).sum(1))
    deltas = {name: torch.sub(params[name].detach(), value) for name, value in received.items()}
    seen = torch.stack(losses, 1), torch.stack(sizes, 1)
    if weights is None:
        deltas, seen = download((deltas, seen), device)
        examples, means = _checked(tasks, deltas, deltas, *seen)
        return [
            ClientReport(
                client_id=task.client_id,
                round_index=task.round_index,
                spec=task.spec,
                delta={name: value[k].clone() for name, value in deltas.items()},
                num_examples=examples[k],
                num_steps=len(losses),
                metrics={"loss": means[k]},
            )
            for k, task in enumerate(tasks)
        ]
    scale = upload(torch.tensor(weights, dtype=torch.float64), device)
    total = {name: _weighted_sum(scale, value) for name, value in deltas.items()}
    clients = tuple(task.client_id for task in tasks)
    total, seen = download((total, seen), device)
    examples, means = _checked(tasks, deltas, total, *seen)
    return SummedReports(first.spec, total, sum(weights), clients, examples, means)


def _weighted_sum(weights: Tensor, values: Tensor) -> Tensor:
    """Return sum_k weights[k] * values[k]."""
    dtype = sum_dtype(values)
    total: Tensor = torch.tensordot(weights.to(dtype), values.to(dtype), dims=1)
    return total


def _received(tasks: Sequence[ClientTask], space: Space, values: Sequence[Params]) -> Params:
    """Return what the clients received, [K, *shape] (one tensor, seen K times, where it is the same)."""
    first = tasks[0]
    if all(value is values[0] for value in values):
        own = space.take_within(values[0], first.context_spec, first.spec)
        return {name: value.detach().expand(len(tasks), *value.shape) for name, value in own.items()}
    each = [
        space.take_within(value, task.context_spec, task.spec)
        for task, value in zip(tasks, values, strict=True)
    ]
    return {name: torch.stack([one[name].detach() for one in each]) for name in each[0]}


def _steps(
    tasks: Sequence[ClientTask], indices: Sequence[Tensor], device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield for each step the samples of all clients [K, B] and their weights: 1 / batch size, or 0."""
    config = tasks[0].config
    samples = [own.numel() for own in indices]
    held = _padded(indices)
    batches = {n: batch_sizes(n, config.batch_size) for n in set(samples)}
    sizes = torch.tensor([batches[n] for n in samples])
    starts, largest = sizes.cumsum(1) - sizes, sizes.amax(0).tolist()
    generator = torch.Generator()
    for epoch in range(config.local_epochs):
        seeds = [SeedTree(task.seed).at("shuffle", epoch).seed() for task in tasks]
        orders = [
            torch.randperm(n, generator=generator.manual_seed(seed))
            for n, seed in zip(samples, seeds, strict=True)
        ]
        order = held.gather(1, _padded(orders))
        steps: list[tuple[Tensor, Tensor]] = []
        for start, size, most in zip(starts.T.unsqueeze(2), sizes.T.unsqueeze(2), largest, strict=True):
            place = torch.arange(most)
            picked = order.gather(1, (start + place).clamp(max=order.shape[1] - 1))
            steps.append((picked, (place < size) / size))
        yield from upload(steps, device)


def _padded(rows: Sequence[Tensor]) -> Tensor:
    """Return rows in one tensor [K, length of the longest], zeros behind the shorter ones."""
    if len({row.numel() for row in rows}) == 1:
        return torch.stack(list(rows))  # what is to be padded is copied row by row, which takes much longer
    return pad_sequence(list(rows), batch_first=True)


def _clip_each_(params: Sequence[Tensor], max_norm: float) -> None:
    """Scale each client's gradients as ``torch.nn.utils.clip_grad_norm_`` does with those of one."""
    grads = [p.grad for p in params if p.grad is not None]
    norms = torch.stack([grad.view(len(grad), -1).norm(dim=1) for grad in grads]).norm(dim=0)
    scales = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    for grad in grads:
        grad.mul_(scales.view(-1, *[1] * (grad.dim() - 1)))


def _checked(
    tasks: Sequence[ClientTask], deltas: Params, answer: Params, losses: Tensor, sizes: Tensor
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return how many samples each client holds, and its mean loss over all that it saw.

    All must be finite; ``answer`` is what of the updates has come to the CPU.
    """
    if not bool(losses.isfinite().all()) or first_non_finite(answer):
        raise _first_failure(tasks, losses, deltas)
    seen, epochs = sizes.sum(1), tasks[0].config.local_epochs
    means = (losses.double() * sizes).sum(1) / seen
    return tuple(number // epochs for number in seen.tolist()), tuple(means.tolist())


def _first_failure(tasks: Sequence[ClientTask], losses: Tensor, deltas: Params) -> DivergenceError:
    for k, task in enumerate(tasks):
        bad = (~losses[k].isfinite()).nonzero()
        if len(bad):
            step = int(bad[0])
            return diverged(task, f"train step {step}", f"the training loss is {float(losses[k, step])}")
        if name := first_non_finite({name: value[k] for name, value in deltas.items()}):
            return diverged(task, "train", f"the update of {name} is not finite")
    return diverged(tasks[0], "train", "an update is not finite")
