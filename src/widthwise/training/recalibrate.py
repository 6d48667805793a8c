"""New batch-norm statistics for a module whose parameters were put together from many clients."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, instance_norm
from torch.overrides import TorchFunctionMode

from widthwise.core.device import seeded
from widthwise.core.params import clone, load_

#: Operations with running statistics, and the name of their flag "use and update those of this batch".
#: Layers of ``nn`` arrive as functions of ``torch.nn.functional``, a captured graph's as ATen operators.
_FLAGS: dict[Any, str] = {
    batch_norm: "training",
    instance_norm: "use_input_stats",
    torch.ops.aten.batch_norm.default: "training",
    torch.ops.aten.instance_norm.default: "use_input_stats",
}


def _signature(func: Any) -> inspect.Signature:
    if isinstance(func, torch._ops.OpOverload):
        names = [argument.name for argument in func._schema.arguments]
        return inspect.Signature(
            [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
        )
    return inspect.signature(func)


_SIGNATURES = {func: _signature(func) for func in _FLAGS}


class _Statistics(TorchFunctionMode):
    """Sees every operation with running statistics and may change its arguments (``change`` does).

    Args:
        change: Gets the operation's arguments by name, and the name of its flag.
    """

    def __init__(self, change: Callable[[dict[str, Any], str], None]) -> None:
        super().__init__()
        self._change = change

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func not in _FLAGS:
            return func(*args, **(kwargs or {}))
        call = _SIGNATURES[func].bind(*args, **(kwargs or {}))
        call.apply_defaults()
        if call.arguments["running_mean"] is not None:
            self._change(call.arguments, _FLAGS[func])
        return func(*call.args, **call.kwargs)


@torch.no_grad()
def running_statistics(module: nn.Module, example: Tensor) -> dict[str, Tensor]:
    """Return the running means that a training step would change, by the names of their buffers.

    Found by one forward pass in training mode; the module and the global generator are left as they were. A
    batch norm that is frozen, which uses its stored statistics in training too, is none of them.

    Args:
        module: Any module.
        example: Inputs [B, ...]; at most two samples of it are used.
    """
    before = clone(dict(module.named_buffers()))
    found: set[int] = set()

    def note(arguments: dict[str, Any], flag: str) -> None:
        if arguments[flag]:
            found.add(id(arguments["running_mean"]))

    with seeded(None, example.device), _mode(module, training=True), _Statistics(note):
        module(torch.cat([example, example])[:2])
    load_(module, before)
    return {name: buffer for name, buffer in module.named_buffers() if id(buffer) in found}


@torch.no_grad()
def recalibrate(module: nn.Module, inputs: Iterable[Tensor]) -> None:
    """Re-estimate the running statistics of every batch norm from the given batches, in place.

    Running mean and variance become the plain average over batches of the batch's mean and (unbiased)
    variance, which is what ``momentum=None`` does in ``nn.BatchNorm2d``; what they were before has no
    influence. Everything else runs in evaluation mode (no dropout), and the module's mode is restored. A
    module whose training changes no statistics stays as it is: one without batch norm, or with frozen ones.

    Source: Diao et al. 2021 (HeteroFL), "static batch normalisation", section 3.2. Departs: any slice of
    the model can be recalibrated, not only the full one, on any data the caller has.

    Args:
        module: Any module; its batch norms may be layers of ``nn`` or calls in a captured graph. An instance
            norm with running statistics counts as one.
        inputs: Batches [B, ...] of model inputs. A batch norm over a single value per channel has no
            variance, so batches hold at least two samples.
    """
    batches = iter(inputs)
    first = next(batches)
    means = {id(buffer) for buffer in running_statistics(module, first).values()}
    if not means:
        return
    calls: Counter[int] = Counter()  # of each layer: one that is used twice in a pass averages over both

    def average(arguments: dict[str, Any], flag: str) -> None:
        layer = id(arguments["running_mean"])
        if layer in means:
            calls[layer] += 1
            arguments.update({flag: True, "momentum": 1 / calls[layer]})

    with _mode(module, training=False), _Statistics(average):
        for batch in chain([first], batches):
            module(batch)


@contextmanager
def _mode(module: nn.Module, *, training: bool) -> Iterator[None]:
    """Put a module into a mode; the former mode of each of its parts comes back afterwards."""
    modes = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, before in modes.items():
            part.training = before
