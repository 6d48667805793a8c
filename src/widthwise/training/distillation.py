"""Self-distillation: a client's sub-model learns from the client's own larger network."""

from __future__ import annotations

from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import kl_div, log_softmax

from widthwise.core.outputs import logits_of
from widthwise.core.params import clone, load_
from widthwise.core.protocols import Space
from widthwise.core.records import SliceSpec
from widthwise.core.seeds import SeedTree
from widthwise.core.traits import Trait
from widthwise.training.objective import Local, LocalSetting, Objective


class Distillation(Objective):
    """A student of small width learns from labels and from the client's network of its largest width.

        loss = (1 - alpha) * CE(student, y) + alpha * T^2 * KL(softmax(teacher / T) || softmax(student / T))

    The teacher is never the full model, only what this client can hold, and no gradient flows into it from
    the second term. Where the student's width is the teacher's there is nothing to distil: loss = CE.

    ``draw: round`` (Moayedikia and Troncoso Lora, arXiv 2608.07157, section 4.1): the policy draws the
    student's width for the round; the client trains and reports that slice alone. It receives its
    capacity's slice beside, as a frozen teacher. Since nothing here teaches the teacher, alpha = 1 would
    hide the labels from every client that trains below its capacity; alpha is therefore 1/2 (our choice,
    the paper leaves it open).

    ``draw: step`` (Horvath et al. 2021, FjORD, eq. 1 and algorithm 1): the policy gives the teacher's
    width (take ``capacity``); each step draws the student's uniformly from the ``student_widths`` within
    it. The student is a slice of the same live parameters, and the loss is CE(teacher, y) + the above:
    the teacher learns from labels at every step, so alpha = 1, FjORD's best.

    Teacher and student both run in training mode, so with batch norm both use the batch's statistics.

    Source: as named; the form of the term is that of Hinton et al. 2015, where T^2 keeps the size of its
    gradient independent of T. Departs: as named.

    Attributes:
        alpha: Weight of the teacher's part; by default 1/2 where ``draw`` is round, 1 where it is step.
        temperature: T, FjORD's best is 1.
        draw: Whether a student lives for a round or for a step.
        student_widths: Widths to draw from where ``draw`` is step; by default the run's capacity tiers.
    """

    alpha: float | None = Field(None, ge=0, le=1)
    temperature: float = Field(1.0, gt=0, allow_inf_nan=False)
    draw: Literal["round", "step"] = "round"
    student_widths: tuple[Annotated[float, Field(gt=0, le=1)], ...] | None = Field(None, min_length=1)

    @property
    def needs(self) -> frozenset[Trait]:
        """Modules of their own for student and teacher; students of a step are leading channels."""
        return frozenset({Trait.DENSE, Trait.LEADING} if self.draw == "step" else {Trait.DENSE})

    def for_tiers(self, tiers: tuple[float, ...]) -> Self:
        """Return the objective with its student widths filled in."""
        return self if self.student_widths else self.model_copy(update={"student_widths": tiers})

    def context_width(self, width: float, capacity: float) -> float:
        """Return the teacher's width: the capacity for a student of the round, else what is trained."""
        return max(width, capacity) if self.draw == "round" else width

    def training_macs(self, space: Space, spec: SliceSpec, context_spec: SliceSpec) -> float:
        """Return the multiply-accumulates of one local step, per sample, the teacher's pass included.

        For students of a step, the mean over the widths that are drawn.
        """
        step = super().training_macs(space, spec, context_spec)
        if self.draw == "step":
            drawn = (space.nested(width) for width in self.drawable(spec.width))
            students = [3 * space.macs(s) if s.key() != spec.key() else 0 for s in drawn]
            return step + sum(students) / len(students)
        return step if spec.key() == context_spec.key() else step + space.macs(context_spec)

    def drawable(self, width: float) -> list[float]:
        """Return the student widths within ``width``; the width itself where there is none."""
        # 1e-9: a width with float noise is the same width.
        return [w for w in self.student_widths or () if w <= width + 1e-9] or [width]

    def local(self, setting: LocalSetting) -> Local:
        """Return the working object of one client in one round."""
        if self.draw == "step":
            return StepStudents(setting, self)
        if setting.task.spec.key() == setting.task.context_spec.key():
            return Local(setting)
        return RoundStudent(setting, self)

    def student_loss(
        self, setting: LocalSetting, student: Tensor, teacher: Tensor, targets: Tensor
    ) -> Tensor:
        """Return the student's loss from its outputs, the teacher's outputs and the labels.

        Args:
            setting: The client's setting.
            student: [B, classes] outputs that receive gradient.
            teacher: [B, classes] outputs that do not.
            targets: [B] labels.
        """
        default = 0.5 if self.draw == "round" else 1.0
        alpha = default if self.alpha is None else self.alpha
        soft = soft_loss(student, teacher.detach(), self.temperature)
        return (1 - alpha) * setting.criterion(student, targets) + alpha * soft


class RoundStudent(Local):
    """The trained slice is the student; the received slice of the client's capacity is a frozen teacher."""

    def __init__(self, setting: LocalSetting, objective: Distillation) -> None:
        super().__init__(setting)
        self._objective = objective
        self._teacher = setting.module_for(setting.task.context_spec).train()
        load_(self._teacher, setting.task.params, setting.task.buffers)

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the student's loss."""
        with torch.no_grad():
            teacher = logits_of(self._teacher(inputs))
        return self._objective.student_loss(self.setting, self.setting.outputs(inputs), teacher, targets)


class StepStudents(Local):
    """The trained slice is the teacher; each step adds the loss of a nested slice of its live parameters."""

    def __init__(self, setting: LocalSetting, objective: Distillation) -> None:
        super().__init__(setting)
        self._objective = objective
        self._choices = objective.drawable(setting.task.spec.width)
        self._rng = SeedTree(setting.task.seed).at("student").numpy()

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the teacher's loss plus, where it is narrower, that of the student of this step."""
        setting, space = self.setting, self.setting.space
        teacher = setting.outputs(inputs)
        loss = setting.criterion(teacher, targets)
        outer, spec = setting.task.spec, space.nested(float(self._rng.choice(self._choices)))
        if spec.key() == outer.key():
            return loss
        # Views of the live parameters, so that the student's gradient reaches them; its batch-norm
        # statistics are its own and are dropped.
        params = space.take_within(dict(setting.module.named_parameters()), outer, spec)
        buffers = clone(space.take_within(dict(setting.module.named_buffers()), outer, spec))
        student = functional_call(setting.module_for(spec).train(), {**params, **buffers}, (inputs,))
        return loss + self._objective.student_loss(setting, logits_of(student), teacher, targets)


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T^2 * mean over the batch of KL(softmax(teacher / T) || softmax(student / T)).

    Computed in float32 at least, whatever the outputs are in.

    Example:
        >>> outputs = torch.tensor([[1.0, 2.0]])
        >>> float(soft_loss(outputs, outputs, 2.0))
        0.0
    """
    dtype = torch.promote_types(student.dtype, torch.float32)
    student, teacher = (log_softmax(x.to(dtype) / temperature, dim=1) for x in (student, teacher))
    return temperature**2 * kl_div(student, teacher, reduction="batchmean", log_target=True)
