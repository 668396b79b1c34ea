"""Ways in which a module or its inputs carry state that a step changes, for trials of captures that leave none."""

import argparse
import io
import itertools
import os
import queue
import random
import threading
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

COUNTED: list[int] = []
"""A global list that steps append to."""
RUNS = 0
"""A global number that steps raise."""
SETTINGS = ModuleType("settings_of_the_caller")
"""A module of the user's, whose number steps raise."""
SETTINGS.count = 0  # type: ignore[attr-defined]
SHIFT = torch.zeros(4, requires_grad=True)
"""A global leaf that gets a gradient."""


@dataclass
class Cache:
    """An object that only its model understands."""

    keys: list[Any] = field(default_factory=list)
    """Tensors, one per step."""
    length: int = 0
    """Steps so far."""


class Slotted:
    """An object without a dictionary of attributes."""

    __slots__ = ("last", "sums")

    def __init__(self) -> None:
        self.last, self.sums = None, torch.zeros(4)


class Block(nn.Module):
    """A layer whose traits run before it; a subclass per block, as classes carry state too."""

    steps = 0
    seen: list[Any] = []  # noqa: RUF012  # shared on purpose

    def __init__(self, draw: random.Random, names: list[str], known: list[str]) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.running = [TRAITS[name](self, draw) for name in names]
        self.inner = None if draw.random() < 0.6 else Block(draw, draw.sample(known, 2), known)
        for parameter in self.parameters():
            if nn.parameter.is_lazy(parameter):
                continue
            parameter.requires_grad_(draw.random() < 0.8)
        self.layer.weight.requires_grad_(True)
        if draw.random() < 0.4:
            self.layer.weight.grad = torch.full((4, 4), 2.0)
        self.train(draw.random() < 0.5)

    def forward(self, x: Any, *others: Any, **named: Any) -> Any:
        """Run the traits on the state, then the layer."""
        type(self).steps += 1
        for step in self.running:
            x = step(self, x) if step is not None else x
        for other in (*others, *named.values()):
            _change(other)
        return self.norm(self.layer(x if self.inner is None else self.inner(x)))


def _change(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        value.zero_() if value.dtype == torch.bool else value.add_(1)
    elif isinstance(value, list):
        value.append(value[0])
        _change(value[0])
    elif isinstance(value, dict):
        value["new"] = 1
        _change(value["old"])
    elif isinstance(value, tuple):
        _change(value[0])
    elif isinstance(value, Cache):
        value.keys.append(torch.ones(2))
        value.length += 1


Step = Callable[[Any, Any], Any]


def _buffer(dtype: Any, shape: tuple[int, ...] = (3,)) -> Callable[[Any, Any], Step]:
    def make(block: Any, draw: random.Random) -> Step:
        name = f"buffer_{str(dtype).removeprefix('torch.')}_{len(shape)}"
        block.register_buffer(name, torch.ones(shape).to(dtype), persistent=draw.random() < 0.5)

        def step(self: Any, x: Any) -> Any:
            held = getattr(self, name)
            held.logical_not_() if dtype == torch.bool else held.mul_(3)
            setattr(self, name, held + held if draw.random() < 0.3 else held)
            return x

        return step

    return make


def _setting(name: str, make: Callable[[], Any], change: Callable[[Any], Any]) -> Callable[[Any, Any], Step]:
    """Return a trait: an attribute with a first value, and what a step does to it (none keeps the same object)."""

    def trait(block: Any, _draw: random.Random) -> Step:
        setattr(block, name, make())

        def step(self: Any, x: Any) -> Any:
            new = change(getattr(self, name))
            if new is not None:
                setattr(self, name, new)
            return x

        return step

    return trait


def _closure(_block: Any, _draw: random.Random) -> Step:
    kept, count = [torch.zeros(2)], 0

    def step(_self: Any, x: Any) -> Any:
        nonlocal count
        count += 1
        kept.append(x)
        kept[0].add_(count)
        return x

    return step


def _global(_block: Any, _draw: random.Random) -> Step:
    def step(_self: Any, x: Any) -> Any:
        global RUNS  # noqa: PLW0603  # what is tried
        RUNS += 1
        COUNTED.append(RUNS)
        return x + SHIFT

    return step


def _class_list(_block: Any, _draw: random.Random) -> Step:
    def step(self: Any, x: Any) -> Any:
        self.seen.append(x)
        return x

    return step


def _hook(block: Any, _draw: random.Random) -> Step:
    block.heard = []
    block.layer.register_forward_hook(lambda _module, _args, out: block.heard.append(out))
    block.layer.register_forward_pre_hook(lambda module, args: setattr(module, "calls", args))
    return lambda _self, x: x


def _own_function(block: Any, _draw: random.Random) -> Step:
    block.scale, block.scaled = torch.arange(4), lambda x: x * block.scale.add_(1)
    return lambda self, x: self.scaled(x)


def _random(_block: Any, draw: random.Random) -> Step:
    kind = draw.randrange(3)

    def step(_self: Any, x: Any) -> Any:
        if kind == 0:
            return x + random.random()
        if kind == 1:
            return x + float(np.random.rand())  # the global state is what is tried
        return x + torch.rand(4)

    return step


def _file(block: Any, _draw: random.Random) -> Step:
    block.source = Path(__file__).open(encoding="utf-8")  # noqa: SIM115  # it stays open, as a dataset's does
    return lambda self, x: x + len(self.source.read(3))


def _cached(block: Any, _draw: random.Random) -> Step:
    block.rows = lru_cache(maxsize=4)(lambda n: torch.arange(n) * 1.0)
    return lambda self, x: x + self.rows(4)


def _tied(block: Any, _draw: random.Random) -> Step:
    base = torch.arange(8)
    block.register_buffer("low", base[:4])
    block.register_buffer("all", base)

    def step(self: Any, x: Any) -> Any:
        self.low.add_(1)
        return x + self.all[:4]

    return step


def _frozen_generator(block: Any, _draw: random.Random) -> Step:
    block.rest = (i for i in range(3))
    block.numbers, block.lock = itertools.count(), threading.Lock()

    def step(self: Any, x: Any) -> Any:
        with self.lock:
            return x

    return step


def _iterators(block: Any, draw: random.Random) -> Step:
    block.numbers, block.left = itertools.count(5), iter([1.0, 2.0, 3.0])
    block.pairs = zip(block.left, block.left, strict=False) if draw.random() < 0.3 else None  # held, not moved
    return lambda self, x: x + next(self.numbers) * next(self.left)


def _environment(_block: Any, _draw: random.Random) -> Step:
    def step(_self: Any, x: Any) -> Any:
        os.environ["NEARPEAK_TRIED"] = str(SETTINGS.count)
        SETTINGS.count += 1
        return x

    return step


def _own_of_thread(block: Any, _draw: random.Random) -> Step:
    block.own = threading.local()
    block.own.sums, block.own.count = torch.zeros(4), 0

    def step(self: Any, x: Any) -> Any:
        self.own.count += 1
        return x + self.own.sums.add_(1)

    return step


def _normed(block: Any, draw: random.Random) -> Step:
    block.extra = draw.choice((nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm))(
        nn.Linear(4, 4)
    )
    return lambda self, x: self.extra(x)


def _gradients(_block: Any, _draw: random.Random) -> Step:
    def step(self: Any, x: Any) -> Any:
        self.norm.weight.requires_grad_(not self.norm.weight.requires_grad)
        self.norm.train(not self.norm.training)
        return x

    return step


def _moved(_block: Any, _draw: random.Random) -> Step:
    def step(self: Any, x: Any) -> Any:
        self.layer.bias = nn.Parameter(self.layer.bias + 1)
        self.layer.weight.data = self.layer.weight.data * 2
        return x

    return step


class _Lengths(nn.Module):
    @cached_property
    def table(self) -> Any:
        """Return a tensor that is made at first use."""
        return torch.ones(4)

    def forward(self, x: Any) -> Any:
        """Return the sum."""
        return x + self.table


def _slots(self: Slotted) -> None:
    self.sums.add_(1)
    self.last = self.sums


def _draw(generator: Any) -> None:
    torch.rand(2, generator=generator)


TRAITS: dict[str, Callable[[Any, random.Random], Step]] = {
    **{f"buffer of {d}": _buffer(d) for d in (torch.int64, torch.int8, torch.uint8, torch.bool, torch.float32,
                                              torch.bfloat16, torch.complex64)},
    "scalar buffer": _buffer(torch.int32, ()), "large buffer": _buffer(torch.int16, (300, 300)),
    "number": _setting("count", int, lambda n: n + 1),
    "list": _setting("kept", lambda: [torch.arange(3)], lambda kept: (kept[0].add_(1), kept.append(kept[0]))[1]),
    "dictionary": _setting("stats", lambda: {"a": {"b": torch.zeros(2, dtype=torch.bool)}},
                           lambda s: s["a"].update(b=s["a"]["b"].logical_not_(), c=1)),
    "ordered": _setting("order", lambda: OrderedDict(a=1, b=2), lambda o: o.move_to_end("a")),
    "set": _setting("names", lambda: {"a"}, lambda s: s.add("b")),
    "queue": _setting("queue", lambda: deque([1], maxlen=3), lambda q: q.append(2)),
    "array": _setting("table", lambda: np.zeros(3), lambda a: a.__iadd__(1) is None or None),
    "object": _setting("cache", Cache, _change),
    "slots": _setting("slotted", Slotted, _slots),
    "tensor attribute": _setting("tensor", lambda: torch.arange(3), lambda t: t.add_(1)),
    "tuple": _setting("pair", lambda: (torch.arange(3), [torch.zeros(2)]), lambda p: p[1].append(p[0].add_(1))),
    "partial": _setting(
        "part", lambda: partial(torch.add, torch.arange(3)), lambda p: p.args[0].mul_(2) is None or None
    ),
    "generator": _setting("drawn", torch.Generator, _draw),
    "closure": _closure, "global": _global, "class": _class_list, "hook": _hook, "own function": _own_function,
    "random": _random, "file": _file, "cached": _cached, "tied": _tied, "lock": _frozen_generator, "normed": _normed,
    "gradients": _gradients, "moved": _moved,
    "dropout": lambda block, _: (setattr(block, "drop", nn.Dropout(0.5)), lambda self, x: self.drop(x))[1],
    "lengths": lambda block, _: (setattr(block, "lengths", _Lengths()), lambda self, x: self.lengths(x))[1],
    "numbers": _setting("counts", lambda: array("q", [1, 2]), lambda a: a.append(a[0])),
    "text": _setting("log", io.StringIO, lambda text: text.write("step") < 0 or None),
    "arguments": _setting("args", lambda: argparse.Namespace(step=0, kept=torch.zeros(2)),
                          lambda a: a.__dict__.update(step=a.step + 1, last=a.kept.add_(1))),
    "waiting": _setting("waiting", queue.Queue, lambda q: q.put(1)),
    "iterators": _iterators, "environment": _environment, "thread": _own_of_thread,
    "lazy": lambda block, _: (setattr(block, "late", nn.LazyLinear(4)), lambda self, x: self.late(x))[1],
    "failure": lambda _block, draw: _failure if draw.random() < 0.5 else (lambda _self, x: x),
}  # fmt: skip
"""Makes the state of each trait in a block, and returns what a step does with it."""


def _failure(_self: Any, _x: Any) -> Any:
    raise ValueError("on purpose")  # the state is put back after a step that failed, too
