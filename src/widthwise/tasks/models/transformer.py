"""The pre-norm transformer block that the image and the text model share.

Legend: B batch, T tokens, D width of the stream, h heads.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from widthwise.core.errors import ConfigError
from widthwise.tasks.model import Model

Size = Annotated[int, Field(ge=1)]
EMBEDDING_STD = 0.02


class TransformerModel(Model):
    """Options of a transformer.

    Attributes:
        dim: Width D of the stream.
        depth: Number of blocks.
        heads: Attention heads; they divide ``dim``.
        hidden: Hidden units of a block's feed-forward part; by default 4 * dim.
        dropout: Rate of dropout on both parts of a block.
    """

    dim: Size
    depth: Size
    heads: Size
    hidden: Size | None = None
    dropout: float = Field(0.0, ge=0, lt=1)

    @model_validator(mode="after")
    def _heads_divide(self) -> Self:
        if self.dim % self.heads:
            raise ConfigError(
                f"dim is {self.dim}, but {self.heads} heads need a multiple of {self.heads}. "
                "Change dim or heads."
            )
        return self

    def blocks(self, causal: bool) -> nn.Sequential:
        """Return the blocks and the last layer norm."""
        hidden = 4 * self.dim if self.hidden is None else self.hidden
        layers = [Block(self.dim, self.heads, hidden, self.dropout, causal) for _ in range(self.depth)]
        return nn.Sequential(*layers, nn.LayerNorm(self.dim))


class Attention(nn.Module):
    """Multi-head self-attention, [B, T, D] -> [B, T, D] (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, dim: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Return what each token gathers from the others, or from those before it where causal."""
        query, key, value = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, h, T, D / h]
            for layer in (self.query, self.key, self.value)
        )
        gathered = scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out: Tensor = self.out(gathered.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); [B, T, D] -> [B, T, D]."""

    def __init__(self, dim: int, heads: int, hidden: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.attention = nn.Sequential(nn.LayerNorm(dim), Attention(dim, heads, causal), nn.Dropout(dropout))
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(dim),
            nn.Linear(dim, hidden),
            nn.GELU(),
            nn.Linear(hidden, dim),
            nn.Dropout(dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream after both parts."""
        x = x + self.attention(x)
        out: Tensor = x + self.feed_forward(x)
        return out
