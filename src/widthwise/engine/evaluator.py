"""Accuracy and loss of the global model and of any sub-model of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor, nn

from widthwise.core.device import upload, working_on
from widthwise.core.errors import DivergenceError
from widthwise.core.params import load_
from widthwise.core.records import SliceSpec
from widthwise.core.threads import one_thread
from widthwise.engine.federation import Federation
from widthwise.engine.state import ServerState
from widthwise.tasks import Dataset
from widthwise.training import Evaluation, ModuleCache, evaluate, recalibrate


class Evaluator:
    """Evaluates slices of the global model on the test set.

    Clients train with batch statistics, so a model with batch norm has no running statistics of its own:
    they are re-estimated for the evaluated slice by a pass over ``recalibration_samples`` training
    samples, drawn once per run over all clients. On a real federation this costs a round of sharing
    statistics; here it reads the data of all clients.

    Args:
        fed: The federation.
    """

    def __init__(self, fed: Federation) -> None:
        self._fed, self._device = fed, fed.own_device
        self._modules = ModuleCache(fed.space, self._device)

    @cached_property
    def _test(self) -> Dataset:
        return self._fed.task.test.to(self._device)

    @cached_property
    def _sample(self) -> Tensor:
        rng = self._fed.seeds.at("recalibration").numpy()
        owned = self._fed.task.partition.held()
        size = min(self._fed.engine.recalibration_samples, len(owned))
        return owned[torch.from_numpy(rng.choice(len(owned), size=size, replace=False))]

    def _batches(self) -> Iterator[Tensor]:
        """Yield the inputs of the sample in equal batches, each of two or more: one has no variance."""
        size = len(self._sample)
        parts = max(1, min(math.ceil(size / self._fed.engine.eval_batch_size), size // 2))
        train, split = self._fed.task.train, torch.tensor_split(self._sample, parts)
        return (upload(train.batch(part)[0], self._device) for part in split)

    def calibrated(self, state: ServerState, spec: SliceSpec) -> nn.Module:
        """Return a slice of the global model with statistics of its own; the next call may overwrite it."""
        space = self._fed.space
        params, buffers = spec.masked(space.take(state.params, spec)), space.take(state.buffers, spec)
        with working_on(self._device):
            module = self._modules(spec)
            load_(module, *upload((params, buffers), self._device))
            recalibrate(module, self._batches())
        return module

    def __call__(self, state: ServerState, spec: SliceSpec) -> Evaluation:
        """Return test accuracy and mean test loss of a slice of the global model; see ``measure``."""
        return self.measure(self.calibrated(state, spec), state)

    def measure(self, module: nn.Module, state: ServerState, samples: Dataset | None = None) -> Evaluation:
        """Return accuracy and mean loss of a slice with statistics of its own.

        Args:
            module: What ``calibrated`` gave.
            state: The state of the server.
            samples: What the slice is evaluated on; by default the test set.

        Raises:
            DivergenceError: if the loss is not finite.
        """
        data, engine = self._test if samples is None else samples.to(self._device), self._fed.engine
        with working_on(self._device):
            found = evaluate(module, data, engine.eval_batch_size, engine.precision)
        if not math.isfinite(found.loss):
            raise DivergenceError(
                f"the test loss is {found.loss}, but it must be finite. {self._fed.remedy}",
                round_index=state.round_index - 1,
                stage="evaluation",
            )
        return found

    def shipped(self, state: ServerState, width: float) -> SliceSpec:
        """Return the slice that the method ships for a width.

        Raises:
            SliceError: if the width is not in (0, 1].
        """
        with one_thread():  # as where clients' slices are chosen
            return self._fed.method.selector.ship(self._fed.space, width, state.params)

    def tiers(self, state: ServerState) -> dict[str, float]:
        """Return the accuracy of the sub-model that is shipped for every tier, keyed by the tier as text."""
        tiers = sorted(self._fed.task.tiers)
        return {f"{tier:g}": self(state, self.shipped(state, tier)).accuracy for tier in tiers}
