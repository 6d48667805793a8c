"""Flower: its simulation on Ray, `NumPyClient`s and the strategy `FedAvg`, one actor for each process.

A client trains by the plain loop (`work.train`) on a module that its actor keeps, so what is measured beside
it is Flower. Flower draws the cohorts itself; all clients hold equally many samples. Where clients train
slices, they cut them out of what they receive, and the strategy's mean is that of each coordinate.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import Tensor, nn

from .work import Job, Log, leading, train


@cache
def data(job: Job) -> tuple[Tensor, Tensor]:
    """Return the data of this process: made once in each actor."""
    torch.set_num_threads(job.threads)
    return job.setting.data()


@cache
def module(job: Job, width: float) -> nn.Module:
    """Return the module of a width: made once in each actor."""
    return job.setting.model(width)


class Client(NumPyClient):
    """One client's turn."""

    def __init__(self, job: Job, client: int) -> None:
        self.job, self.client = job, client

    def fit(self, parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        """Train the received parameters and return them."""
        setting = self.job.setting
        samples, own = data(self.job), module(self.job, setting.width(self.client))
        with torch.no_grad():
            for value, received in zip(own.parameters(), parameters, strict=True):
                value.copy_(leading(torch.from_numpy(received), value.shape))
        seen = train(own, samples, setting.indices(self.client), self.job)
        return [value.detach().numpy() for value in own.parameters()], seen, {}


class SliceAvg(FedAvg):
    """The mean of each coordinate over the clients that trained it; the others stay."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.current = options["initial_parameters"]

    def aggregate_fit(self, server_round: int, results: list[Any], failures: list[Any]) -> Any:
        """Average the slices."""
        values = [torch.from_numpy(value).clone() for value in parameters_to_ndarrays(self.current)]
        sums, weights = ([torch.zeros_like(value) for value in values] for _ in range(2))
        for _, result in results:
            for total, weight, array in zip(
                sums, weights, parameters_to_ndarrays(result.parameters), strict=True
            ):
                value = torch.from_numpy(array)
                leading(total, value.shape).add_(value, alpha=result.num_examples)
                leading(weight, value.shape).add_(result.num_examples)
        for value, total, weight in zip(values, sums, weights, strict=True):
            value.copy_(torch.where(weight > 0, total / weight, value))
        self.current = ndarrays_to_parameters([value.numpy() for value in values])
        assert self.fit_metrics_aggregation_fn is not None
        metrics = self.fit_metrics_aggregation_fn([(r.num_examples, r.metrics) for _, r in results])
        return self.current, metrics


class Federation:
    """What Flower calls: the strategy's functions note rounds, samples and the newest parameters."""

    def __init__(self, job: Job, log: Log) -> None:
        self.job, self.log = job, log
        self.names = [name for name, _ in job.setting.initial().named_parameters()]
        self.final: dict[str, Tensor] = {}

    def server(self, context: Context) -> ServerAppComponents:
        """Return the server's parts."""
        setting = self.job.setting
        initial = [value.detach().numpy() for value in setting.initial().parameters()]
        average = FedAvg if setting.widths == (1.0,) else SliceAvg
        strategy = average(
            fraction_fit=setting.cohort / setting.clients,
            fraction_evaluate=0.0,
            min_fit_clients=setting.cohort,
            min_available_clients=setting.clients,
            initial_parameters=ndarrays_to_parameters(initial),
            evaluate_fn=self.end_round,
            fit_metrics_aggregation_fn=self.count,
            accept_failures=False,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=setting.total_rounds))

    def count(self, results: list[tuple[int, dict[str, Any]]]) -> dict[str, Any]:
        """Note the samples of a round."""
        self.log.samples.append(sum(samples for samples, _ in results))
        return {}

    def end_round(self, server_round: int, parameters: list[Any], config: dict[str, Any]) -> None:
        """Note the end of a round, where Flower would evaluate centrally."""
        if server_round > 0:  # 0 is before the first
            self.log.end_round()
            self.final = dict(zip(self.names, map(torch.from_numpy, parameters), strict=True))


def main() -> None:
    """Run the job of the command line."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    job, log = Job.from_command_line(), Log()
    federation = Federation(job, log)

    def client(context: Context) -> Any:
        return Client(job, int(context.node_config["partition-id"])).to_client()

    cpus = job.processes * job.threads
    run_simulation(
        server_app=ServerApp(server_fn=federation.server),
        client_app=ClientApp(client_fn=client),
        num_supernodes=job.setting.clients,
        backend_config={
            "init_args": {"num_cpus": cpus},
            "client_resources": {"num_cpus": job.threads, "num_gpus": 0.0},
        },
    )
    print(log.report(job, federation.final, ("flwr", "ray")))


if __name__ == "__main__":
    # Actors import what they run by the module's name, which is not __main__.
    from benchmarks.peers import flower_peer

    flower_peer.main()
