"""Options of the engine and of a deployment: where, how often and how safely, never what is computed."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from widthwise.core.device import CPU, has_bfloat16
from widthwise.engine.devices import default_workers, present, resolved


class EngineConfig(BaseModel):
    """Where clients are trained and how often the run is evaluated and saved.

    Attributes:
        executor: ``process`` (one process per worker, one thread per client), ``serial``, or ``ray`` (one
            actor per worker, here or on a cluster; extra ``ray``).
        device: Where clients train and models are evaluated: ``cpu``; ``cuda``, all CUDA devices, which
            workers take in turn; ``cuda:N``, one of them; ``auto``, which stands for ``cuda`` where there is
            one when the configuration is read, and for ``cpu`` elsewhere.
        workers: Number of worker processes or actors; by default one per core, and four per CUDA device at
            most. No more than the cohort are started. Results do not depend on it.
        address: The Ray cluster that the executor ``ray`` joins: ``auto`` or host:port. None: one of its own
            on this machine.
        precision: ``fp32``, or ``bf16`` (autocast of the forward pass), which is slower than ``fp32`` on a
            device without instructions for it.
        stack: How many clients go to a worker together, at most: trained at once where the model treats each
            sample on its own and the objective is plain SGD; summed there where they train little and only
            the mean is asked for. The results of single clients, to rounding. 1: none.
        eval_every: Evaluate the global model every so many rounds; the last round always.
        eval_tiers_every: Evaluate every tier's sub-model every so many rounds; 0: at the end only.
        eval_batch_size: Samples per evaluation batch.
        recalibration_samples: Training samples that re-estimate batch-norm statistics of a model before
            it is evaluated (drawn once per run; unused by models without batch norm).
        checkpoint_every: Save everything every so many rounds; the last round always.
        tensorboard: Also write TensorBoard events into ``<run>/tensorboard`` (extra ``tensorboard``).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    executor: Literal["process", "serial", "ray"] = "process"
    device: str = "cpu"  # before workers, whose default follows from it
    workers: int = Field(default_factory=default_workers, ge=1)
    address: str | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    stack: int = Field(50, ge=1)
    eval_every: int = Field(1, ge=1)
    eval_tiers_every: int = Field(0, ge=0)
    eval_batch_size: int = Field(500, ge=1)
    recalibration_samples: int = Field(1000, ge=2)
    checkpoint_every: int = Field(5, ge=1)
    tensorboard: bool = False

    @field_validator("address")
    @classmethod
    def _names_a_cluster(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"auto|[^\s/]+:\d+", value):
            raise ValueError(
                f"address is {value!r}, but a Ray cluster is found at 'auto' or host:port. "
                "Write address: auto on a node of the cluster"
            )
        return value

    @field_validator("device")
    @classmethod
    def _names_a_device(cls, value: str) -> str:
        return resolved(value)

    @model_validator(mode="after")
    def _lets_ray_choose(self) -> Self:
        if self.executor == "ray" and ":" in self.device:
            raise ValueError(
                f"device is {self.device!r}, but Ray chooses the device of each actor. Write device: cuda"
            )
        return self

    @property
    def elsewhere(self) -> bool:
        """Whether workers may be on other machines, whose devices are not known here."""
        return self.executor == "ray" and self.address is not None

    @property
    def warning(self) -> str | None:
        """What speaks against the precision on the devices here, None where nothing is known to."""
        if self.precision != "bf16" or self.elsewhere:
            return None
        for device in present(self.device):
            if has_bfloat16(device) is False:
                return (
                    f"engine.precision is 'bf16', but {'this CPU' if device == CPU else device} has no "
                    "instructions for bfloat16 and emulates it, more slowly than float32. Set "
                    "engine.precision to fp32: results differ by rounding only."
                )
        return None


class DeployConfig(BaseModel):
    """What a run on real devices waits for, and what it accepts of them (``widthwise.deploy``).

    Attributes:
        deadline: Seconds that a round waits for the answers of its cohort.
        wait: Seconds that the run waits at its start for ``min_nodes``, and before it repeats a round for
            the nodes that this round needs.
        min_nodes: Clients that must be there before the first round; by default all.
        min_cohort: Answers that must count for a round to count; with fewer it is repeated.
        repeats: How often in a row a round is repeated before the run fails.
        max_examples: The most samples that a client may say it has.
        max_norm: The largest L2 norm of an update; None: any.
        max_state_norm: The largest L2 norm of what a client adds to each of its states (control variates);
            None: any.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    deadline: float = Field(600.0, gt=0, allow_inf_nan=False)
    wait: float = Field(300.0, ge=0, allow_inf_nan=False)
    min_nodes: int | None = Field(None, ge=1)
    min_cohort: int = Field(1, ge=1)
    repeats: int = Field(3, ge=0)
    max_examples: int = Field(1_000_000, ge=1)
    max_norm: float | None = Field(None, gt=0, allow_inf_nan=False)
    max_state_norm: float | None = Field(None, gt=0, allow_inf_nan=False)
