"""Whether a forward treats each sample on its own, so that clients can be trained as one batched product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from widthwise.slicing.ir import BATCH, BatchSize, Program, Shape, Size, Step, references, transform
from widthwise.slicing.rules.base import find, schema_of
from widthwise.slicing.rules.elementwise import DROPOUT, RANDOM, elementwise

# Row by row over axis 0, without randomness, and batched by torch.func.vmap as one larger operation.
# Convolutions are not among them: those of several clients are a grouped convolution, which gains nothing.
_ROWWISE = """
    _unsafe_view addmm alias baddbmm bmm cat chunk clone contiguous detach embedding expand expand_as flatten
    getitem layer_norm linear log_softmax matmul mean movedim permute reshape rms_norm
    scaled_dot_product_attention select slice softmax split split_with_sizes squeeze stack sum to transpose
    type_as unflatten unsqueeze view
"""


# vmap knows no others, and a 0 is the default of some schemas.
_FORMATS = {None, 0, torch.contiguous_format, torch.preserve_format}

# Of an embedding: what makes its gradient depend on all rows, or is lost when vmap joins the tables.
_EMBEDDING = {"padding_idx": -1, "scale_grad_by_freq": False, "sparse": False}


def samplewise(program: Program, inputs: Mapping[str, Shape]) -> bool:
    """Return whether each row of the output depends on the same row of the inputs alone, and on no chance.

    Every value that has the batch in its shape has it on the first axis alone (perhaps as the outer factor of
    a product), every operation on such a value is known to work row by row, and nothing is computed from how
    many rows there are.

    Args:
        program: A forward.
        inputs: Shapes of its inputs, with ``BATCH`` for the batch.
    """
    shapes = dict(inputs)
    for step in program.steps:
        operands = [name for name in references([step.args, step.kwargs]) if name in shapes]
        made = step.shape if isinstance(step.shape, list) else [step.shape or ()]
        if _draws_or_counts(step) or (operands and not _rowwise(step, shapes, operands[0])):
            return False
        if operands or any(size % BATCH == 0 for shape in made for size in shape):
            if not all(_by_rows(shape) for shape in made):
                return False
            shapes[step.name] = made[0]
    return True


def _by_rows(shape: Shape) -> bool:
    """Return whether the batch is on the first axis, and on no other one."""
    return bool(shape) and shape[0] % BATCH == 0 and all(size % BATCH for size in shape[1:])


def _draws_or_counts(step: Step) -> bool:
    """Return whether chance, or the number of rows as a number, has a part in an operation."""
    space, kind, *_ = step.op.split(".")
    if space != "aten":
        return False
    schema, drawn, given = schema_of(step.op), kind.removesuffix("_"), _given(step)
    if drawn in RANDOM or given.get("dropout_p") or (drawn in DROPOUT and given.get("p") != 0):
        return True
    numbers = [given[one.name] for one in schema.arguments if str(one.real_type) != "List[int]"]
    return _counts_rows(numbers)


def _counts_rows(value: Any) -> bool:
    found: list[Any] = []
    transform(value, found.append)
    return any(isinstance(leaf, BatchSize) or (isinstance(leaf, Size) and leaf.has_batch) for leaf in found)


def _given(step: Step) -> dict[str, Any]:
    """Return the arguments of an operation of torch by name, with the defaults of those that are left out."""
    arguments = schema_of(step.op).arguments
    defaults = {one.name: one.default_value for one in arguments}
    return {**defaults, **dict(zip(defaults, step.args, strict=False)), **step.kwargs}


def _rowwise(step: Step, shapes: Mapping[str, Shape], first: str) -> bool:
    space, kind, *_ = step.op.split(".")
    if kind == "getitem":
        return True
    if space != "aten":  # an operation of the user's own
        return False
    given, rank = _given(step), len(shapes[first])
    known = kind in _ROWWISE.split() or find(schema_of(step.op).name) is elementwise
    if not known or given.get("memory_format") not in _FORMATS:
        return False
    if kind == "embedding" and (
        first == given["weight"].name or any(given[name] != value for name, value in _EMBEDDING.items())
    ):
        return False
    return all(axis % rank for axis in _axes(kind, given))


def _axes(kind: str, given: Mapping[str, Any]) -> Iterator[int]:
    """Yield the axes along which positions meet."""
    if kind == "scaled_dot_product_attention":
        yield -2
    for name in ("dim", "dim0", "dim1", "start_dim"):
        axes = given.get(name)
        yield from (axis for axis in (axes if isinstance(axes, list | tuple) else [axes]) if axis is not None)
