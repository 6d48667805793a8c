"""What a worker keeps resident while a run lasts: data, width space and a few dense modules."""

from __future__ import annotations

from dataclasses import dataclass, field

from widthwise.core.errors import RunError
from widthwise.core.records import ClientReport
from widthwise.core.threads import one_thread
from widthwise.engine.round import Assignment, Broadcast, dispatch
from widthwise.slicing import WidthSpace
from widthwise.tasks import Dataset, Partition
from widthwise.training import ModuleCache, Objective, train


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
    module_for: ModuleCache = field(init=False)

    def __post_init__(self) -> None:
        self.module_for = ModuleCache(self.space)

    def __call__(self, broadcast: Broadcast, assignment: Assignment) -> ClientReport:
        """Train one client on one thread and return its report.

        Raises:
            RunError: whatever went wrong, with client, round and stage; the original error is its cause.
        """
        try:
            with one_thread():
                return train(
                    dispatch(self.space, broadcast, assignment),
                    space=self.space,
                    module_for=self.module_for,
                    dataset=self.dataset,
                    indices=self.partition.client(assignment.client_id),
                    objective=self.objective,
                )
        except RunError:
            raise
        except Exception as error:
            raise RunError(
                f"{type(error).__name__}: {error}",
                client=assignment.client_id,
                round_index=assignment.round_index,
                stage="training",
            ) from error
