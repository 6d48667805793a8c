"""What a worker keeps resident while a run lasts: data, width space and a few dense modules."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

import torch
from torch import nn

from widthwise.core.errors import RunError, WidthwiseError
from widthwise.core.records import ClientReport, SliceSpec
from widthwise.engine.round import Assignment, Broadcast, dispatch
from widthwise.slicing import WidthSpace
from widthwise.tasks import Dataset, Partition
from widthwise.training import Objective, train

MAX_MODULES = 16


class ModuleCache:
    """Resident dense modules, one per slice spec, the least recently used dropped beyond ``MAX_MODULES``.

    Adaptive widths are continuous, so a long run meets many specs; a module is a few milliseconds to
    build and as large as its slice.
    """

    def __init__(self, space: WidthSpace) -> None:
        self._space = space
        self._modules: OrderedDict[object, nn.Module] = OrderedDict()

    def __call__(self, spec: SliceSpec) -> nn.Module:
        """Return the module of a spec; its parameters hold whatever was loaded last."""
        key = spec.key()
        if key not in self._modules:
            self._modules[key] = self._space.module(spec)
            if len(self._modules) > MAX_MODULES:
                self._modules.popitem(last=False)
        self._modules.move_to_end(key)
        return self._modules[key]


@dataclass
class ClientRunner:
    """Trains clients one after the other.

    Attributes:
        dataset: The training samples of all clients.
        partition: Whose samples are whose.
        space: Width space of the model.
        objective: The local objective.
    """

    dataset: Dataset
    partition: Partition
    space: WidthSpace
    objective: Objective
    modules: ModuleCache = field(init=False)

    def __post_init__(self) -> None:
        self.modules = ModuleCache(self.space)

    def __call__(self, broadcast: Broadcast, assignment: Assignment) -> ClientReport:
        """Train one client on one thread and return its report.

        Raises:
            RunError: whatever went wrong, with client, round and stage; the original error is its cause.
        """
        threads = torch.get_num_threads()
        # One thread per client: the bits of a sum depend on how it is split, so serial and process
        # executors agree only at the same number of threads.
        torch.set_num_threads(1)
        try:
            return train(
                dispatch(self.space, broadcast, assignment),
                space=self.space,
                modules=self.modules,
                dataset=self.dataset,
                indices=self.partition.client(assignment.client_id),
                objective=self.objective,
            )
        except WidthwiseError:
            raise
        except Exception as error:
            raise RunError(
                f"{type(error).__name__}: {error}",
                client=assignment.client_id,
                round_index=assignment.round_index,
                stage="training",
            ) from error
        finally:
            torch.set_num_threads(threads)
