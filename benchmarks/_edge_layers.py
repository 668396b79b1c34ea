"""Block of convolution, batch normalisation and activation of the edge models."""

from typing import Any


def conv_block(c1: int, c2: int, k: int = 1, s: int = 1, g: int = 1, act: str = "silu", p: int | None = None) -> Any:
    """Return a convolution without bias, its normalisation and its activation; padded to keep the size unless given."""
    from torch import nn

    kinds = {"silu": nn.SiLU, "relu": nn.ReLU, "relu6": nn.ReLU6, "leaky": nn.LeakyReLU, "": nn.Identity}
    return nn.Sequential(
        nn.Conv2d(c1, c2, k, s, k // 2 if p is None else p, groups=g, bias=False), nn.BatchNorm2d(c2), kinds[act]()
    )
