"""Kinds of pairs in which tensors are read in parts, cut, overwritten, or lengthened."""

import random

import torch
from torch.nn import functional as F  # noqa: N812

from benchmarks._equivalent_programs import Pair, drawn, extent, kind


@kind
def parts_beside_each_other(draw: random.Random, rows: int, columns: int) -> Pair:
    """A tensor read whole, or as columns that several operators take."""
    w, half = drawn(draw, columns, 2 * extent(draw)), columns // 2
    first, second = draw.choice((
        (lambda x, w: (lambda y: torch.relu(y.chunk(2, 1)[0]) * torch.sigmoid(y.chunk(2, 1)[1]))(x @ w),
         lambda x, w: torch.relu(x @ w.chunk(2, 1)[0]) * torch.sigmoid(x @ w.chunk(2, 1)[1])),
        (lambda x, w: F.glu(x @ w, 1),
         lambda x, w: (x @ w[:, : w.shape[1] // 2]) * torch.sigmoid(x @ w[:, w.shape[1] // 2 :])),
        (lambda x, w: F.glu(x, 1), lambda x, w: x[:, :half] * torch.sigmoid(x[:, half:])),
        (lambda x, w: (lambda y: y[:, ::2] - y[:, 1::2])(torch.sigmoid(x)),
         lambda x, w: torch.sigmoid(x[:, ::2]) - torch.sigmoid(x[:, 1::2])),
        (lambda x, w: torch.cat((-torch.tanh(x)[:, half:], torch.tanh(x)[:, :half]), 1),
         lambda x, w: torch.cat((-torch.tanh(x[:, half:]), torch.tanh(x[:, :half])), 1)),
    ))  # fmt: skip
    return Pair(first, second, (w,))


@kind
def groups_of_channels(draw: random.Random, rows: int, columns: int) -> Pair:
    groups, taps, stride = draw.choice((2, 4)), draw.choice((1, 3)), draw.choice((1, 2))
    x, w = drawn(draw, 2, 16, 12, 12), drawn(draw, 16, 16 // groups, taps, taps)

    def apart(_: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        parts = zip(x.chunk(groups, 1), w.chunk(groups), strict=True)
        return torch.cat([torch.conv2d(a, b, stride=stride) for a, b in parts], 1)

    return Pair(lambda _, x, w: torch.conv2d(x, w, groups=groups, stride=stride), apart, (x, w))
