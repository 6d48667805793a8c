"""Any value as a pickle and the memory of its tensors, which is copied by nobody who reads it."""

from __future__ import annotations

import io
import pickle
import warnings
from collections import ChainMap
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Size, Tensor

from widthwise.core.blocks import ALIGNMENT

Packed = tuple[bytes, list[pickle.PickleBuffer]]


def pack(value: Any) -> Packed:
    """Return a value for ``unpack``: its tensors by reference, classes of the user's script by value."""
    from ray.cloudpickle import CloudPickler

    # A class, since a pickler reads its table when it is made.
    table: Any = ChainMap[Any, Any]({Tensor: _reduced}, CloudPickler.dispatch_table)
    pickler: Any = type("Pickler", (CloudPickler,), {"dispatch_table": table})
    buffers: list[pickle.PickleBuffer] = []
    with io.BytesIO() as file:
        pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
        return file.getvalue(), buffers


def unpack(packed: Packed) -> Any:
    """Return the value of ``pack``. Its tensors may lie in memory that others read: do not write to them."""
    data, buffers = packed
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return pickle.loads(data, buffers=buffers)


def _reduced(value: Tensor) -> Any:
    if value.requires_grad or value.layout is not torch.strided or value.device.type != "cpu":
        return value.__reduce_ex__(5)  # type: ignore[no-untyped-call]
    raw = value.contiguous().reshape(-1).view(torch.uint8).numpy()
    return _tensor, (raw, value.dtype, value.shape)


def _tensor(raw: npt.NDArray[np.uint8], dtype: torch.dtype, shape: Size) -> Tensor:
    value = torch.from_numpy(raw).view(dtype).view(shape)
    return value if value.data_ptr() % ALIGNMENT == 0 else value.clone()
