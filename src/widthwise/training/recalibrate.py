"""New batch-norm statistics for a module whose parameters were put together from many clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm
from torch.overrides import TorchFunctionMode

_SIGNATURE = inspect.signature(batch_norm)


class _CumulativeStatistics(TorchFunctionMode):
    """Runs every batch norm on batch statistics and averages these into its buffers with equal weights.

    Batch norms of ``nn.BatchNorm*`` arrive as ``torch.nn.functional.batch_norm``, those of a captured graph
    as the ATen operator.
    """

    num_batches = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is batch_norm:
            call = _SIGNATURE.bind(*args, **kwargs)
            call.arguments.update(training=True, momentum=1 / self.num_batches)
            return func(*call.args, **call.kwargs)
        if func is torch.ops.aten.batch_norm.default:
            # (input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled)
            args = (*args[:5], True, 1 / self.num_batches, *args[7:])
        return func(*args, **kwargs)


@torch.no_grad()
def recalibrate(module: nn.Module, inputs: Iterable[Tensor]) -> None:
    """Re-estimate the running statistics of every batch norm from the given batches, in place.

    Running mean and variance become the plain average over batches of the batch's mean and (unbiased)
    variance, which is what ``momentum=None`` does in ``nn.BatchNorm2d``; what they were before has no
    influence. Everything else runs in evaluation mode (no dropout), and the module's mode is restored. A
    module without batch norm stays as it is.

    Source: Diao et al. 2021 (HeteroFL), "static batch normalisation", section 3.2. Departs: any slice of
    the model can be recalibrated, not only the full one, on any data the caller has.

    Args:
        module: Any module; its batch norms may be ``nn.BatchNorm*`` or calls in a captured graph.
        inputs: Batches [B, ...] of model inputs. A batch norm over a single value per channel has no
            variance, so batches hold at least two samples.
    """
    was_training = module.training
    module.eval()
    with _CumulativeStatistics() as statistics:
        for batch in inputs:
            statistics.num_batches += 1
            module(batch)
    module.train(was_training)
