"""Local SGD held near the received parameters."""

from __future__ import annotations

import torch
from pydantic import Field

from widthwise.training.objective import Local, LocalSetting, Objective, gradients


class Proximal(Objective):
    """Plain SGD plus a pull back to the received parameters: f_i(w) + (mu / 2) * ||w - w_t||^2.

    On a sub-model, w_t is the client's slice of the global parameters. The pull enters as the gradient
    mu * (w - w_t), before clipping; the reported loss is f_i alone.

    Source: Li et al. 2020 (FedProx), eq. 2; mu = 1 as in Moayedikia and Troncoso Lora, arXiv 2608.07157,
    section 4.1 (there is no universal value; .001 to 1 are usual). Departs: K epochs of SGD as for all
    methods here, instead of an inexact minimiser.

    Attributes:
        mu: Strength of the pull.
    """

    mu: float = Field(1.0, ge=0, allow_inf_nan=False)

    def local(self, setting: LocalSetting) -> Local:
        """Return the working object of one client in one round."""
        return ProximalLocal(setting, self.mu)


class ProximalLocal(Local):
    """Adds mu * (w - w_t) to the gradients."""

    def __init__(self, setting: LocalSetting, mu: float) -> None:
        super().__init__(setting)
        self.mu = mu

    def correct_gradients(self) -> None:
        """Add the gradient of the proximal term."""
        names, parameters, grads = gradients(self.setting)
        anchors = [self.setting.received[name] for name in names]
        with torch.no_grad():
            torch._foreach_add_(grads, torch._foreach_sub(parameters, anchors), alpha=self.mu)
