"""Small networks drawn at random from linear and nonlinear operators, moves, sums and slices."""

import random

import torch
from torch import nn


class Drawn(nn.Module):
    """A network of a given seed; the same seed draws the same network."""

    def __init__(self, seed, step_count=9):
        super().__init__()
        self.seed, self.step_count = seed, step_count
        torch.manual_seed(seed)
        self.weights = nn.ParameterList(torch.randn(n, m, dtype=torch.float64) for n in (2, 3, 4, 6) for m in (3, 4, 6))
        self.kernel = nn.Parameter(torch.randn(3, 2, 3, 3, dtype=torch.float64))

    def forward(self, x):
        draw = random.Random(self.seed)
        values = [x]
        for _ in range(self.step_count):
            step = draw.choice(STEPS)
            made = step(self, draw, draw.choice(values[-3:]), draw.choice(values))
            if made is not None and 0 < made.numel() <= 4096:
                values.append(made)
        return values[-1]


def linear(net, draw, x, _other):
    fitting = [w for w in net.weights if x.dim() and w.shape[0] == x.shape[-1]]
    return torch.matmul(x, draw.choice(fitting)) if fitting else None


def affine(net, draw, x, _other):
    fitting = [w for w in net.weights if x.dim() and w.shape[1] == x.shape[-1]]
    weight = draw.choice(fitting) if fitting else None
    return None if weight is None else nn.functional.linear(x, weight, weight[:, 0])


def convolution(net, draw, x, _other):
    if x.dim() != 4 or min(x.shape[2:]) < 3:
        return None
    options = {"stride": draw.choice((1, 2)), "padding": draw.choice((0, 1)), "dilation": 1}
    if x.shape[1] == 2:
        return nn.functional.conv2d(x, net.kernel, **options)
    return nn.functional.conv_transpose2d(x, net.kernel, **options) if x.shape[1] == 3 else None


def pooling(_net, _draw, x, _other):
    return nn.functional.avg_pool2d(x, 2) if x.dim() == 4 and min(x.shape[2:]) >= 2 else None


def pairing(_net, draw, x, other):
    if x.shape != other.shape:
        return x * draw.choice((0.5, 2, 0)) if draw.random() < 0.5 else x + 1.5
    return draw.choice((torch.add, torch.sub, torch.mul, torch.minimum))(x, other)


def matching(_net, _draw, x, other):
    if x.dim() >= 2 and other.dim() >= 2 and x.shape[:-2] == other.shape[:-2] and x.shape[-1] == other.shape[-1]:
        return x @ other.transpose(-1, -2)
    return None


def summing(_net, draw, x, _other):
    if not x.dim():
        return None
    reduce = draw.choice((torch.sum, torch.mean, torch.amax, torch.cumsum))
    axis = draw.randrange(x.dim())
    return reduce(x, axis) if reduce is torch.cumsum else reduce(x, axis, keepdim=draw.random() < 0.5)


def slicing(_net, draw, x, _other):
    if not x.dim():
        return None
    axis = draw.randrange(x.dim())
    start = draw.randrange(x.shape[axis])
    if draw.random() < 0.5:
        return x.select(axis, start)
    index = [slice(None)] * x.dim()
    index[axis] = slice(start, None, draw.choice((1, 1, 2)))
    return x[tuple(index)]


def moving(_net, draw, x, _other):
    kind = draw.randrange(4)
    if kind == 0:
        return x.permute(draw.sample(range(x.dim()), x.dim()))
    if kind == 1:
        return x.reshape(-1, x.shape[-1]) if x.dim() else None
    if kind == 2:
        return x.unsqueeze(0).expand(2, *x.shape) if x.dim() < 4 else None
    even = x.dim() and x.shape[-1] % 2 == 0
    return x.unflatten(-1, (2, x.shape[-1] // 2)).contiguous() if even and x.dim() < 5 else None


def joining(_net, draw, x, other):
    if not x.dim():
        return None
    axis = draw.randrange(x.dim())
    if other.dim() == x.dim() and all(
        n == m for a, (n, m) in enumerate(zip(x.shape, other.shape, strict=True)) if a != axis
    ):
        return torch.cat([x, other], axis)
    parts = x.chunk(2, axis)
    return torch.cat(parts[:: draw.choice((1, -1))], axis)


def bending(_net, draw, x, _other):
    function = draw.choice((torch.relu, torch.sigmoid, torch.abs, lambda t: t.clamp(0.0, 1.0), torch.tanh, _softmax))
    return function(x)


def _softmax(x):
    return x.softmax(-1) if x.dim() else x


def writing(_net, draw, x, other):
    whole = torch.zeros(x.shape, dtype=x.dtype)
    if not x.dim():
        return None
    half = max(1, x.shape[-1] // 2)
    whole[..., :half] = x[..., :half]
    if other.shape == x.shape and draw.random() < 0.5:
        whole[..., half:] = other[..., half:]
    return whole.mul_(2.0) if draw.random() < 0.5 else whole


STEPS = (
    linear, linear, affine, affine, convolution, pooling, pairing, pairing, matching, summing, summing, slicing,
    moving, moving, joining, bending, writing,
)  # fmt: skip
