"""widthwise: `run_federation` with its process executor, or its serial one for a single process."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from widthwise.core.records import RoundRecord
from widthwise.engine import EngineConfig, Federation, run_federation
from widthwise.methods import build_method
from widthwise.slicing import trace
from widthwise.tasks import ArraySet, ListedPartition, Signature, Task, resolve_model
from widthwise.tasks.custom import identity_of
from widthwise.training import TrainingConfig

from .work import CLASSES, MEAN, SEED, STD, Job, Log

NEVER = 10**6
METHOD = {"name": "heterofl", "estimator": "none"}  # no other simulator measures heterogeneity


class Ends:
    """Notes when rounds end."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def on_start(self, federation: Federation, start_round: int) -> None:
        """Nothing has happened yet."""

    def on_round(self, record: RoundRecord) -> None:
        """Note the time."""
        self.log.end_round()

    def on_end(self, result: dict[str, Any]) -> None:
        """Everything is noted."""


def federation(job: Job) -> Federation:
    """Return the job as a federation. Its last round is not timed: it evaluates and saves."""
    setting = job.setting
    signature = Signature("image", setting.shape, CLASSES)
    values, targets = setting.data()
    channels = setting.shape[0]
    data = ArraySet(
        "random",
        signature,
        tuple("0123456789"),
        values,
        targets,
        mean=(MEAN,) * channels,
        std=(STD,) * channels,
    )
    test = ArraySet("random", signature, data.class_names, values[:100], targets[:100], data.mean, data.std)
    module = setting.initial()
    model = resolve_model(identity_of(module), signature, module=module)
    offsets = torch.arange(0, len(targets) + 1, setting.samples)
    task = Task(
        name="random",
        train=data,
        test=test,
        partition=ListedPartition(offsets, torch.arange(len(targets))),
        capacities=np.array([setting.width(client) for client in range(setting.clients)]),
        tiers=tuple(sorted(setting.widths)),
        model=model,
    )
    return Federation(
        task=task,
        space=trace(model.build(SEED), model.example_inputs()),
        method=build_method(METHOD),
        training=TrainingConfig(
            rounds=setting.total_rounds,
            cohort=setting.cohort,
            local_epochs=1,
            batch_size=setting.batch_size,
            lr=setting.lr,
            lr_decay=1.0,
            momentum=0.0,
            weight_decay=0.0,
            clip_norm=None,
        ),
        engine=EngineConfig(
            executor="serial" if job.processes == 1 else "process",
            workers=job.processes,
            precision=job.precision,
            eval_every=NEVER,
            eval_batch_size=setting.batch_size,  # as the loss at the end is measured, for all peers
            checkpoint_every=NEVER,
        ),
        seed=SEED,
        config={"method": METHOD, "seed": SEED},
        config_hash="benchmark",
        label="benchmark",
    )


def main() -> None:
    """Run the job of the command line."""
    job, log = Job.from_command_line(), Log()
    with tempfile.TemporaryDirectory() as folder:
        run = run_federation(federation(job), Path(folder) / "run", sinks=[Ends(log)])
        trained = run.clients[run.clients["participated"]].groupby("round")["num_examples"].sum()
        final = load_file(run.path / "final.safetensors")
    log.samples = trained.tolist()
    print(log.report(job, final, ("widthwise",)))


if __name__ == "__main__":
    main()
