"""Whether a forward treats each sample on its own, so that clients can be trained as one batched product."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from widthwise.slicing.ir import BATCH, Program, Shape, Step, references
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


def samplewise(program: Program, inputs: Mapping[str, Shape]) -> bool:
    """Return whether each row of the output depends on the same row of the inputs alone, and on no chance.

    Every value that depends on the inputs has the batch on its first axis (perhaps as the outer factor of a
    product), and every operation on such a value is known to work row by row.

    Args:
        program: A forward.
        inputs: Shapes of its inputs, with ``BATCH`` for the batch.
    """
    shapes = dict(inputs)
    for step in program.steps:
        operands = [shapes[name] for name in references([step.args, step.kwargs]) if name in shapes]
        if not operands:
            continue
        made = step.shape if isinstance(step.shape, list) else [step.shape or ()]
        if not all(shape and shape[0] % BATCH == 0 for shape in made) or not _rowwise(step, len(operands[0])):
            return False
        shapes[step.name] = made[0]
    return True


def _rowwise(step: Step, rank: int) -> bool:
    space, kind, *_ = step.op.split(".")
    if kind == "getitem":
        return True
    if space != "aten":  # an operation of the user's own
        return False
    schema, drawn = schema_of(step.op), kind.removesuffix("_")
    names = [argument.name for argument in schema.arguments]
    given: dict[str, Any] = {**dict(zip(names, step.args, strict=False)), **step.kwargs}
    if drawn in RANDOM or given.get("dropout_p") or (drawn in DROPOUT and given.get("p") != 0):
        return False
    known = kind in _ROWWISE.split() or find(schema.name) is elementwise
    return known and all(axis % rank for axis in _axes(given))


def _axes(given: Mapping[str, Any]) -> Iterator[int]:
    """Yield the axes that arguments name."""
    for name in ("dim", "dim0", "dim1", "start_dim"):
        axes = given.get(name)
        yield from (axis for axis in (axes if isinstance(axes, list | tuple) else [axes]) if axis is not None)
