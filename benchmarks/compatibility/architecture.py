"""What a zoo is made of: ways to build models, and inputs that fit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

BATCH = 4  # batch norm needs several samples
CLASSES = 10
VOCABULARY = 64
TOKENS = 12

Inputs = tuple[Tensor, ...] | dict[str, Tensor]


@dataclass(frozen=True)
class Architecture:
    """One line of the table.

    Attributes:
        name: What it is called on the page.
        family: Heading under which it stands there.
        make: Builds the model, drawing from torch's global generator.
        inputs: Draws inputs from the same.
    """

    name: str
    family: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]

    def build(self, seed: int) -> tuple[nn.Module, Inputs]:
        """Return the model in training mode and inputs, the same for the same seed."""
        torch.manual_seed(seed)
        return self.make().train(), self.inputs()


@dataclass
class Zoo:
    """The architectures of one family, in the order in which they are added."""

    family: str
    found: list[Architecture] = field(default_factory=list)

    def __iter__(self) -> Iterator[Architecture]:
        return iter(self.found)

    def add(self, name: str, make: Callable[[], nn.Module], inputs: Callable[[], Inputs]) -> None:
        """Add an architecture."""
        self.found.append(Architecture(name, self.family, make, inputs))

    def net(self, inputs: Callable[[], Inputs]) -> Callable[[type[nn.Module]], type[nn.Module]]:
        """Return a decorator that adds a module class under its own name."""

        def register(cls: type[nn.Module]) -> type[nn.Module]:
            self.add(cls.__name__, cls, inputs)
            return cls

        return register


def normal(*sizes: tuple[int, ...]) -> Callable[[], Inputs]:
    """Return inputs of normal numbers, one for each size (without the batch)."""
    return lambda: tuple(torch.randn(BATCH, *size) for size in sizes)


def image(side: int = 32) -> Callable[[], Inputs]:
    """Return inputs that are square images of three colours."""
    return normal((3, side, side))


def draw_tokens(length: int = TOKENS) -> Tensor:
    """Return token numbers; the first few are left out, since they mean padding and the like."""
    return torch.randint(4, VOCABULARY, (BATCH, length))


def tokens(*names: str, length: int = TOKENS) -> Callable[[], Inputs]:
    """Return inputs that are token numbers: one tensor, or one for each name."""
    return lambda: {name: draw_tokens(length) for name in names} if names else (draw_tokens(length),)
