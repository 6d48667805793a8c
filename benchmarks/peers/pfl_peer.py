"""pfl: `FederatedAveraging` on its `SimulatedBackend`, in one process or several that reduce over gloo.

A user's samples are normalised tensors in memory, as in pfl's own CIFAR-10 benchmark; users are drawn as
every peer draws them. Several processes are started by torchrun, as pfl's documentation has it.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from types import MethodType
from typing import Any

import torch
from pfl.aggregate.base import get_num_datapoints_weight_name
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.common_types import Population
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from .work import Job, Log, Setting, normalised


def loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a batch: pfl asks a model for it."""
    return nn.functional.cross_entropy(model.train()(inputs), targets)


def metrics(model: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
    """Return no metrics: nothing is evaluated."""
    return {}


class Ends(TrainingProcessCallback):
    """Notes the end of each round and the samples that pfl counted in it."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Note a round."""
        self.log.end_round()
        counted = aggregate_metrics[get_num_datapoints_weight_name(Population.TRAIN)]
        self.log.samples.append(int(counted.weighted_value))
        return False, Metrics()


def users(setting: Setting) -> FederatedDataset:
    """Return the users with their samples, and their order."""
    values, targets = setting.data()
    held = list(zip(normalised(values).split(setting.samples), targets.split(setting.samples), strict=True))
    drawn = iter([client for index in range(setting.total_rounds) for client in setting.cohort_of(index)])
    return FederatedDataset(
        lambda user: PyTorchTensorDataset(held[user], user_id=str(user)), lambda: next(drawn)
    )


def main() -> None:
    """Run the job of the command line."""
    job, log = Job.from_command_line(), Log()
    if job.processes > 1 and "RANK" not in os.environ:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={job.processes}"]
        again = [*torchrun, "-m", "benchmarks.peers.pfl_peer", *sys.argv[1:]]
        os.execv(sys.executable, [sys.executable, *again])
    module = job.setting.initial()
    module.loss, module.metrics = MethodType(loss, module), MethodType(metrics, module)
    model = PyTorchModel(
        module,
        local_optimizer_create=partial(torch.optim.SGD, fused=True),
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    held = users(job.setting)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=job.setting.total_rounds,
            evaluation_frequency=job.setting.total_rounds + 1,
            train_cohort_size=job.setting.cohort,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(training_data=held, val_data=held, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1,
            local_learning_rate=job.setting.lr,
            local_batch_size=job.setting.batch_size,
        ),
        callbacks=[Ends(log)],
        send_metrics_to_platform=False,
    )
    if os.environ.get("RANK", "0") == "0":
        final = {name: value.detach() for name, value in module.named_parameters()}
        print(log.report(job, final, ("pfl",)), flush=True)
    if torch.distributed.is_initialized():  # a process that leaves while another works may be aborted
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
