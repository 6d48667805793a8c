"""Everything that a run needs, built and validated, as one frozen record."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from widthwise.allocation import Population
from widthwise.compression import Compression
from widthwise.core.device import CPU
from widthwise.core.params import Params
from widthwise.core.seeds import SeedTree
from widthwise.engine.config import EngineConfig
from widthwise.engine.costs import price_list
from widthwise.engine.devices import cuda_devices, devices
from widthwise.methods import Method
from widthwise.privacy import PrivacyConfig, epsilon
from widthwise.slicing import WidthSpace
from widthwise.tasks import Task
from widthwise.training import TrainingConfig, count_holders


@dataclass(frozen=True)
class Federation:
    """A task, a method and the settings of one run.

    Attributes:
        task: Data, partition, capacities and model.
        space: Width space of the task's model.
        method: Allocation policy, selector, local objective, estimator and aggregation options.
        training: Rounds, cohort and local training.
        engine: Executor, evaluation and checkpoint options.
        seed: Root of every random stream of the run.
        config: The resolved configuration, JSON-able; written to ``config.yaml``.
        config_hash: Identity of what is computed; a folder is resumed only under the same hash.
        label: Name of the run in tables.
        compression: How clients compress what they report, if they do.
        privacy: What is promised about the data of each client, if anything.
    """

    task: Task
    space: WidthSpace
    method: Method
    training: TrainingConfig
    engine: EngineConfig
    seed: int
    config: dict[str, Any]
    config_hash: str
    label: str
    compression: Compression | None = None
    privacy: PrivacyConfig | None = None

    @property
    def seeds(self) -> SeedTree:
        """The root of the run's random streams."""
        return SeedTree(self.seed)

    def epsilon(self, rounds: int) -> float | None:
        """Return what so many rounds spend of the run's privacy, None where nothing is promised.

        Raises:
            ConfigError: if the accountant is not installed.
        """
        if self.privacy is None:
            return None
        clients, cohort = self.task.num_clients, self.training.cohort
        return epsilon(self.privacy.noise_multiplier, self.privacy.delta, clients, cohort, rounds)

    @property
    def remedy(self) -> str:
        """What to do where the global model is no longer finite: noise is not smaller at a lower rate."""
        lower = "training.lr" if self.privacy is None else "privacy.clip or privacy.noise_multiplier"
        return f"Lower {lower}."

    @cached_property
    def devices(self) -> tuple[torch.device, ...]:
        """The devices that workers take in turn.

        Raises:
            ConfigError: if the configured one is not there.
        """
        return devices(self.engine.device, elsewhere=self.engine.elsewhere)

    @property
    def own_device(self) -> torch.device:
        """Where this process evaluates: as a worker, unless only machines of a cluster have such a device."""
        device = self.devices[0]
        return device if device in (CPU, *cuda_devices()) else CPU

    @cached_property
    def population(self) -> Population:
        """Capacities of all clients, and what widths cost them in the policy's currency."""
        samples = self.training.local_epochs * self.task.partition.sizes()
        costs = price_list(
            self.method.policy.currency_of_budget,
            self.space,
            self.method.objective,
            self.task.capacities,
            samples.numpy(),
            self.compression,
        )
        return Population(self.task.capacities, self.task.tiers, costs)

    @cached_property
    def reachable(self) -> np.ndarray:
        """Largest width that each client can ever train under the method, [N]."""
        return self.method.policy.reachable(self.population)

    @cached_property
    def holders(self) -> Params:
        """How many clients can ever train each coordinate under the method, global shapes, at least 1."""
        return count_holders(partial(self.method.selector.reach, self.space), self.reachable)
