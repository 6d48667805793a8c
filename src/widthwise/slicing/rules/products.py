"""Products of two activations: where channels of one are summed against those of the other."""

from __future__ import annotations

import math

from widthwise.slicing.axes import fixed_axis, product, resolve, size_of
from widthwise.slicing.rules.base import Call, Labels, rule


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot")
def matmul(call: Call) -> Labels:
    """C[..., n, m] = sum_k a[..., n, k] b[..., k, m], the leading axes broadcast."""
    other = next(name for name in ("other", "mat2", "vec", "tensor") if name in call)
    return _matmul(call, "self", other)


@rule("addmm", "baddbmm", "addmv")
def addmm(call: Call) -> Labels:
    """A matrix product plus a broadcast tensor."""
    pairs = (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec"))
    first, second = next(pair for pair in pairs if pair[0] in call)
    return tuple(call.broadcast(_matmul(call, first, second), call["self"]))


def _matmul(call: Call, first: str, second: str) -> Labels:
    left, right = list(call[first]), list(call[second])
    inner = left[-1]
    call.summed.append((first, -1, inner))
    call.unify(inner, right[-2] if len(right) > 1 else right[0])
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else []
    batch = call.broadcast(left[:-2], right[:-2])
    result = (*batch, *rows, *columns)
    call.macs.append(product(*result, inner))
    return result


@rule("scaled_dot_product_attention")
def attention(call: Call) -> Labels:
    """Softmax(q k^T / sqrt(e) + mask) v. The scale is the full model's, also where the head size e is cut.

    With ``enable_gqa`` the heads of q are consecutive groups, one for each head of k and v.
    """
    query, key, value = list(call["query"]), list(call["key"]), list(call["value"])
    if call["scale"] is None:  # the kernel would take it from the e that is kept
        call.kwargs["scale"] = 1.0 / math.sqrt(size_of(query[-1]))
    if call["is_causal"]:
        call.keep(query[-2], key[-2])
    if call["enable_gqa"]:
        call.unify(key[-3], value[-3])
        if resolve(key[-3]):
            repeats = fixed_axis(size_of(query[-3]) // size_of(key[-3]))
            call.unify(query[-3], (*key[-3], *repeats))
        key[-3] = value[-3] = ()
    call.unify(query[-1], key[-1])
    call.unify(key[-2], value[-2])
    call.summed.append(("query", -1, query[-1]))
    call.mixed.append(key[-2])
    batch = call.broadcast(call.broadcast(query[:-2], key[:-2]), value[:-2])
    if call["attn_mask"] is not None:
        *batch, _, _ = call.broadcast([*batch, query[-2], key[-2]], call["attn_mask"])
    call.macs.append(product(*batch, query[-2], key[-2], query[-1]))
    call.macs.append(product(*batch, query[-2], key[-2], value[-1]))
    return (*batch, query[-2], value[-1])


@rule("cdist")
def distances(call: Call) -> Labels:
    """D[..., p, r] = |x1[..., p, :] - x2[..., r, :]|: the coordinates are the same axis."""
    one, other = list(call["x1"]), list(call["x2"])
    call.unify(one[-1], other[-1])
    call.summed += [("x1", -1, one[-1]), ("x2", -1, other[-1])]
    result = (*call.broadcast(one[:-2], other[:-2]), one[-2], other[-2])
    call.macs.append(product(*result, one[-1]))
    return result


@rule("cosine_similarity")
def cosine(call: Call) -> Labels:
    """X1 x2 / (|x1| |x2|) along an axis."""
    labels = call.broadcast(call["x1"], call["x2"])
    dim = call.dim("dim", len(labels)) - len(labels)
    call.summed += [("x1", dim, labels[dim]), ("x2", dim, labels[dim])]
    del labels[dim]
    return tuple(labels)
