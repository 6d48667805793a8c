"""A multilayer perceptron."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar

from pydantic import Field
from torch import nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.model import Model


class Mlp(Model):
    """Flattened inputs, hidden layers with ReLU, the classes.

    Attributes:
        hidden: Units of each hidden layer.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image", "features")

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = Field((128, 64), min_length=1)

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for inputs of this size."""
        units = math.prod(signature.shape)
        layers: list[nn.Module] = [nn.Flatten()]
        for hidden in self.hidden:
            layers += [nn.Linear(units, hidden), nn.ReLU()]
            units = hidden
        return nn.Sequential(*layers, nn.Linear(units, signature.num_classes))
