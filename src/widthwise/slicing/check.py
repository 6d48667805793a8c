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
from math import isfinite, prod, sqrt
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from widthwise.core.errors import TraceError
from widthwise.core.records import SliceSpec, ascending
from widthwise.slicing.calling import call_with, set_mode, undisturbed
from widthwise.slicing.capture import Example, leaves_of, own_error, own_failure
from widthwise.slicing.ir import Program
from widthwise.slicing.kernels import DrawnAlike
from widthwise.slicing.neutral import run

if TYPE_CHECKING:
    from widthwise.slicing.space import WidthSpace

WIDTHS = (0.25, 0.5, 0.75)
Named = tuple[str, tuple[Tensor, Tensor]]
"""What is compared, that of the model and that of the sub-model."""

_TOLERANCE = 1e-3  # of the largest output; float32 over a hundred layers
_NOISE = 1e-7  # of the largest gradient of all parameters


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
        if own := own_failure(model, example):
            raise own_error(model, own) from error
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
        one, two, three = (
            {name: _varied(_rows(x, n)) for name, x in example.tensors.items()} for n in (1, 2, 3)
        )
        uneven = _uneven(space)
        trained = _check_full(model, space, example, three, training=True)
        # A layer may want more samples than one, and a squeeze without a dimension loses the axis of one.
        few = one if _takes(model, space, example, one) else two
        outputs = _check_full(model, space, example, few, training=False)
        for spec in (*map(space.nested, WIDTHS), *uneven):
            _check_runs(model, space, few, spec, outputs, training=False)
        if len(space.forward.programs) > 1:
            _check_runs(model, space, three, uneven[0], trained, training=True)
        values = {name: _random(value) for name, value in _tensors(model).items()}
        for program in space.forward.programs:
            for spec in uneven:
                _check_masked(model, space, program, values, two, spec)


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


def _takes(model: nn.Module, space: WidthSpace, example: Example, inputs: Mapping[str, Tensor]) -> bool:
    """Return whether the model returns for a batch what it returns for others, in other numbers."""
    sub = space.assemble(_values(model), space.full()).eval()
    try:
        with torch.no_grad():
            expected, _ = _own_calls(model, _values(model), example, inputs, training=False)
            found = leaves_of(sub(*_copies(inputs).values()))
    except Exception:
        return False
    return [leaf.shape for leaf in found] == [leaf.shape for leaf in expected]


def _own_calls(
    model: nn.Module,
    own: dict[str, Tensor],
    example: Example,
    inputs: Mapping[str, Tensor],
    *,
    training: bool,
) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs of a call, and of a second one, which differ if the model remembers something."""
    with undisturbed(model), DrawnAlike():
        set_mode(model, training=training)
        torch.manual_seed(1)
        args, kwargs = example.split(_copies(inputs))
        first = leaves_of(call_with(model, own, args, kwargs))
        args, kwargs = example.split(_copies(inputs))
        with torch.no_grad():
            return first, leaves_of(call_with(model, own, args, kwargs))


def _copies(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies: a forward may write into its inputs."""
    return {name: value.clone() for name, value in inputs.items()}


def _check_full(
    model: nn.Module, space: WidthSpace, example: Example, inputs: dict[str, Tensor], *, training: bool
) -> list[Tensor]:
    """Compare the full width with the model itself. Returns the outputs."""
    own = _values(model)
    sub = space.assemble(_values(model), space.full()).train(training)
    trained = {name: p.requires_grad_() for name, p in sub.named_parameters() if p.is_floating_point()}
    for name in trained:
        own[name].requires_grad_()
    expected, expected_again = _own_calls(model, own, example, inputs, training=training)
    torch.manual_seed(1)
    found = leaves_of(sub(*_copies(inputs).values()))
    with torch.no_grad():
        found_again = leaves_of(sub(*_copies(inputs).values()))
    outputs = list(zip(expected, found, strict=True))
    kept = dict(sub.named_buffers())
    # Integers count batches, which a sub-model leaves to its owner: what reads them shows in the second call.
    buffers = {name: (own[name], kept[name]) for name in space.buffers if own[name].is_floating_point()}
    pairs = [("its output", pair) for pair in outputs]
    pairs += [("a second output", pair) for pair in zip(expected_again, found_again, strict=True)]
    pairs += [(f"its buffer {name}", pair) for name, pair in buffers.items()]
    gradients = _gradients([*outputs, *buffers.values()], own, trained) if training else []
    pairs += _unequal(gradients)
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
            found = leaves_of(sub(*_copies(inputs).values()))
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
    model: nn.Module,
    space: WidthSpace,
    program: Program,
    values: Mapping[str, Tensor],
    inputs: dict[str, Tensor],
    spec: SliceSpec,
) -> None:
    values = {n: value if value.is_floating_point() else value.clone() for n, value in values.items()}
    masked = {name: torch.zeros_like(value) for name, value in values.items() if value.is_floating_point()}
    floats = {name: values[name] for name in masked}
    space.scatter_add_(masked, space.take(floats, spec), spec)
    with torch.no_grad():
        small = run(program, space.take(values, spec), _copies(inputs), space.counts(spec))
        whole = space.counts(space.full())
        large = run(program, {**values, **masked}, _copies(inputs), whole, spec.kept)
    for one, other in zip(leaves_of(small), leaves_of(large), strict=True):
        if not _close(one, other):
            raise TraceError(
                f"a sub-model of {type(model).__name__} differs from the model whose other channels are "
                "zero, but it must be the same function. A rule of an operation is wrong: freeze the modules "
                "around it and report it."
            )


def _random(value: Tensor) -> Tensor:
    """Return values of which none is special: models start with zeros and ones."""
    if not value.is_floating_point():
        return value.clone()
    if isinstance(value, nn.Parameter):
        return (2 * torch.rand_like(value).detach() - 1) / sqrt(max(1, prod(value.shape[1:])))
    return value + torch.rand_like(value)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _values(model: nn.Module) -> dict[str, Tensor]:
    """Return the model's values: parameters, which no forward may write into, and copies of buffers."""
    return {
        **{name: value.detach() for name, value in model.named_parameters()},
        **{name: value.detach().clone() for name, value in model.named_buffers()},
    }


def _gradients(
    pairs: Sequence[tuple[Tensor, Tensor]], own: Mapping[str, Tensor], trained: Mapping[str, Tensor]
) -> list[Named]:
    """Return what each trained parameter's gradient is called, the model's and the sub-model's."""
    found = []
    for side, tensors in enumerate((own, trained)):
        outputs = [pair[side] for pair in pairs if pair[side].requires_grad]
        values = [tensors[name] for name in trained]
        grads: Sequence[Tensor | None] = [None] * len(values)
        if outputs:
            total = torch.stack([output.float().sin().sum() for output in outputs]).sum()
            grads = torch.autograd.grad(total, values, allow_unused=True)
        found.append(
            [torch.zeros_like(v) if g is None else g.to_dense() for v, g in zip(values, grads, strict=True)]
        )
    names = (f"the gradient of {name}" for name in trained)
    return list(zip(names, zip(*found, strict=True), strict=True))


def _unequal(gradients: list[Named]) -> list[Named]:
    """Return the gradients that differ by more than the rounding of the largest one of all.

    A gradient may be zero but for noise, of the size of the others' rounding.
    """
    differing = [named for named in gradients if not torch.equal(*named[1])]
    if not differing:
        return []
    noise = _NOISE * max(_largest(own) for _, (own, _) in gradients)
    return [(what, (one, other)) for what, (one, other) in differing if not _within(one, other, noise)]


def _within(one: Tensor, other: Tensor, noise: float) -> bool:
    return bool(((one - other).abs() <= noise).all())


def _close(one: Tensor, other: Tensor) -> bool:
    one, other = one.detach(), other.detach()
    if one.shape != other.shape:
        return False
    if torch.equal(one, other):
        return True
    if not one.is_floating_point():
        return False
    scale = _largest(one)
    tolerance = max(_TOLERANCE, 16 * torch.finfo(one.dtype).eps)
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * scale + 1e-30, equal_nan=True)


def _largest(x: Tensor) -> float:
    """Return the largest magnitude of the finite numbers, 1 where there are none."""
    largest = float(x.abs().max()) if x.numel() else 1.0
    if isfinite(largest):
        return largest
    finite = x[x.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 1.0
