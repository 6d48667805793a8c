"""Where tensors lie: many of them moved in one copy, random numbers, kernels and instructions of a device.

A CUDA device works on while Python makes the next step, as long as nobody asks it for a value. So a client's
tensors travel twice only: ``upload`` waits for nothing, and ``download`` is the one place that waits.
On the CPU all of this does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from widthwise.core.blocks import kind_of, placed, seen_in

T = TypeVar("T")

CPU = torch.device("cpu")

BFLOAT16_FLAGS = ("avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16", "sve_bf16")
"""Instructions of CPUs for bfloat16, as torch calls them: the first three of x86, the others of ARM."""


def upload(values: T, device: torch.device) -> T:
    """Return values whose tensors lie on a device, moved from the host in one copy.

    Args:
        values: Tensors of the host in any nesting of dictionaries, lists and tuples; what is none stays.
        device: Where they are needed. The CPU: they are returned as they are.

    Example:
        >>> upload({"w": torch.ones(2)}, CPU)["w"].tolist()
        [1.0, 1.0]
    """
    return values if device.type == "cpu" else _moved(values, device)


def download(values: T, device: torch.device) -> T:
    """Return values whose tensors lie on the host, moved from a device in one copy; waits for it.

    Args:
        values: Tensors of the device in any nesting of dictionaries, lists and tuples; what is none stays.
        device: Where they lie. The CPU: they are returned as they are.
    """
    return values if device.type == "cpu" else _moved(values, CPU)


def _moved(values: T, device: torch.device) -> T:
    leaves, tree = tree_flatten(values)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
    for place, arrived in zip(places, carried([leaves[place] for place in places], device), strict=True):
        leaves[place] = arrived
    moved: T = tree_unflatten(leaves, tree)
    return moved


@torch.no_grad()
def carried(tensors: Sequence[Tensor], device: torch.device) -> list[Tensor]:
    """Return copies of tensors that lie on one device, on another: in a single transfer of all bytes.

    A transfer costs some ten microseconds, however small, and a model has dozens of tensors. They are
    gathered where they lie, and what arrives is seen through views. Memory of the host is pinned, so that
    towards a device nobody waits; torch keeps it until the copy is done.
    """
    if not tensors:
        return []
    source, kinds = tensors[0].device, list(map(kind_of, tensors))
    starts, size = placed(kinds)
    packed, arrived = _buffer(size, source, device), _buffer(size, device, source)
    torch._foreach_copy_(seen_in(packed, starts, kinds), list(tensors))
    arrived.copy_(packed, non_blocking=True)
    if source.type == "cuda" and device.type == "cpu":
        torch.cuda.current_stream(source).synchronize()
    return seen_in(arrived, starts, kinds)


def _buffer(size: int, device: torch.device, other: torch.device) -> Tensor:
    pinned = device.type == "cpu" and other.type == "cuda"
    return torch.empty(size, dtype=torch.uint8, device=device, pin_memory=pinned)


@contextmanager
def seeded(seed: int | None, device: torch.device = CPU) -> Iterator[None]:
    """Seed the generators of the CPU and of a device inside the context; their former states come back.

    Args:
        seed: The seed, or None to go on from where they are.
        device: Whose numbers may be drawn beside the CPU's.
    """
    own = [device.index] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=own, device_type="cuda"):
        if seed is not None:
            # Not torch.manual_seed: on a machine without CUDA it keeps each call in a list that only grows.
            torch.default_generator.manual_seed(seed)
            for index in own:
                torch.cuda.default_generators[index].manual_seed(seed)
        yield


def has_bfloat16(device: torch.device) -> bool | None:
    """Return whether a device has instructions for bfloat16, None where torch does not know.

    Every device takes bfloat16. One without such instructions converts each number to float32 and back, and
    on a CPU oneDNN may leave convolutions to code that is made to be right, not fast: the paper's CNN then
    trains more than ten times as slowly as in float32.

    torch knows it of CPUs since it has ``torch.cpu.get_capabilities`` (2.8 has not), and on x86 and ARM only.
    """
    if device.type == "cuda":
        with torch.cuda.device(device):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return None
    known = torch.cpu.get_capabilities()
    flags = [known[flag] for flag in BFLOAT16_FLAGS if flag in known]
    return any(flags) if flags else None


@contextmanager
def working_on(device: torch.device) -> Iterator[None]:
    """Make a CUDA device the current one, with convolutions that are exact and repeat themselves.

    Torch lets cuDNN round the factors of float32 convolutions to 10 bits (TF32) and sum in any order. Inside
    the context it does neither; the former settings come back. On the CPU nothing changes.
    """
    if device.type != "cuda":
        yield
        return
    exact = torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)
    with torch.cuda.device(device), exact:
        yield
