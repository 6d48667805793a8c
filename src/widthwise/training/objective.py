"""What a client minimises: the base part, and the working object of one client in one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.func import functional_call

from widthwise.core.outputs import logits_of
from widthwise.core.params import Params
from widthwise.core.protocols import Criterion, ModuleFor, Space
from widthwise.core.records import ClientReport, ClientTask, SliceSpec
from widthwise.core.traits import Trait
from widthwise.training.config import TrainingConfig
from widthwise.training.masking import effective


@dataclass(frozen=True)
class LocalSetting:
    """All that one client has at hand in one round.

    Attributes:
        task: What the server sent.
        space: The width space.
        module_for: The worker's modules.
        module: The module of ``task.spec`` in training mode, already loaded with what the client received.
        received: The received parameters in the shapes of ``task.spec``.
        criterion: The loss of outputs against targets.
    """

    task: ClientTask
    space: Space
    module_for: ModuleFor
    module: nn.Module
    received: Params
    criterion: Criterion

    def outputs(self, inputs: Tensor) -> Tensor:
        """Return the class scores of the module, under the mask of its spec if that has one."""
        mask = self.task.spec.mask
        if mask is None:
            return logits_of(self.module(inputs))
        weights = {
            name: effective(p, mask.kept[name], mask.thresholds[name]) if name in mask.kept else p
            for name, p in self.module.named_parameters()
        }
        return logits_of(functional_call(self.module, weights, (inputs,)))

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        """Return the named parameters that are trained, in the module's order."""
        return [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]


def gradients(setting: LocalSetting) -> tuple[list[str], list[Tensor], list[Tensor]]:
    """Return names, parameters and gradients of the parameters that have one, to be changed in place."""
    found = [(name, p, p.grad) for name, p in setting.trainable() if p.grad is not None]
    return [name for name, _, _ in found], [p for _, p, _ in found], [grad for _, _, grad in found]


class Local:
    """The local problem of one client in one round. Objectives override what differs from plain SGD."""

    def __init__(self, setting: LocalSetting) -> None:
        self.setting = setting

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the mean loss of one batch, to be differentiated."""
        return self.setting.criterion(self.setting.outputs(inputs), targets)

    def correct_gradients(self) -> None:
        """Change the gradients of one step in place, before clipping."""

    def finish(self, delta: Params, num_steps: int) -> Mapping[str, Params]:
        """Return the increments of this client's states, in the shapes of the trained spec."""
        return {}


class Server:
    """The server's side of an objective in one round. As it stands: its dictionaries stay as they are.

    Args:
        state: The dictionaries named in ``Objective.server_state``, in global shapes. Not changed.
    """

    def __init__(self, state: Mapping[str, Params]) -> None:
        self.state = state

    def add_(self, report: ClientReport) -> None:
        """Fold one report in; reports come in the order of the plan and are not kept."""

    def finish(self) -> Mapping[str, Params]:
        """Return the dictionaries after the round."""
        return self.state


class Objective(BaseModel):
    """Base of all local objectives: plain SGD on the criterion.

    An objective is a pure description. What it needs to remember lives outside: ``client_state`` names
    parameter dictionaries kept for each client, ``server_state`` those kept on the server. All are in
    global shapes, start at zero and reach the client as ``task.state[name]``, sliced to the trained spec.
    For each name in ``client_state`` the report carries the *increment* in ``report.state[name]``, which
    the engine scatters onto that client's dictionary; ``server`` folds the same increments.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    client_state: ClassVar[tuple[str, ...]] = ()
    server_state: ClassVar[tuple[str, ...]] = ()

    @property
    def plain(self) -> bool:
        """Whether a step is that of plain SGD: there is no ``local`` of its own.

        Clients of one shape can then be trained together, and linear layers can take the step in the backward
        pass.
        """
        return type(self).local is Objective.local

    @property
    def needs(self) -> frozenset[Trait]:
        """What the slices that clients train must be."""
        return frozenset()

    def check(self, training: TrainingConfig) -> None:
        """Refuse training settings under which this objective is not what its name says.

        Raises:
            ConfigError: if it does not work with these settings.
        """

    def for_tiers(self, tiers: tuple[float, ...]) -> Self:
        """Return the objective for a population whose capacities are these, ascending."""
        return self

    def context_width(self, width: float, capacity: float) -> float:
        """Return the width that the client must receive to train ``width`` (at least ``width``)."""
        return width

    def training_macs(self, space: Space, spec: SliceSpec, context_spec: SliceSpec) -> float:
        """Return the multiply-accumulates of one local step, per sample.

        A backward pass costs two forward passes: one for the inputs' gradients, one for the parameters'.
        """
        return 3 * space.macs(spec)

    def local(self, setting: LocalSetting) -> Local:
        """Return the working object of one client in one round."""
        return Local(setting)

    def server(
        self, space: Space, server_state: Mapping[str, Params], holders: Mapping[str, Tensor]
    ) -> Server:
        """Return the working object of the server in one round.

        Args:
            space: The width space.
            server_state: The dictionaries named in ``server_state``, in global shapes. Not changed.
            holders: How many clients can ever train each coordinate, in global shapes, at least 1; empty
                where there is no ``server_state``.
        """
        return Server(server_state)
