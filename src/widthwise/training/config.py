"""How clients train: the settings of a run and those of one round."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from widthwise.core.records import LocalConfig

#: Bounded, so that a slip of the finger is refused here and not by an overflow in the middle of a run.
Count = Annotated[int, Field(ge=1, le=10**9)]


class TrainingConfig(BaseModel):
    """The ``training:`` block of a configuration.

    Defaults are the CIFAR-10 protocol of Moayedikia and Troncoso Lora (arXiv 2608.07157, section 4.1);
    the paper does not give a batch size, 32 is ours.

    Attributes:
        rounds: Number of rounds (T).
        cohort: Clients per round.
        local_epochs: Passes of a client over its samples in one round (K).
        batch_size: Samples per optimizer step.
        lr: Learning rate of SGD in round 0 (eta).
        lr_decay: Factor on the learning rate from one round to the next.
        momentum: Momentum of SGD. Its buffer starts anew for every client and round.
        weight_decay: L2 coefficient, applied to the coordinates that the client trains.
        clip_norm: Largest norm of the whole gradient in one step, or None for no clipping.
        batch_norm: What becomes of batch-norm statistics. ``recalibrate``: clients train with those of their
            batches and keep and report none; the server estimates them anew for each slice that it evaluates.
            ``refuse``: a model that has any is refused.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: Count = 200
    cohort: Count = 10
    local_epochs: Count = 5
    batch_size: Count = 32
    lr: float = Field(0.01, gt=0, allow_inf_nan=False)
    lr_decay: float = Field(0.995, gt=0, le=1)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(1e-4, ge=0, allow_inf_nan=False)
    clip_norm: float | None = Field(10.0, gt=0, allow_inf_nan=False)
    batch_norm: Literal["recalibrate", "refuse"] = "recalibrate"

    def local(self, round_index: int, precision: str = "fp32") -> LocalConfig:
        """Return the settings of one round: lr * lr_decay ** round_index.

        Example:
            >>> TrainingConfig(lr=0.1, lr_decay=0.5).local(2).lr
            0.025
        """
        return LocalConfig(
            local_epochs=self.local_epochs,
            batch_size=self.batch_size,
            lr=self.lr * self.lr_decay**round_index,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            precision=precision,
        )
