"""Recurrent language models of any size.

Legend: B batch, T characters.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field
from torch import Tensor, nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.model import Model

Size = Annotated[int, Field(ge=1)]


class RecurrentLm(Model):
    """Embedding, recurrent layers, the next character from the last step; every width is sliced.

    ``lstm`` is the paper's network, whose embedding stays whole.

    Attributes:
        embedding: Width of the embedding.
        hidden: Units of each layer.
        layers: Number of layers.
        dropout: Rate of dropout between layers.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("text",)
    layer: ClassVar[type[nn.LSTM] | type[nn.GRU]]

    embedding: Size = 64
    hidden: Size = 256
    layers: Size = 2
    dropout: float = Field(0.0, ge=0, lt=1)

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for this vocabulary."""
        # torch warns of a rate that has no layer to act between.
        dropout = self.dropout if self.layers > 1 else 0.0
        stack = self.layer(self.embedding, self.hidden, self.layers, batch_first=True, dropout=dropout)
        return RecurrentNet(
            nn.Embedding(signature.num_classes, self.embedding),
            stack,
            nn.Linear(self.hidden, signature.num_classes),
        )


class LstmLm(RecurrentLm):
    """Hochreiter and Schmidhuber 1997, with the forget gates of Gers et al. 2000."""

    layer = nn.LSTM


class GruLm(RecurrentLm):
    """Cho et al. 2014; as in torch, the reset gate acts after the hidden state's product."""

    layer = nn.GRU


class RecurrentNet(nn.Module):
    """Tokens int64 [B, T] -> logits [B, vocabulary] of the character after them."""

    def __init__(self, embedding: nn.Embedding, stack: nn.LSTM | nn.GRU, head: nn.Linear) -> None:
        super().__init__()
        self.embedding, self.stack, self.head = embedding, stack, head

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        states, _ = self.stack(self.embedding(tokens))
        logits: Tensor = self.head(states[:, -1])
        return logits
