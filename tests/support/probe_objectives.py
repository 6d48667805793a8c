"""Objectives that misbehave, for the process that a probe watches; it imports them by name."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import Tensor

from widthwise.training.objective import Local, LocalSetting, Objective

MOST = 2**31  # bytes that are hoarded at most: a watcher that does not watch must not take the machine down


class Hoarding(Objective):
    """Takes 16 MiB every hundredth of a second."""

    def local(self, setting: LocalSetting) -> Local:
        return _Hoarder(setting)


class _Hoarder(Local):
    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        kept: list[Tensor] = []
        while sum(one.nbytes for one in kept) < MOST:
            kept.append(torch.ones(2**22))
            time.sleep(0.01)
        raise AssertionError("nobody has ended this process")


class Hanging(Objective):
    """Never ends its first step."""

    def local(self, setting: LocalSetting) -> Local:
        return _Hanger(setting)


class _Hanger(Local):
    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        time.sleep(3600)
        raise AssertionError("nobody has ended this process")


class Refused(Objective):
    """Asks for more memory than any machine has addresses for."""

    def local(self, setting: LocalSetting) -> Local:
        torch.empty(2**50)
        return Local(setting)


class Killed(Objective):
    """Ends as the kernel ends a process when the machine has no more memory."""

    def local(self, setting: LocalSetting) -> Local:
        os.kill(os.getpid(), signal.SIGKILL)
        return Local(setting)


class Broken(Objective):
    """Fails for a reason that says nothing about a width."""

    def local(self, setting: LocalSetting) -> Local:
        raise ValueError("no such layer")
