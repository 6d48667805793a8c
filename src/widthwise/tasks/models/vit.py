"""A vision transformer.

Legend: B batch, C channels, H height, W width, T tokens, D width of the stream.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from widthwise.core.errors import ConfigError
from widthwise.tasks.dataset import Kind, Signature
from widthwise.tasks.models.transformer import EMBEDDING_STD, Size, TransformerModel


class Vit(TransformerModel):
    """Patches as tokens, a class token, learned positions, pre-norm blocks, the classes from the class token.

    Source: Dosovitskiy et al. 2021, eqs. 1 to 4. With ``patch: 16, dim: 768, depth: 12, heads: 12`` on images
    of 224 pixels it is ViT-B/16 (86.6 M parameters for 1,000 classes). Departs: linear layers are initialised
    by torch's rules; the defaults are small, for images of about 32 pixels.

    Attributes:
        patch: Side of a patch in pixels; it divides both sides of the image.
        dim: Width D of the stream.
        depth: Number of blocks.
        heads: Attention heads.
    """

    kinds: ClassVar[tuple[Kind, ...]] = ("image",)

    patch: Size = 4
    dim: Size = 192
    depth: Size = 6
    heads: Size = 3

    def module(self, signature: Signature) -> nn.Module:
        """Return the network for images of this size.

        Raises:
            ConfigError: if the patch does not divide the image.
        """
        channels, height, width = signature.shape
        if height % self.patch or width % self.patch:
            raise ConfigError(
                f"patch is {self.patch}, but it must divide images of {height}x{width} pixels. "
                "Choose a divisor of both sides."
            )
        tokens = (height // self.patch) * (width // self.patch)
        return VisionTransformer(
            nn.Conv2d(channels, self.dim, self.patch, self.patch),
            tokens,
            self.blocks(causal=False),
            nn.Linear(self.dim, signature.num_classes),
        )


class VisionTransformer(nn.Module):
    """Images [B, C, H, W] -> logits [B, classes].

    Args:
        patches: Images -> [B, D, H / patch, W / patch].
        tokens: Number of patches.
        blocks: [B, T, D] -> [B, T, D].
        head: [B, D] -> logits.
    """

    def __init__(self, patches: nn.Conv2d, tokens: int, blocks: nn.Module, head: nn.Module) -> None:
        super().__init__()
        dim = patches.out_channels
        self.patches = patches
        self.class_token = nn.Parameter(torch.empty(1, 1, dim).normal_(std=EMBEDDING_STD))
        self.positions = nn.Parameter(torch.empty(1, tokens + 1, dim).normal_(std=EMBEDDING_STD))
        self.blocks, self.head = blocks, head

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.class_token.expand(images.shape[0], -1, -1), patches], dim=1)
        states = self.blocks(tokens + self.positions)
        logits: Tensor = self.head(states[:, 0])
        return logits
