"""HeteroFL's reference code: its `Federation` and its `Local.train`, on our model and data.

As there, a round cuts every client's parameters, makes a data loader and a model for each client, trains one
after the other (with its clipping of gradients and its metrics after every step), and combines by index. New
are the model and the indices that it keeps, since the repository cuts its own models only.
"""

from __future__ import annotations

import copy
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from torch import Tensor, nn

from .work import CLASSES, Job, Log, Setting, normalised


class Model(nn.Module):
    """A module as the repository's loop calls it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return scores and loss of a batch."""
        score = self.module(batch["img"])
        return {"score": score, "loss": nn.functional.cross_entropy(score, batch["label"])}


class Samples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """The samples as the repository's data sets give them, one by one; counts what was read."""

    def __init__(self, setting: Setting) -> None:
        self.values, self.targets = setting.data()
        self.read = 0

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        self.read += 1
        return {"img": normalised(self.values[index]), "label": self.targets[index]}


def reference(job: Job) -> Any:
    """Import the repository's training script, set for this job.

    Its readers of data sets and torchvision, which only they use, are not needed here.
    """
    source = Path(job.checkout) / "src"
    sys.path.insert(0, str(source))
    os.chdir(source)  # it reads config.yml there
    sys.argv = [sys.argv[0]]  # it reads the command line, too
    for name in ("datasets", "torchvision", "torchvision.utils"):
        sys.modules[name] = MagicMock()
    import train_classifier_fed as script

    setting = job.setting
    script.cfg.update(
        model_name="conv",
        model_split_mode="fix",
        global_model_rate=1.0,
        device="cpu",
        optimizer_name="SGD",
        momentum=0.0,
        weight_decay=0.0,
        num_epochs={"local": 1},
        batch_size={"train": setting.batch_size},
        num_users=setting.clients,
    )
    script.models.conv = lambda model_rate: Model(setting.model(model_rate))
    return script


def federation(script: Any, setting: Setting) -> Any:
    """Return the repository's federation, told what a slice keeps: the leading block of each axis."""
    shapes = {
        width: {name: value.shape for name, value in Model(setting.model(width)).named_parameters()}
        for width in setting.widths
    }

    class Federation(script.Federation):  # type: ignore[misc]
        def split_model(self, user_idx: list[int]) -> list[dict[str, Any]]:
            return [
                {
                    name: tuple(map(torch.arange, shape)) if len(shape) > 1 else torch.arange(*shape)
                    for name, shape in shapes[self.model_rate[user]].items()
                }
                for user in user_idx
            ]

    initial = {name: value.detach().clone() for name, value in Model(setting.initial()).named_parameters()}
    rates = [setting.width(client) for client in range(setting.clients)]
    return Federation(initial, rates, [list(range(CLASSES))] * setting.clients)


def main() -> None:
    """Run the job of the command line."""
    job, log = Job.from_command_line(), Log()
    setting, script = job.setting, reference(job)
    samples, server, logger = Samples(setting), federation(script, setting), script.Logger("unused")
    for round_index in range(setting.total_rounds):
        clients, before = setting.cohort_of(round_index), samples.read
        # What its make_local and train do, but for the draw of clients and the lines that they print.
        parameters, kept = server.distribute(clients)
        held = [script.SplitDataset(samples, setting.indices(client).tolist()) for client in clients]
        locals_ = [
            script.Local(
                server.model_rate[client],
                script.make_data_loader({"train": split})["train"],
                server.label_split[client],
            )
            for client, split in zip(clients, held, strict=True)
        ]
        for m, local in enumerate(locals_):
            parameters[m] = copy.deepcopy(local.train(parameters[m], setting.lr, logger))
        server.combine(parameters, kept, clients)
        log.samples.append(samples.read - before)
        log.end_round()
    final = {name.removeprefix("module."): value for name, value in server.global_parameters.items()}
    print(log.report(job, final))


if __name__ == "__main__":
    main()
