"""Pearson, Spearman and partial correlation over clients, for one sample or for many at once.

Shapes: ... any leading axes (resamples), N clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# A vector whose spread is below this share of its size is a constant that rounding has blurred: 64 steps of
# float64. A spread of more steps than that is data, however far from zero it lies.
BLUR = 64 * float(np.finfo(np.float64).eps)


def in_range(values: Array) -> Array:
    """Return the values divided by a power of two, the largest then lying between a half and one.

    Sums of squares of any finite values then neither overflow nor vanish, and no digit changes.

    Example:
        >>> in_range(np.array([3.0, -6.0]))
        array([ 0.375, -0.75 ])
    """
    _, exponent = np.frexp(np.max(np.abs(values)))
    scaled: Array = np.ldexp(values, -exponent)
    return scaled


def is_constant(values: Array) -> bool:
    """Return whether all values are the same up to rounding."""
    return bool(_norm(_centre(values)) <= BLUR * _norm(values))


def residuals(values: Array, given: Array | None = None) -> Array:
    """Return what is left of the values after linear regression on ``given`` (and on a constant).

    Formula: e = (x - mean x) - b (z - mean z), b = cov(x, z) / var(z); b = 0 where z is constant, since
    holding a constant fixed changes nothing. Residuals that are mere rounding are exactly 0: where
    |e| <= BLUR (|x| + |b| |z|).

    Args:
        values: [..., N], of a size whose square is a float (``in_range``).
        given: [..., N], or None to remove the mean only.

    Returns:
        [..., N], each row with mean 0.

    Example:
        >>> residuals(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0]))
        array([0., 0., 0.])
    """
    left, size = _centre(values), _norm(values)
    if given is not None:
        z = _centre(given)
        square = np.sum(z * z, axis=-1, keepdims=True)
        varies = np.sqrt(square) > BLUR * _norm(given)
        slope = np.divide(
            np.sum(left * z, axis=-1, keepdims=True), square, out=np.zeros_like(square), where=varies
        )
        left, size = left - slope * z, size + np.abs(slope) * _norm(given)
    return np.where(_norm(left) > BLUR * size, left, 0.0)


def correlation(x: Array, y: Array, given: Array | None = None) -> Array:
    """Return the Pearson correlation of x and y, with ``given`` removed from both where it is there.

    Formula: r = sum(e_x e_y) / sqrt(sum(e_x^2) sum(e_y^2)) with e = ``residuals``.
    Source: the capacity-confound audit of Moayedikia and Troncoso Lora (2026), Table 5: partial
    correlations remove p_max linearly.

    Args:
        x: [..., N].
        y: [..., N].
        given: [..., N] or None.

    Returns:
        [...] in [-1, 1]; NaN where x or y does not vary (any more).

    Example:
        >>> round(float(correlation(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]))), 9)
        -1.0
    """
    a, b = residuals(x, given), residuals(y, given)
    size = (_norm(a) * _norm(b))[..., 0]
    product = np.sum(a * b, axis=-1)
    r = np.divide(product, size, out=np.full_like(product, np.nan), where=size > 0)
    clipped: Array = np.clip(r, -1.0, 1.0)
    return clipped


def ranks(values: Array) -> Array:
    """Return the ranks of the values, 1 to N, equal values sharing the mean of their ranks.

    Values that differ by less than 1e-12 of their range, or by less than rounding (``BLUR``), are equal:
    rounding must not make an order.

    Args:
        values: [..., N].

    Returns:
        [..., N].

    Example:
        >>> ranks(np.array([0.3, 0.1 + 0.2, 0.1, 7.0]))
        array([2.5, 2.5, 1. , 4. ])
    """
    above = values - np.min(values, axis=-1, keepdims=True)
    size = np.max(np.abs(values), axis=-1, keepdims=True)
    step = np.maximum(1e-12 * np.max(above, axis=-1, keepdims=True), BLUR * size)
    steps = np.rint(np.divide(above, step, out=np.zeros_like(above), where=step > 0))
    _, codes = np.unique(steps, return_inverse=True)
    return ranks_again(codes / 2)


def ranks_again(ranked: Array) -> Array:
    """Return the ranks of ranks, of which some were left out and others repeated: by counting, not sorting.

    Args:
        ranked: [..., N], whole and half numbers of at most about N.

    Returns:
        [..., N], what ``ranks`` would return.

    Example:
        >>> ranks_again(np.array([2.5, 2.5, 4.0]))
        array([1.5, 1.5, 3. ])
    """
    codes = np.rint(2 * ranked).astype(np.intp).reshape(-1, ranked.shape[-1])
    width = int(codes.max()) + 1
    offset = width * np.arange(len(codes))[:, None]
    counts = np.bincount((codes + offset).ravel(), minlength=len(codes) * width).reshape(-1, width)
    middle = np.cumsum(counts, axis=1) - (counts - 1) / 2
    return np.take_along_axis(middle, codes, axis=1).reshape(ranked.shape)


METHODS: Mapping[str, Callable[[Array], Array]] = {"pearson": lambda values: values, "spearman": ranks}
"""Kind of correlation -> what is done to every variable, capacity included, before ``correlation``.

Spearman's partial correlation is thus the linear partial correlation of ranks: ranks first, over all
clients, then regression of ranks on ranks.
"""

RESAMPLED: Mapping[str, Callable[[Array], Array]] = {
    "pearson": METHODS["pearson"],
    "spearman": ranks_again,
}
"""Kind of correlation -> what is done to variables that were prepared, then resampled."""


def _centre(values: Array) -> Array:
    centred: Array = values - np.mean(values, axis=-1, keepdims=True)
    return centred


def _norm(values: Array) -> Array:
    norm: Array = np.sqrt(np.sum(values * values, axis=-1, keepdims=True))
    return norm
