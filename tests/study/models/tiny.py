"""Models small enough to measure in milliseconds."""

from torch import nn


def mlp(width: int) -> nn.Module:
    """Two linear layers, of one tuple if `width` is 8."""
    return nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 8))


def cnn() -> nn.Module:
    """A convolution used twice, a ReLU, and a linear layer."""
    convolution = nn.Conv2d(3, 3, kernel_size=3, padding=1)
    return nn.Sequential(convolution, nn.ReLU(), convolution, nn.Flatten(), nn.Linear(192, 8))
