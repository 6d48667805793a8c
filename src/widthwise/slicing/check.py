"""The self-check after tracing: sub-models run, and do what the mathematics says they must.

A sub-model of width w must equal the full model whose dropped coordinates are zero (the *masked* model),
except where a value depends on how many channels are kept: a norm over channels, a mean over them. Such steps
are marked when they are labelled (``Step.mixes``); in both models they are replaced by a part for which the
statement holds, so that everything around them is checked too: a norm by its scale and shift, anything else
by ones. Where activations are multiplied and summed over channels (``Step.sums``), the dropped ones are set
to zero first: an activation function may have made something of them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from widthwise.core.errors import TraceError
from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing.calling import call_with, set_mode, undisturbed
from widthwise.slicing.capture import Example
from widthwise.slicing.ir import (
    BATCH,
    BatchSize,
    GroupCount,
    InputDevice,
    Made,
    ModelDtype,
    Program,
    Ref,
    Size,
    Step,
    transform,
)
from widthwise.slicing.layout import kept_positions
from widthwise.slicing.program import function_of
from widthwise.slicing.rules.base import schema_of

if TYPE_CHECKING:
    from widthwise.slicing.space import WidthSpace

WIDTHS = (0.25, 0.5, 0.75)
_DROPOUT = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout"}
_RANDOM = """
bernoulli cauchy exponential geometric log_normal multinomial normal poisson rand rand_like randint
randint_like randn randn_like random randperm rrelu uniform
"""
_TOLERANCE = 1e-3  # of the largest output; float32 over a hundred layers


def self_check(model: nn.Module, space: WidthSpace, example: Example) -> None:
    """Check a traced model on its example inputs.

    At full width outputs, buffers and gradients are the model's own, in both modes and for another batch
    size; at smaller widths the sub-model runs with outputs of the same shapes and equals the masked model.

    Raises:
        TraceError: if one of this is not so: the forward depends on something that tracing cannot see, or a
            rule is wrong.
    """
    try:
        _check_all(model, space, example)
    except TraceError:
        raise
    except Exception as error:
        raise TraceError(
            f"the traced {type(model).__name__} cannot be compared with the model itself "
            f"({type(error).__name__}: {str(error).splitlines()[0]}), but a slice must do what the model "
            "does. Look whether its forward changes its own parameters."
        ) from error


def _check_all(model: nn.Module, space: WidthSpace, example: Example) -> None:
    devices = sorted({x.device.index or 0 for x in example.tensors.values() if x.is_cuda})
    with torch.random.fork_rng(devices), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the model's own warnings come when it is used
        torch.manual_seed(0)
        two, three = ({name: _varied(_rows(x, n)) for name, x in example.tensors.items()} for n in (2, 3))
        uneven = _uneven(space)
        trained = _check_full(model, space, example, three, training=True)
        outputs = _check_full(model, space, example, two, training=False)
        for spec in (*map(space.nested, WIDTHS), *uneven):
            _check_runs(model, space, two, spec, outputs, training=False)
        if len(space.forward.programs) > 1:
            _check_runs(model, space, three, uneven[0], trained, training=True)
        for program in space.forward.programs:
            for spec in uneven:
                _check_masked(model, space, program, two, spec)


def _uneven(space: WidthSpace) -> list[SliceSpec]:
    """Return slices, in one of which at least two groups of one size keep other channels than each other.

    Leading channels are the same in all groups: what should be one group and is two would not be noticed.
    In the first slice groups of one size n differ in how many channels they keep and in which, as long as
    there are no more than n (n - 1) of them; a further slice tells those apart that are alike in it.
    """
    sizes: Counter[int] = Counter()
    ranks: dict[str, int] = {}
    for group in space.groups:
        ranks[group.name] = sizes[group.size]
        sizes[group.size] += 1
    found: list[SliceSpec] = []
    while not found or any(ranks.values()):
        kept = {group.name: _some(group.size, ranks[group.name]) for group in space.groups}
        found.append(SliceSpec(WIDTHS[1], kept))
        ranks = {
            group.name: ranks[group.name] // max(2, group.size * (group.size - 1)) for group in space.groups
        }
    return found


def _some(size: int, rank: int) -> Sequence[int]:
    """Return channels of a group, others for every rank below size * (size - 1)."""
    length = 1 + (size // 2 + rank) % max(1, size - 1)
    return ascending((rank + i) % size for i in range(length))


def _varied(x: Tensor) -> Tensor:
    """Return the example with noise: a check on zeros or equal rows would see little."""
    return x + torch.rand_like(x) if x.is_floating_point() else x


def _rows(x: Tensor, rows: int) -> Tensor:
    return torch.cat([x] * rows)[:rows] if x.ndim else x


def _own_call(
    model: nn.Module, own: dict[str, Tensor], example: Example, inputs: Mapping[str, Tensor], training: bool
) -> list[Tensor]:
    with undisturbed(model):
        set_mode(model, training=training)
        torch.manual_seed(1)
        args, kwargs = example.split(_copies(inputs))
        return _leaves(call_with(model, own, args, kwargs))


def _copies(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies: a forward may write into its inputs."""
    return {name: value.clone() for name, value in inputs.items()}


def _check_full(
    model: nn.Module, space: WidthSpace, example: Example, inputs: dict[str, Tensor], *, training: bool
) -> list[Tensor]:
    """Compare the full width with the model itself. Returns the outputs."""
    own = _values(model)
    before = dict(own)
    sub = space.assemble(_values(model), space.full()).train(training)
    trained = {name: p.requires_grad_() for name, p in sub.named_parameters() if p.is_floating_point()}
    for name in trained:
        own[name].requires_grad_()
    expected = _own_call(model, own, example, inputs, training)
    torch.manual_seed(1)
    found = _leaves(sub(*_copies(inputs).values()))
    outputs = list(zip(expected, found, strict=True))
    kept = dict(sub.named_buffers())
    # Integers count batches, which a sub-model leaves to its owner; they must decide nothing.
    buffers = {name: (own[name], kept[name]) for name in space.buffers if own[name].is_floating_point()}
    pairs = [("its output", pair) for pair in outputs]
    pairs += [(f"its buffer {name}", pair) for name, pair in buffers.items()]
    counted = {name: own[name] for name in space.buffers if not own[name].is_floating_point()}
    if any(not torch.equal(value, before[name]) for name, value in counted.items()):
        again = _own_call(model, {**_values(model), **counted}, example, inputs, training)
        pairs += [("its output of a second call", pair) for pair in zip(expected, again, strict=True)]
    if training:
        pairs += _gradients([*outputs, *buffers.values()], own, trained)
    for what, (one, other) in pairs:
        if not _close(one, other):
            raise TraceError(
                f"the traced {type(model).__name__} differs from the model itself in "
                f"{'training' if training else 'evaluation'} on a batch of "
                f"{len(next(iter(inputs.values())))} samples in {what}, but both must do the same for every "
                "input. Its forward depends on the batch size, on a hidden state or on the values of its "
                "inputs, or has a gradient of its own (torch.autograd.Function). Take the batch from "
                "x.shape[0], write branches with torch.where, and run a model once before whose first "
                "forward fills its buffers."
            )
    return found


def _check_runs(
    model: nn.Module,
    space: WidthSpace,
    inputs: dict[str, Tensor],
    spec: SliceSpec,
    full: list[Tensor],
    *,
    training: bool,
) -> None:
    sub = space.assemble(space.take(_values(model), spec), spec).train(training)
    kept = f"width {spec.width}" if spec == space.nested(spec.width) else "a slice of other channels"
    place = f"the sub-model of {type(model).__name__} at {kept}"
    try:
        with torch.no_grad():
            found = _leaves(sub(*_copies(inputs).values()))
    except Exception as error:
        raise TraceError(
            f"{place} does not run ({type(error).__name__}: {str(error).splitlines()[0]}), but every width "
            "must. A rule of an operation is wrong or missing: freeze the modules around it and report it."
        ) from error
    if [leaf.shape for leaf in found] != [leaf.shape for leaf in full]:
        raise TraceError(
            f"{place} returns other shapes than the model, but outputs are never cut. "
            "A rule of an operation is wrong: freeze the modules around it and report it."
        )
    if not all(one.isfinite().all() for one in found) and all(one.isfinite().all() for one in full):
        raise TraceError(
            f"{place} returns numbers that are not finite, but those of the model are. It keeps too few "
            "channels for a statistic over them, such as a standard deviation: give their group a floor of 2."
        )


def _check_masked(
    model: nn.Module, space: WidthSpace, program: Program, inputs: dict[str, Tensor], spec: SliceSpec
) -> None:
    values = {name: _random(value) for name, value in _tensors(model).items()}
    masked = {name: torch.zeros_like(value) for name, value in values.items() if value.is_floating_point()}
    floats = {name: values[name] for name in masked}
    space.scatter_add_(masked, space.take(floats, spec), spec)
    with torch.no_grad():
        small = run(program, space.take(values, spec), _copies(inputs), space.counts(spec))
        whole = space.counts(space.full())
        large = run(program, {**values, **masked}, _copies(inputs), whole, spec.kept)
    for one, other in zip(_leaves(small), _leaves(large), strict=True):
        if not _close(one, other):
            raise TraceError(
                f"a sub-model of {type(model).__name__} differs from the model whose other channels are "
                "zero, but it must be the same function. A rule of an operation is wrong: freeze the modules "
                "around it and report it."
            )


def run(
    program: Program,
    tensors: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    counts: Mapping[str, int],
    kept: Mapping[str, Sequence[int]] | None = None,
) -> Any:
    """Interpret a program, steps that mix channels replaced by their neutral parts.

    With ``kept``, operands over whose channels a step sums are zero outside the kept ones.
    """
    values: dict[str, Any] = {**program.constants, **tensors}
    values.update(zip(program.inputs, inputs.values(), strict=True))
    first = values[program.inputs[0]]
    dtype = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.get_default_dtype())

    def bind(leaf: Any) -> Any:
        match leaf:
            case Ref(name):
                return values[name]
            case Size() | GroupCount():
                size = leaf.at(counts)
                return size // BATCH * first.shape[0] if size % BATCH == 0 else size
            case BatchSize(times):
                return times * first.shape[0]
            case InputDevice():
                return first.device
            case ModelDtype():
                return dtype
            case Made(kind, fields):
                return kind(**fields)
            case _:
                return leaf

    for step in program.steps:
        args, kwargs = transform(_without_dropout(step), bind)
        if kept is not None:
            args = list(args)
            for position, dim, layout in step.sums:
                args[position] = _only(args[position], dim, kept_positions(layout, counts, kept))
        value = function_of(step.op)(*args, **kwargs)
        if _kind(step) in _DROPOUT:
            value = args[0]
        elif step.mixes or _kind(step) in _RANDOM.split():
            value = _neutral(step, args, value)
        values[step.name] = value
    return transform(program.output, bind)


def _without_dropout(step: Step) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a step, those that make it drop something at random being 0."""
    args, kwargs = list(step.args), dict(step.kwargs)
    if step.op.startswith("aten."):
        for position, argument in enumerate(schema_of(step.op).arguments):
            if argument.name in ("dropout", "dropout_p"):
                if position < len(args):
                    args[position] = 0.0
                elif argument.name in kwargs:
                    kwargs[argument.name] = 0.0
    return args, kwargs


def _kind(step: Step) -> str:
    return step.op.split(".")[1].removesuffix("_")


def _only(x: Any, dim: int, positions: Sequence[int]) -> Any:
    kept = torch.zeros(x.shape[dim], dtype=torch.bool, device=x.device)
    kept[list(positions)] = True
    return x.masked_fill(~kept.reshape(-1, *[1] * (-dim - 1)), 0.0)


def _neutral(step: Step, args: Sequence[Any], value: Any) -> Any:
    kind = _kind(step)
    if kind not in ("group_norm", "layer_norm", "rms_norm"):
        return pytree.tree_map(torch.ones_like, value)
    x, _, *affine = args
    scale, shift = (*affine, None, None)[:2]
    if kind == "group_norm":  # its channels are axis 1, those of the others the last axes
        scale, shift = (v if v is None else v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, shift))
    x = x if scale is None else x * scale
    return x if shift is None or kind == "rms_norm" else x + shift


def _random(value: Tensor) -> Tensor:
    """Return values of which none is special: models start with zeros and ones."""
    if not value.is_floating_point():
        return value
    if isinstance(value, nn.Parameter):
        return (2 * torch.rand_like(value).detach() - 1) / sqrt(max(1, prod(value.shape[1:])))
    return value + torch.rand_like(value)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _values(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's values: parameters as they are, since no forward changes them, buffers as copies."""
    return {
        **{name: value.detach() for name, value in model.named_parameters()},
        **{name: value.detach().clone() for name, value in model.named_buffers()},
    }


def _leaves(output: Any) -> list[Tensor]:
    """Return the tensors of an output, whatever containers they are in."""
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)]


def _gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], own: Mapping[str, Tensor], trained: Mapping[str, Tensor]
) -> list[tuple[str, tuple[Tensor, Tensor]]]:
    """Return what each trained parameter's gradient is called, the model's and the sub-model's."""
    found = []
    for side, tensors in enumerate((own, trained)):
        outputs = [pair[side] for pair in pairs if pair[side].requires_grad]
        values = [tensors[name] for name in trained]
        grads: Sequence[Tensor | None] = [None] * len(values)
        if outputs:
            total = torch.stack([output.float().sin().sum() for output in outputs]).sum()
            grads = torch.autograd.grad(total, values, allow_unused=True)
        found.append([torch.zeros_like(v) if g is None else g for v, g in zip(values, grads, strict=True)])
    names = (f"the gradient of {name}" for name in trained)
    return list(zip(names, zip(*found, strict=True), strict=True))


def _close(one: Tensor, other: Tensor) -> bool:
    one, other = (x.detach().to_dense() if x.is_sparse else x.detach() for x in (one, other))
    if one.shape != other.shape:
        return False
    if torch.equal(one, other):
        return True
    if not one.is_floating_point():
        return False
    finite = one[one.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    tolerance = max(_TOLERANCE, 16 * torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale + 1e-30, equal_nan=True)
