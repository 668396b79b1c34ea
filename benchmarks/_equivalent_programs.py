"""Pairs of programs that compute the same, the second in a way that is known to be cheap or plain, drawn at random."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F  # noqa: N812

EXTENTS = (8, 16, 24, 32, 48, 64, 96, 128, 256)
"""What an axis may become."""
FILLERS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x, torch.relu, torch.tanh, lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    lambda x: x * 0.5 + 1, lambda x: x.clone(), lambda x: F.layer_norm(x, x.shape[-1:]),
)  # fmt: skip
"""What may stand between two stages of both programs."""


class Pair(NamedTuple):
    """Two programs of one matrix and tensors of their own."""

    first: Callable[..., Any]
    """As someone might write it."""
    second: Callable[..., Any]
    """The equivalent."""
    tensors: tuple[Any, ...] = ()
    """Further inputs of both."""
    exact: bool = True
    """Both give the same for all values; else only for those at which the first does the least."""
    guess_sizes: bool = False
    """Data decide extents."""


Kind = Callable[[random.Random, int, int], Pair]
"""Draws a pair for a matrix of so many rows and columns."""
KINDS: dict[str, Kind] = {}
"""All kinds of pairs by name."""


def kind(function: Kind) -> Kind:
    """Register a kind of pair under its name."""
    KINDS[function.__name__] = function
    return function


def drawn(draw: random.Random, *shape: int, dtype: Any = torch.float32) -> Any:
    """Return a tensor of random numbers; of integers, small ones."""
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -8
        return torch.randint(low, 8, shape, generator=generator).to(dtype)
    return torch.randn(shape, generator=generator).to(dtype)


def extent(draw: random.Random) -> int:
    """Return an extent of an axis."""
    return draw.choice(EXTENTS)


class Program(NamedTuple):
    """Both programs of a whole draw, with all inputs."""

    first: Callable[..., Any]
    """Stages as someone might write them."""
    second: Callable[..., Any]
    """The equivalents."""
    inputs: tuple[Any, ...]
    """Tensors of both."""
    kinds: tuple[str, ...]
    """Kinds of the stages."""
    exact: bool
    """Both give the same for all values."""
    guess_sizes: bool
    """Data decide extents."""


def program(draw: random.Random, names: tuple[str, ...] = ()) -> Program:
    """Return a pair of programs of one to three stages, of the kinds named, or of random ones."""
    rows, columns = extent(draw), extent(draw)
    x = drawn(draw, rows, columns)
    names = names or tuple(draw.choice(sorted(KINDS)) for _ in range(draw.choice((1, 1, 2, 3))))
    stages, inputs, current = [], [x], x
    for name in names:
        pair = KINDS[name](draw, *current.shape)
        filler = draw.choice(FILLERS)
        stages.append((pair, filler, len(inputs)))
        inputs += pair.tensors
        made = first_of(filler(pair.first(current, *pair.tensors)))
        current = made if _goes_on(pair, made) else current

    def run(which: str, *tensors: Any) -> tuple[Any, ...]:
        results, value = [], tensors[0]
        for pair, filler, begin in stages:
            made = filler(getattr(pair, which)(value, *tensors[begin : begin + len(pair.tensors)]))
            results.append(made)
            value = first_of(made) if _goes_on(pair, first_of(made)) else value
        return tuple(results)

    return Program(
        first=lambda *tensors: run("first", *tensors), second=lambda *tensors: run("second", *tensors),
        inputs=tuple(inputs), kinds=names, exact=all(pair.exact for pair, _, _ in stages),
        guess_sizes=any(pair.guess_sizes for pair, _, _ in stages),
    )  # fmt: skip


def _goes_on(pair: Pair, made: Any) -> bool:
    """Say whether the next stage takes the result of this one: a matrix of the same values and extents in both."""
    return pair.exact and made.dim() == 2 and made.dtype == torch.float32 and min(made.shape) > 1


def first_of(value: Any) -> Any:
    """Return a tensor, or the first of several."""
    return value[0] if isinstance(value, tuple) else value
