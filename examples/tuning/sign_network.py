"""A small network for drawn traffic signs: its width, depth, kernel and weight bits against error, latency and size."""

import math
from typing import Any

import torch
from torch import nn

import nearpeak

TARGET = "jetson_agx_orin"
"""Board whose latency is predicted."""
SIGNS = 8
"""Classes: polygons of 3 to 6 corners, upright or turned by half a side."""


class SignNetwork(nn.Module):
    """Convolutions that halve the picture, then one linear layer."""

    def __init__(self, width: int, depth: int, kernel: int) -> None:
        """Build `depth` stages; each doubles the channels up to four times the width."""
        super().__init__()
        stages, channels = list[nn.Module](), 3
        for stage in range(depth):
            wider = width * min(2**stage, 4)
            stages += [nn.Conv2d(channels, wider, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(2)]
            channels = wider
        self.features = nn.Sequential(*stages)
        self.head = nn.Linear(channels * (32 >> depth) ** 2, SIGNS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return one score for each class."""
        return self.head(self.features(x).flatten(1))


def signs(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pictures [count, 3, 32, 32] of polygons with noise, and their classes."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randint(SIGNS, (count,), generator=draw)
    corners, turned = 3 + classes // 2, (classes % 2) * math.pi
    line = torch.linspace(-1, 1, 32)
    shift = 0.3 * (torch.rand(count, 2, 1, 1, generator=draw) - 0.5)
    y, x = line[None, :, None] - shift[:, 0], line[None, None, :] - shift[:, 1]
    angle = torch.atan2(y, x) + (turned / corners + math.pi / 2)[:, None, None]
    side = 2 * math.pi / corners[:, None, None]
    edge = torch.cos(side / 2) / torch.cos(torch.remainder(angle, side) - side / 2)
    inside = ((x**2 + y**2).sqrt() < (0.5 + 0.2 * torch.rand(count, 1, 1, generator=draw)) * edge).float()
    colours = torch.rand(count, 3, 1, 1, generator=draw)
    return inside[:, None] * colours + 0.4 * torch.randn(count, 3, 32, 32, generator=draw), classes


def quantised(network: nn.Module, bits: int) -> None:
    """Round every weight to `bits` bits, symmetric, one scale per output channel."""
    with torch.no_grad():
        for weight in (one for one in network.parameters() if one.dim() > 1):
            most = 2 ** (bits - 1) - 1
            scale = weight.flatten(1).abs().amax(1).clamp_min(1e-12).view(-1, *[1] * (weight.dim() - 1)) / most
            weight.copy_((weight / scale).round().clamp(-most, most) * scale)


def evaluate(*, seed: int, width: int, depth: int, kernel: int, bits: int) -> dict[str, Any]:
    """Return error after a short training, predicted latency of one picture on the board, and bytes of the weights."""
    torch.manual_seed(seed)
    network = SignNetwork(width, depth, kernel)
    pictures, classes = signs(1500, seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    for _ in range(4):
        for batch in torch.randperm(len(classes)).split(50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(pictures[batch]), classes[batch]).backward()
            optimizer.step()
    quantised(network, bits)
    seen, answers = signs(1000, seed + 1)
    with torch.no_grad():
        error = (network(seen).argmax(1) != answers).float().mean().item()
    weights = sum(one.numel() for one in network.parameters() if one.dim() > 1)
    workload = nearpeak.capture(network, inputs=(torch.zeros(1, 3, 32, 32),))
    return {
        "error_ratio": error,
        "latency_s": nearpeak.predict(workload, TARGET).time_s,
        "weight_bytes": weights * bits / 8,
    }
