"""Local SGD corrected by control variates, on full models and on slices."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from widthwise.core.errors import ConfigError
from widthwise.core.params import Params, zeros_like
from widthwise.core.protocols import Space
from widthwise.core.records import ClientReport
from widthwise.training.config import TrainingConfig
from widthwise.training.objective import Local, LocalSetting, Objective, Server, gradients

CLIENT, SERVER = "client_control", "server_control"


class ControlVariates(Objective):
    """SGD whose gradients are corrected for client drift, y <- y - eta * (g_i(y) + c - c_i).

    After K steps from x to y_i the client renews its control, and the server its own (option II):

        c_i+ = c_i - c + (x - y_i) / (K * eta)
        c_j+ = c_j + (1 / N_j) * sum_{i in S, i trained j} (c_ij+ - c_ij)      for each coordinate j

    K counts optimizer steps, not epochs. All controls start at 0, live in global shapes and are sliced
    like the parameters.

    N_j is the number of clients that can ever train coordinate j (``count_holders``); at full
    width N_j = N and this is the paper's c+ = c + (|S| / N) * mean_S(c_i+ - c_i). On slices, dividing by
    N instead would leave c_j = (N_j / N) * mean of c_ij over those who hold j, and so the corrections of
    the holders would not cancel: their mean, -(1 - N_j / N) * mean c_ij, would take away most of the
    common gradient from just the coordinates that few clients hold. With N_j the invariant of SCAFFOLD,
    c_j = mean of c_ij over the clients that can hold j, is kept on every coordinate. A client that can
    hold j but has not trained it yet counts with c_ij = 0, as an unsampled client does in the paper.

    The correction is added to the gradient before clipping. Clipping and weight decay count as parts of
    the local step: x - y_i contains them, so the controls describe the steps as they were made.

    Source: Karimireddy et al. 2020 (SCAFFOLD), algorithm 1, option II, global step size 1. Departs: the
    coordinate-wise N_j above; and the engine averages updates by sample counts, where the paper averages
    plainly, so with unequal clients the corrections cancel in the plain mean only.

    Attributes:
        force_momentum: Train even where momentum makes the controls wrong.
    """

    client_state: ClassVar[tuple[str, ...]] = (CLIENT,)
    server_state: ClassVar[tuple[str, ...]] = (SERVER,)

    force_momentum: bool = False

    def check(self, training: TrainingConfig) -> None:
        """Refuse momentum unless forced.

        Raises:
            ConfigError: if momentum is on.
        """
        if training.momentum > 0 and not self.force_momentum:
            raise ConfigError(
                f"training.momentum is {training.momentum:g}, but control variates need plain SGD: with "
                f"momentum, (x - y) / (K * lr) overestimates the mean gradient by up to "
                f"{1 / (1 - training.momentum):.3g} times, and training diverges. "
                "Set training.momentum to 0 (or method.force_momentum to true to see it happen)."
            )

    def local(self, setting: LocalSetting) -> Local:
        """Return the working object of one client in one round."""
        return ControlVariatesLocal(setting)

    def server(
        self, space: Space, server_state: Mapping[str, Params], holders: Mapping[str, Tensor]
    ) -> Server:
        """Return the working object of the server in one round."""
        return ControlVariatesServer(space, server_state, holders)


class ControlVariatesServer(Server):
    """Sums the increments of the clients' controls: c_j+ = c_j + (1 / N_j) * sum_i (c_ij+ - c_ij)."""

    def __init__(self, space: Space, state: Mapping[str, Params], holders: Mapping[str, Tensor]) -> None:
        super().__init__(state)
        self._space, self._holders, self._total = space, holders, zeros_like(state[SERVER])

    def add_(self, report: ClientReport) -> None:
        """Add the increment of one client's control."""
        self._space.scatter_add_(self._total, report.state[CLIENT], report.spec)

    def finish(self) -> Mapping[str, Params]:
        """Return the server's control after the round."""
        total = self._total
        return {SERVER: {n: value + total[n] / self._holders[n] for n, value in self.state[SERVER].items()}}


class ControlVariatesLocal(Local):
    """Adds c - c_i to the gradients and reports the increment of c_i."""

    def __init__(self, setting: LocalSetting) -> None:
        super().__init__(setting)
        own, server = setting.task.state[CLIENT], setting.task.state[SERVER]
        self._correction = {name: server[name] - own[name] for name in server}

    def correct_gradients(self) -> None:
        """Add the server's control minus the client's."""
        names, _, grads = gradients(self.setting)
        torch._foreach_add_(grads, [self._correction[name] for name in names])

    def finish(self, delta: Params, num_steps: int) -> Mapping[str, Params]:
        """Return c_i+ - c_i = (x - y_i) / (K * eta) - c."""
        task = self.setting.task
        scale = -1 / (num_steps * task.config.lr)
        return {CLIENT: {name: scale * delta[name] - c for name, c in task.state[SERVER].items()}}


def count_holders(reach: Callable[[float], Mapping[str, Tensor]], reachable: np.ndarray) -> Params:
    """Return, in global shapes, how many clients can ever train each coordinate (at least 1).

    Args:
        reach: Width -> which coordinates a client of at most this width can ever train, whatever the round.
            Nested slices always hold the same ones; slices that move or are drawn anew reach more.
        reachable: [N] largest width of each client, 0 for one that never takes part, not all of them.
    """
    holders: Params = {}
    for width, count in zip(*np.unique(reachable[reachable > 0], return_counts=True), strict=True):
        for name, held in reach(float(width)).items():
            holders[name] = holders.get(name, torch.zeros(held.shape)) + float(count) * held
    return {name: value.clamp(min=1) for name, value in holders.items()}
