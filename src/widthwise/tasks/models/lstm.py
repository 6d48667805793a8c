"""The paper's recurrent network."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.model import Model, scaled


class Lstm(Model):
    """Embedding of 8, two LSTM layers of 256, the next character from the last step.

    Source: arXiv 2608.07157v1, Table 1 (0.82 M parameters). The embedding stays whole at every width.

    Attributes:
        scale: Factor on the 256 hidden units: a smaller *global* model.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("text",)
    freeze: ClassVar[tuple[str, ...]] = ("embedding",)

    scale: float = Field(1.0, gt=0, allow_inf_nan=False)

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for this vocabulary."""
        return NextCharacter(signature.num_classes, embedding=8, hidden=scaled(256, self.scale), layers=2)


class NextCharacter(nn.Module):
    """Tokens int64 [B, characters] -> logits [B, vocabulary] of the character after them."""

    def __init__(self, vocabulary: int, embedding: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states[:, -1])
        return logits
