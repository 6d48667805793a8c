"""The dense modules that a worker keeps, one for each set of channel counts it has met."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from widthwise.core.device import CPU
from widthwise.core.protocols import Space
from widthwise.core.records import SliceSpec

MAX_MODULES = 16


class ModuleCache:
    """Builds the module of a spec and hands out the same one for every spec with as many channels.

    Which channels a spec keeps is a matter of the values that are loaded, so windows that roll share modules.
    Adaptive widths are continuous, so a long run meets many counts: beyond ``MAX_MODULES`` the module that
    was not asked for longest is dropped, and built anew (a few milliseconds) if it is wanted again.

    A module carries nothing from one client to the next: whoever takes it overwrites its parameters and
    buffers with ``load_``. Convolution weights are kept in channels-last order, in which convolutions on
    CPU take about a quarter less time (but see `channels_last`); results differ from the contiguous order by
    rounding only.

    Args:
        space: The width space.
        device: Where the modules lie.
    """

    def __init__(self, space: Space, device: torch.device = CPU) -> None:
        self._space, self._device = space, device
        self._modules: OrderedDict[object, nn.Module] = OrderedDict()

    def __call__(self, spec: SliceSpec) -> nn.Module:
        """Return the module of ``spec``."""
        key = tuple((group, len(kept)) for group, kept in spec.kept.items())
        if key not in self._modules:
            module = self._space.module(spec).to(self._device)
            self._modules[key] = channels_last(module)
            if len(self._modules) > MAX_MODULES:
                self._modules.popitem(last=False)
        self._modules.move_to_end(key)
        return self._modules[key]


def channels_last(module: nn.Module) -> nn.Module:
    """Put convolution weights into channels-last order, in place, where that is safe.

    oneDNN 3.12 (torch 2.13) writes beyond its memory in the backward pass of a strided 1x1 convolution of
    fewer than 8 input channels in that order: such are the shortcuts of narrow slices of a ResNet. A module
    with a 1x1 convolution so narrow stays as it is.
    """
    narrow = (p.dim() == 4 and p.shape[2:] == (1, 1) and p.shape[1] < 8 for p in module.parameters())
    if any(narrow):
        return module
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]
