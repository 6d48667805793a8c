"""Single weights of largest magnitude: unstructured masks in the full module."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import ClassVar, Literal

import torch
from torch import Tensor

from widthwise.core.records import Mask, SliceSpec
from widthwise.core.traits import Trait
from widthwise.slicing.selectors.selector import Moment, Selector
from widthwise.slicing.space import WidthSpace


class Magnitude(Selector):
    """The weights of largest magnitude, as many as the nested slice of the width has parameters.

        mask = |w| >= theta,    theta the k-th largest |w|,    k = parameters(nested(width)) - vectors

    Parameters with fewer than two axes (biases, scale and shift of norms) are kept whole and count towards
    the budget; where they fill it, one weight is kept. Ties go to the lower position. At full width
    there is no mask.

    This is *masked compute*: the full module runs, at the cost of a full forward and backward pass whatever
    the width. Only traffic follows the width: 4 bytes for a kept value, and one bit for each masked
    coordinate on the way down. How a client trains under a mask is in ``training.masking``.

    Source: Wu et al. 2024 (FIARSE), arXiv 2407.19389. Departs: a client's size is given by a
    width, that is, by the number of parameters of its nested slice (about width^2 of all), not by a share
    of the parameters; all vectors are kept, where FIARSE keeps norm layers and masks biases, which start at
    zero in many models; at full width FIARSE still thresholds at the smallest magnitude.

    Attributes:
        mask_scope: One threshold for the whole model (``global``), or one for each parameter, which then
            keeps the same share of it (``layer``).
    """

    note: ClassVar[str] = (
        "clients compute on the full model under a mask: multiply-accumulates do not fall with the width, "
        "only traffic does; which weights the narrower clients train follows their magnitudes, and none is "
        "certain to be trained."
    )
    shipped: ClassVar[str] = (
        "the full-size model in which all but the weights of largest magnitude are zero, so many as a slice "
        "of that width has: it takes the space and the multiply-accumulates of the full model"
    )

    mask_scope: Literal["global", "layer"] = "global"

    @property
    def traits(self) -> frozenset[Trait]:
        """Masked, with the narrowest mask as common core."""
        return frozenset({Trait.COMMON})

    def select(self, space: WidthSpace, width: float, moment: Moment) -> SliceSpec:
        """Return the mask of the round's global model."""
        return self.ship(space, width, moment.params)

    def ship(self, space: WidthSpace, width: float, params: Mapping[str, Tensor]) -> SliceSpec:
        """Return the full spec with the mask of the largest magnitudes."""
        nested = space.nested(width)
        budget, total = space.num_params(nested), space.num_params(space.full())
        if budget == total:
            return nested
        weights = [name for name, layout in space.parameters.items() if len(layout.shape) > 1]
        magnitudes = {name: params[name].detach().abs().flatten() for name in weights}
        counts = [len(magnitudes[name]) for name in weights]
        k = max(1, budget - (total - sum(counts)))
        if self.mask_scope == "global":
            kept, threshold = largest(torch.cat(list(magnitudes.values())), k)
            pieces = [(piece, threshold) for piece in torch.split(kept, counts)]
        else:
            pieces = [
                largest(magnitudes[name], share)
                for name, share in zip(weights, _spread(k, counts), strict=True)
            ]
        mask = Mask(
            {n: piece.view(space.parameters[n].shape) for n, (piece, _) in zip(weights, pieces, strict=True)},
            {n: threshold for n, (_, threshold) in zip(weights, pieces, strict=True)},
        )
        return SliceSpec(width, space.full().kept, mask)


def largest(magnitudes: Tensor, k: int) -> tuple[Tensor, float]:
    """Return [n] which k values are largest, ties going to the lower position, and the smallest of them.

    Example:
        >>> largest(torch.tensor([2.0, 1.0, 2.0, 2.0]), 2)
        (tensor([ True, False,  True, False]), 2.0)
    """
    if k == 0:
        return torch.zeros_like(magnitudes, dtype=torch.bool), float("inf")
    threshold = magnitudes.kthvalue(len(magnitudes) - k + 1).values
    kept = magnitudes > threshold
    ties = (magnitudes == threshold).nonzero().flatten()
    kept[ties[: k - int(kept.sum())]] = True
    return kept, float(threshold)


def _spread(k: int, counts: list[int]) -> list[int]:
    """Split k over tensors in proportion to their sizes; since running sums are rounded, it adds up to k."""
    ends = [k * done // sum(counts) for done in accumulate(counts, initial=0)]
    return [b - a for a, b in pairwise(ends)]
