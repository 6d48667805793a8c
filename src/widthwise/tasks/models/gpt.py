"""A small decoder-only language model.

Legend: B batch, T characters, D width of the stream.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.models.transformer import EMBEDDING_STD, Size, TransformerModel


class Gpt(TransformerModel):
    """Embedding plus learned positions, causal pre-norm blocks, the next character from the last position.

    Source: Radford et al. 2019 (GPT-2), section 2.3, on Radford et al. 2018. With ``dim: 768, depth: 12,
    heads: 12``, 1,024 positions and its vocabulary it has GPT-2's 124.4 M parameters. Departs: characters
    instead of byte pairs, and one prediction a window, after its last character, as for the other text
    models here; the exact GELU; linear layers are initialised by torch's rules.

    Attributes:
        dim: Width D of the stream.
        depth: Number of blocks.
        heads: Attention heads.
        tied: Whether the output layer shares the embedding's weights (and has no bias), as in GPT-2.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("text",)

    dim: Size = 128
    depth: Size = 4
    heads: Size = 4
    tied: bool = True

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for windows of this length and this vocabulary."""
        (length,) = signature.shape
        embedding = nn.Embedding(signature.num_classes, self.dim)
        head = nn.Linear(self.dim, signature.num_classes, bias=not self.tied)
        nn.init.normal_(embedding.weight, std=EMBEDDING_STD)
        if self.tied:
            head.weight = embedding.weight
        return Decoder(embedding, length, self.blocks(causal=True), head)


class Decoder(nn.Module):
    """Tokens int64 [B, T] -> logits [B, vocabulary] of the character after them.

    Args:
        embedding: Tokens -> [B, T, D].
        length: Number of positions T.
        blocks: [B, T, D] -> [B, T, D].
        head: [B, D] -> logits.
    """

    def __init__(self, embedding: nn.Embedding, length: int, blocks: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = nn.Parameter(torch.empty(length, embedding.embedding_dim).normal_(std=EMBEDDING_STD))
        self.blocks, self.head = blocks, head

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits."""
        states = self.blocks(self.embedding(tokens) + self.positions)
        logits: Tensor = self.head(states[:, -1])
        return logits
