"""Random modules and inputs captured, and compared bit for bit with what they were before.

`python -m benchmarks.caller_state --seed N [--count 200]` repeats a draw and prints what changed.
"""

import argparse
import io
import itertools
import os
import queue
import random
import secrets
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, GeneratorType, MethodType
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import nearpeak
from benchmarks import _caller_traits as traits
from benchmarks._figures import Figure
from nearpeak.errors import CaptureError

FIGURES = ("callers_unchanged",)
COUNT = 200
"""Modules of a draw."""
EXPECTED = ("on purpose", "a leaf Variable that requires grad is being used in an in-place operation")
"""Refusals that are right: of a step that raises, and of one that writes to inputs whose gradients are asked for."""


def measure() -> Iterator[Figure]:
    """Yield how many modules are unchanged after a capture, of a fresh seed."""
    yield figure(secrets.randbelow(10**6), COUNT)


def figure(seed: int, count: int) -> Figure:
    """Return how many of `count` modules of a seed are unchanged; those that are not are printed."""
    changes = [(number, change) for number in range(count) for change in changed(seed, number)[:1]]
    for number, change in changes:
        print(f"  seed {seed} module {number}: {change}", file=sys.stderr)
    unchanged = count - len(changes)
    return Figure(
        name=FIGURES[0], value=unchanged, unit=f"of {count} modules", bar=f"{count}", passed=not changes, seed=seed
    )


def changed(seed: int, number: int) -> list[str]:
    """Capture module `number` of a seed with inputs of its own, and return the paths of what is not as it was."""
    draw = random.Random(f"{seed}/{number}")
    world = draw.choice(("real", "real", "real", "meta", "fake", "function"))
    mode = FakeTensorMode() if world == "fake" else None
    with mode or torch.device("meta" if world == "meta" else "cpu"):
        known = [name for name in sorted(traits.TRAITS) if name != "lazy" or world not in ("fake", "function")]
        names = draw.sample(known, draw.randint(1, 5))
        model: Any = type("Drawn", (traits.Block,), {"__module__": traits.__name__, "seen": []})(draw, names, known)
        inputs = drawn_inputs(draw)
    source = _through(model) if world == "function" else model
    held = {"model": model, "inputs": inputs, "source": source, "counted": traits.COUNTED, "shift": traits.SHIFT}
    options = {"step": draw.choice(("forward", "train")), "dtype": draw.choice((None, "bf16"))}
    before = dict(described(held))
    if draw.random() < 0.2:
        options = {"step": options["step"], "autocast": "bf16"}
    try:
        nearpeak.capture(source, inputs=inputs, **options)
    except CaptureError as error:
        if not any(cause in str(error) for cause in EXPECTED):
            return [f"{names} {world} {options}: {error}"]
    after = dict(described(held))
    paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    return [f"{names} {world} {options}: {path} {before.get(path)} {after.get(path)}" for path in paths]


def _through(model: Any) -> Callable[..., Any]:
    def run(*args: Any, **named: Any) -> Any:
        return model(*args, **named)

    return run


def drawn_inputs(draw: random.Random) -> Any:
    """Return positional or keyword inputs: a batch, and things that the step changes."""
    x = torch.randn(6, 4)[1:] if draw.random() < 0.3 else torch.randn(5, 4)
    x.requires_grad_(draw.random() < 0.3)
    kinds = (
        lambda: torch.arange(5), lambda: torch.zeros(3, dtype=torch.bool), lambda: torch.zeros(3),
        lambda: [torch.arange(2)], lambda: {"old": torch.arange(2)}, lambda: ([torch.arange(3)], 1), traits.Cache,
    )  # fmt: skip
    others = [draw.choice(kinds)() for _ in range(draw.randint(0, 3))]
    return {"x": x, **{f"o{i}": other for i, other in enumerate(others)}} if draw.random() < 0.3 else (x, *others)


def described(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield path and content of everything that can be reached from an object, each once."""
    yield "number", traits.RUNS
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCH")}  # set at import
    yield "process", (environment, torch.get_default_dtype(), torch.is_grad_enabled(), traits.SETTINGS.count)
    yield (
        "random",
        (random.getstate(), np.random.get_state()[1].tobytes(), torch.random.get_rng_state().numpy().tobytes()),
    )
    pending, seen = [("", root)], dict[int, Any]()
    while pending:
        path, thing = pending.pop()
        yield path, (id(thing), type(thing), _content(thing))
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        pending += [(f"{path}.{name}", part) for name, part in _parts(thing)]


def _content(thing: Any) -> Any:
    """Return what an object holds by itself."""
    if isinstance(thing, torch.Tensor):
        return _stored(thing)
    for kind, content in _CONTENTS:
        if isinstance(thing, kind):
            return content(thing)
    return thing.tell() if hasattr(thing, "tell") else ""


def _stored(tensor: Any) -> Any:
    kept = (tensor.dtype, tensor.requires_grad, id(tensor.grad), tensor._version, str(tensor.device))
    if nn.parameter.is_lazy(tensor):
        return kept
    stored = None if tensor.is_meta or isinstance(tensor, FakeTensor) else tensor.detach().contiguous().reshape(-1)
    values = None if stored is None else stored.view(torch.uint8).numpy().tobytes()
    return tuple(tensor.shape), tensor.stride(), tensor.untyped_storage()._cdata, values, kept


_CONTENTS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (np.ndarray, lambda array: array.tobytes()), (torch.Generator, lambda g: g.get_state().numpy().tobytes()),
    (GeneratorType, lambda generator: generator.gi_frame.f_lasti), ((int, float, str, set), repr),
    ((list, dict, tuple, deque), len),
    ((array, itertools.count), repr), (io.StringIO, lambda text: (text.tell(), text.getvalue())),
    (type(iter([])), lambda rows: rows.__length_hint__()),
)  # fmt: skip


def _parts(thing: Any) -> list[tuple[str, Any]]:
    """Return what an object refers to, with its name there."""
    for kind, parts in _PARTS:
        if isinstance(thing, kind):
            return parts(thing)
    if not type(thing).__module__.startswith(("benchmarks", "torch.nn")) or not hasattr(thing, "__dict__"):
        return []
    shared = vars(type(thing))
    return [*vars(thing).items(), ("class", shared.get("seen")), ("steps", shared.get("steps"))]


def _numbered(things: Any) -> list[tuple[str, Any]]:
    return [(str(at), item) for at, item in enumerate(things)]


_PARTS: tuple[tuple[Any, Callable[[Any], list[tuple[str, Any]]]], ...] = (
    (dict, lambda held: [(f"{at}:{key}", value) for at, (key, value) in enumerate(held.items())]),
    ((list, tuple, deque), _numbered),
    (FunctionType, lambda f: _numbered([*(cell.cell_contents for cell in f.__closure__ or ()), f.__defaults__])),
    (MethodType, lambda method: [("self", method.__self__), ("func", method.__func__)]),
    (partial, lambda part: [("args", part.args), ("keywords", part.keywords)]),
    (torch.Tensor, lambda tensor: [] if tensor.grad is None else [("grad", tensor.grad)]),
    ((np.ndarray, torch.Generator, str, int, float), lambda _: []),
    ((argparse.Namespace, threading.local, queue.Queue), lambda held: list(vars(held).items())),
    (traits.Slotted, lambda slotted: [(name, getattr(slotted, name)) for name in slotted.__slots__]),
)  # fmt: skip


def main() -> None:
    """Try the modules of a seed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.caller_state", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--count", type=int, default=COUNT)
    options = parser.parse_args()
    print(figure(options.seed, options.count).shown(), f"seed {options.seed}")


if __name__ == "__main__":
    main()
