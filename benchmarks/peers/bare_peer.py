"""A plain PyTorch loop: the floor that a simulator can be measured against.

One resident module for each width, slices copied into it, batches by index, updates summed in place. In one
process, or in several that take clients from one queue, the largest slices first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor

from .work import Job, Log, Params, leading, train


class Trainer:
    """Trains clients one after the other and holds the sum of what they return.

    Attributes:
        sums: Sum of samples x parameters of the round's clients, global shapes.
        samples: [widths] samples trained in the round at each width.
    """

    def __init__(self, job: Job, data: tuple[Tensor, Tensor]) -> None:
        self.job, self.data = job, data
        self.modules = {width: job.setting.model(width) for width in job.setting.widths}
        self.sums = {n: torch.zeros_like(p) for n, p in job.setting.model(1.0).named_parameters()}
        self.samples = torch.zeros(len(job.setting.widths), dtype=torch.int64)

    def client(self, params: Params, client: int) -> None:
        """Train one client on its slice of ``params`` and add what it returns."""
        setting = self.job.setting
        module = self.modules[setting.width(client)]
        with torch.no_grad():
            for name, value in module.named_parameters():
                value.copy_(leading(params[name], value.shape))
        seen = train(module, self.data, setting.indices(client), self.job)
        with torch.no_grad():
            for name, value in module.named_parameters():
                leading(self.sums[name], value.shape).add_(value, alpha=seen)
        self.samples[setting.widths.index(setting.width(client))] += seen


@torch.no_grad()
def average_(params: Params, trainers: list[Trainer]) -> int:
    """Move ``params`` to the mean over those who trained each coordinate; return the samples trained."""
    samples = torch.stack([trainer.samples for trainer in trainers]).sum(0)
    for name, value in params.items():
        weights = torch.zeros_like(value)
        for module, count in zip(trainers[0].modules.values(), samples.tolist(), strict=True):
            leading(weights, module.get_parameter(name).shape).add_(count)
        total = trainers[0].sums[name]
        for other in trainers[1:]:
            total.add_(other.sums[name])
        value.copy_(torch.where(weights > 0, total / weights, value))
    for trainer in trainers:
        trainer.samples.zero_()
        for value in trainer.sums.values():
            value.zero_()
    return int(samples.sum())


def in_this_process(trainers: list[Trainer], params: Params) -> Callable[[list[int]], None]:
    """Return how a round's clients are trained by one trainer, here."""

    def train_all(clients: list[int]) -> None:
        for client in clients:
            trainers[0].client(params, client)

    return train_all


def in_processes(trainers: list[Trainer], params: Params) -> Callable[[list[int]], None]:
    """Return how a round's clients are trained by several trainers, each in a process of its own."""
    context = mp.get_context("spawn")
    todo, end_of_round = context.SimpleQueue(), context.Barrier(len(trainers) + 1)
    for trainer in trainers:
        context.Process(target=_work, args=(trainer, params, todo, end_of_round), daemon=True).start()

    def train_all(clients: list[int]) -> None:
        for client in sorted(clients, key=trainers[0].job.setting.width, reverse=True):
            todo.put(client)
        for _ in trainers:
            todo.put(None)
        end_of_round.wait()

    return train_all


def _work(trainer: Trainer, params: Params, todo: Any, end_of_round: Any) -> None:
    torch.set_num_threads(trainer.job.threads)
    while True:
        client = todo.get()
        if client is None:
            end_of_round.wait()  # nobody takes the None of another process
        else:
            trainer.client(params, client)


def main() -> None:
    """Run the job of the command line."""
    job, log = Job.from_command_line(), Log()
    params = {name: value.detach() for name, value in job.setting.initial().named_parameters()}
    data = job.setting.data()
    trainers = [Trainer(job, data) for _ in range(job.processes)]
    train_all = (in_this_process if job.processes == 1 else in_processes)(trainers, params)
    for round_index in range(job.setting.total_rounds):
        train_all(job.setting.cohort_of(round_index))
        log.samples.append(average_(params, trainers))
        log.end_round()
    print(log.report(job, params))


if __name__ == "__main__":
    main()
