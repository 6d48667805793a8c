"""Stand-ins for recurrent operations while a model is exported.

A fake LSTM of torch unrolls every time step. Exporting an operation of the same schema, whose fake kernel
only makes the outputs' shapes, keeps a recurrent layer one node and the export some sixty times faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_LIBRARY = torch.library.Library("widthwise", "DEF")  # type: ignore[no-untyped-call]
_STAND_INS: dict[Any, Any] = {}


def _shapes(input: Tensor, hx: Any, params: Any, *flags: Any) -> tuple[Tensor, ...]:
    states = hx if isinstance(hx, (list, tuple)) else [hx]
    directions = 2 if flags[4] else 1  # has_biases, num_layers, dropout, train, bidirectional, batch_first
    output = input.new_empty(*input.shape[:-1], states[0].shape[-1] * directions)
    return output, *(state.clone() for state in states)


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _schema = str(getattr(torch.ops.aten, _name).input._schema).replace(f"aten::{_name}.input", _name)
    _LIBRARY.define(_schema)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"widthwise::{_name}", _shapes, lib=_LIBRARY)
    _STAND_INS[getattr(torch, _name)] = getattr(torch.ops.widthwise, _name).default


class StandIns(TorchFunctionMode):
    """Replaces the recurrent operations (on padded, not packed, sequences) by their stand-ins."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        stand_in = _STAND_INS.get(func)
        if stand_in is not None and isinstance(args[3], bool):
            return stand_in(*args)
        return func(*args, **(kwargs or {}))


def real_name(op: torch._ops.OpOverload) -> str:
    """Return the name below ``torch.ops`` of an operation, or of the one that it stands for."""
    namespace, _, name = op._schema.name.partition("::")
    if namespace == "widthwise":
        return f"aten.{name}.input"
    return f"{namespace}.{name}.{op._overloadname}"
