"""The frozen records of one round. They are values: each can be sent, stored, compared and replayed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from widthwise.core.params import Params


@dataclass(frozen=True, eq=False)
class Mask:
    """Single coordinates that are kept: masked compute in the full module, not a smaller one.

    Attributes:
        kept: Parameter name -> bool tensor of the global shape. A parameter without an entry is kept whole.
        thresholds: Parameter name -> the smallest magnitude that was kept when the mask was made.
    """

    kept: Mapping[str, Tensor]
    thresholds: Mapping[str, float]


@dataclass(frozen=True)
class SliceSpec:
    """Which channels of each channel group a sub-model keeps.

    Attributes:
        width: The fraction of channels that was asked for, in (0, 1].
        kept: Channel group name -> kept channel indices in ascending order. A ``range`` where they are
            contiguous (always so for nested specs), so that a slice is a view.
        mask: Which coordinates are kept beside that, or None where ``kept`` says it all. A spec with a mask
            keeps every channel: its tensors have global shapes and are zero outside the mask.
    """

    width: float
    kept: Mapping[str, Sequence[int]]
    mask: Mask | None = None

    def key(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return a hashable identity: two specs with the same key give dense modules of the same channels."""
        return self._key

    @cached_property
    def _key(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple(
            (g, (-1, k.start, k.stop, k.step) if isinstance(k, range) else tuple(k))
            for g, k in self.kept.items()
        )

    def masked(self, tensors: Mapping[str, Tensor]) -> Params:
        """Return tensors in the shapes of this spec with zeros outside its mask; as they are without one."""
        mask = self.mask.kept if self.mask else {}
        # Not a product: 0 * inf is no number.
        return {n: torch.where(mask[n], v, 0.0) if n in mask else v for n, v in tensors.items()}


def ascending(channels: Iterable[int]) -> Sequence[int]:
    """Return distinct channels in ascending order, as a ``range`` where they are contiguous.

    Example:
        >>> ascending([3, 2]), ascending([0, 5])
        (range(2, 4), (0, 5))
    """
    ordered = sorted(channels)
    contiguous = bool(ordered) and ordered[-1] - ordered[0] + 1 == len(ordered)
    return range(ordered[0], ordered[-1] + 1) if contiguous else tuple(ordered)


@dataclass(frozen=True)
class Cohort:
    """The clients of one round, in ascending order of their ids."""

    round_index: int
    client_ids: tuple[int, ...]


@dataclass(frozen=True)
class LocalConfig:
    """How a client trains in one round (the learning rate is already decayed for the round)."""

    local_epochs: int
    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    clip_norm: float | None
    precision: str = "fp32"


@dataclass(frozen=True)
class ClientTask:
    """What the server sends to a client: also the wire message.

    Attributes:
        client_id: Index of the client.
        round_index: Round, from 0.
        spec: The slice that the client trains and reports.
        context_spec: The slice that the client receives. It contains ``spec``, and is larger only where
            the objective needs more (a distillation teacher at the client's own capacity).
        capacity: The client's largest width.
        params: Parameters of ``context_spec``.
        buffers: Buffers of ``context_spec`` (batch-norm statistics).
        state: Further parameter dictionaries that the objective needs, already sliced to ``spec``
            (for example control variates).
        config: How to train.
        seed: Root of this client's random stream in this round.
    """

    client_id: int
    round_index: int
    spec: SliceSpec
    context_spec: SliceSpec
    capacity: float
    params: Params
    buffers: Params
    state: Mapping[str, Params]
    config: LocalConfig
    seed: int


@dataclass(frozen=True)
class ClientReport:
    """What a client answers.

    Attributes:
        client_id: Index of the client.
        round_index: Round, from 0.
        spec: The slice that ``delta`` lives on.
        delta: Local minus received parameters, in the shapes of ``spec``.
        num_examples: Training samples of the client (n_i), at least 1.
        num_steps: Optimizer steps taken (K).
        metrics: Scalars, at least ``loss`` (mean over all local batches).
        state: Further parameter dictionaries for the server in the shapes of ``spec``.
    """

    client_id: int
    round_index: int
    spec: SliceSpec
    delta: Params
    num_examples: int
    num_steps: int
    metrics: Mapping[str, float]
    state: Mapping[str, Params] = field(default_factory=dict)


@dataclass(frozen=True)
class SummedReports:
    """Answers of clients that trained the same slice, summed where they were trained.

    Attributes:
        spec: The slice of all of them.
        total: sum_i w_i delta_i in the shapes of ``spec``, in the dtype of the updates (float32 at least).
        weight: sum_i w_i.
        client_ids: Whose they are, in the order of their assignments.
        num_examples: n_i of each.
        losses: The metric ``loss`` of each.
    """

    spec: SliceSpec
    total: Params
    weight: float
    client_ids: tuple[int, ...]
    num_examples: tuple[int, ...]
    losses: tuple[float, ...]


@dataclass(frozen=True)
class CompressedReport:
    """What a client sends in place of its report where updates are compressed.

    It names no slice: the server knows which one it has assigned.

    Attributes:
        client_id: Index of the client.
        round_index: Round, from 0.
        delta: The pieces that ``ClientReport.delta`` has become (``compression``): name -> vector.
        num_examples: As in ``ClientReport``.
        num_steps: As in ``ClientReport``.
        metrics: As in ``ClientReport``.
        state: The pieces of each further dictionary of the report.
    """

    client_id: int
    round_index: int
    delta: Params
    num_examples: int
    num_steps: int
    metrics: Mapping[str, float]
    state: Mapping[str, Params] = field(default_factory=dict)


Answer = ClientReport | CompressedReport | SummedReports
"""What comes back from clients: of one, or of several."""


NOT_IN_EVERY_RUN = ("budget", "spent", "params", "epsilon", "clipped", "dropped")
"""Fields of a ``RoundRecord`` that are left out where they are None."""


@dataclass(frozen=True)
class Dropped:
    """An answer that does not count, or that never came: the round goes on without it.

    Attributes:
        client_id: Index of the client.
        round_index: Round, from 0.
        kind: One word, by which such cases are counted.
        reason: What was wrong.
    """

    client_id: int
    round_index: int
    kind: str
    reason: str


@dataclass(frozen=True)
class RoundRecord:
    """One line of ``rounds.jsonl``.

    Attributes:
        round: Index from 0.
        accuracy: Test accuracy of the global model after the round, None where not evaluated.
        loss: Its mean test loss, None where not evaluated.
        mean_width: Mean of the widths that the cohort trained, 0 for a client that stayed out.
        coverage: Share of the global coordinates that the cohort trained.
        bytes_up: Bytes sent by the cohort.
        bytes_down: Bytes sent to the cohort.
        macs: Multiply-accumulates of local training (a training step counts as three forward passes).
        seconds: Wall time of the round, evaluation included.
        train_loss: Mean loss of local training, weighted by samples; None where nobody trained.
        ever_covered: Share of the global coordinates that anybody has trained so far.
        tier_accuracy: Tier -> accuracy of its sub-model, None where not evaluated.
        estimate_mean: Mean smoothed estimate over all clients, None before the first measurement.
        budget: What a client of the cohort was to cost on average, in the currency of the policy's budget;
            None where it has none.
        spent: What it did cost.
        params: Parameters of all slices that the cohort trained; only where updates are compressed, since
            elsewhere ``bytes_up`` tells it.
        epsilon: What the run has spent of its privacy so far, at the configured delta; only under privacy.
        clipped: Share of the cohort's updates that were longer than the clip; only under privacy.
        dropped: Kind -> how many answers of the cohort did not count or never came; None where all did.
    """

    round: int
    accuracy: float | None
    loss: float | None
    mean_width: float
    coverage: float
    bytes_up: int
    bytes_down: int
    macs: int
    seconds: float
    train_loss: float | None
    ever_covered: float
    tier_accuracy: Mapping[str, float] | None = None
    estimate_mean: float | None = None
    budget: float | None = None
    spent: float | None = None
    params: int | None = None
    epsilon: float | None = None
    clipped: float | None = None
    dropped: Mapping[str, int] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as a JSON-able dictionary, without the figures that not every run has."""
        content = {**self.__dict__, "tier_accuracy": self.tier_accuracy and dict(self.tier_accuracy)}
        return {k: v for k, v in content.items() if v is not None or k not in NOT_IN_EVERY_RUN}
