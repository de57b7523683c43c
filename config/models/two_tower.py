"""An example of a model of your own: two inputs, attention, and operators outside any module."""

import torch
from torch import nn


class TwoTower(nn.Module):
    """Scores how well a token sequence matches an image."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, width)
        self.attention = nn.MultiheadAttention(width, num_heads=4, batch_first=True)
        self.image = nn.Sequential(
            nn.Conv2d(3, width, kernel_size=3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, tokens: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
        """Map tokens (batch, length) and images (batch, 3, height, width) to scores (batch,)."""
        embedded = self.tokens(tokens)
        attended, _ = self.attention(embedded, embedded, embedded)
        return (attended.mean(dim=1) * self.image(image).flatten(1)).sum(dim=1)


def build(width: int) -> nn.Module:
    """The factory that two_tower.yaml names."""
    return TwoTower(width)
