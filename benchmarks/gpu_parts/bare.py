"""What one would write without a framework: the steps of one client on a device."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from widthwise.core.device import working_on
from widthwise.core.records import SliceSpec
from widthwise.engine import Federation


class BareLoop:
    """The steps of one client without a framework, on data that lie on the device.

    Args:
        fed: Gives the data and the training settings.
        spec: What is trained.
        device: Where.
        channels_last: The layout of convolution weights.
        graph: Whether a step is recorded once and replayed (CUDA only).
    """

    def __init__(
        self,
        fed: Federation,
        spec: SliceSpec,
        device: torch.device,
        *,
        channels_last: bool,
        graph: bool = False,
    ) -> None:
        self._config, self._bf16, self._device = fed.training, fed.engine.precision == "bf16", device
        layout = torch.channels_last if channels_last else torch.contiguous_format
        module: nn.Module = fed.space.extract(fed.task.build_model(0), spec)
        self._module = module.to(device).train().to(memory_format=layout)  # type: ignore[call-overload]
        self._params = list(self._module.parameters())
        self._momenta = [torch.zeros_like(p) for p in self._params]
        self._data = fed.task.train.to(device)
        self._order = fed.task.partition.client(0).to(device)
        self._picked = self._order[: self._config.batch_size].clone()
        self._graph = self._recorded() if graph else None

    def epoch(self) -> None:
        """Train on all samples once, in batches of equal size."""
        with working_on(self._device):
            for batch in self._order.split(self._config.batch_size):
                if len(batch) == len(self._picked):
                    self._picked.copy_(batch)
                    self._step() if self._graph is None else self._graph.replay()

    def _step(self) -> None:
        config = self._config
        inputs, targets = self._data.batch(self._picked)
        bf16 = torch.autocast(self._device.type, dtype=torch.bfloat16) if self._bf16 else nullcontext()
        with bf16:
            loss = cross_entropy(self._module(inputs), targets)
        grads = torch.autograd.grad(loss, self._params)
        with torch.no_grad():
            norm = torch.stack(torch._foreach_norm(grads)).norm()
            torch._foreach_mul_(grads, ((config.clip_norm or 1e9) / (norm + 1e-6)).clamp(max=1.0))
            torch._foreach_add_(grads, self._params, alpha=config.weight_decay)
            torch._foreach_mul_(self._momenta, config.momentum)
            torch._foreach_add_(self._momenta, grads)
            torch._foreach_add_(self._params, self._momenta, alpha=-config.lr)

    def _recorded(self) -> torch.cuda.CUDAGraph:
        side = torch.cuda.Stream(self._device)
        with working_on(self._device):
            side.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(side):
                for _ in range(3):
                    self._step()
            torch.cuda.current_stream(self._device).wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step()
        return graph
