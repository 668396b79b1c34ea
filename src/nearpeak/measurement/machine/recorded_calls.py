"""Recording of the PyTorch functions that an operator calls, replayed without the Python code around them."""

import operator
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

LONG_S = 2e-3
"""Time of a call above which the Python code around it, some 10 µs, does not matter."""
FIRST_S = 0.1
"""The limit for the first call, which fills caches."""
_SHAPE_ONLY = frozenset({
    "dim", "size", "stride", "numel", "nelement", "element_size", "storage_offset", "is_contiguous",
    "is_floating_point", "is_complex", "is_signed", "__len__", "promote_types", "result_type", "can_cast",
})  # fmt: skip
"""Functions that return metadata of a tensor, the same at every call."""
Run = Callable[[], dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class _Step:
    """One recorded call of a PyTorch function."""

    function: Any
    """The function."""
    args: tuple[Any, ...]
    """Its positional arguments."""
    kwargs: Mapping[str, Any]
    """Its keyword arguments."""
    result: Any
    """Its result; none where it only writes."""


def recorded_call(torch: Any, run: Run) -> Run:
    """Return a replay of the PyTorch functions that `run` calls, or `run` where a recording is not safe.

    The Python code of an operator, which handles every attribute, takes as long as a short kernel. Compared with it, a
    user's kernel would be judged faster than the same kernel in PyTorch.

    A recording is used only if PyTorch's dispatcher runs the same operators on the same shapes and numbers as in two
    original calls. Calls that read data, and those that take longer than LONG_S, are not replayed.

    Args:
        run: returns tensors by name; it is called up to five times, itself or as a recording.

    >>> import torch
    >>> x = torch.ones(2)
    >>> recorded_call(torch, lambda: {"y": torch.relu(-x)})()["y"]
    tensor([0., 0.])
    >>> looks = lambda: {"y": x * x.sum().item()}
    >>> recorded_call(torch, looks) is looks
    True
    """
    if _took_s(run) > FIRST_S or _took_s(run) > LONG_S:
        return run
    steps: list[_Step] = []
    with _log(torch) as before:
        run()
    with _log(torch) as wanted, _tape(torch, steps) as tape:
        result = run()
    if tape.refused or before.lines != wanted.lines or any(not _is_tensor(value) for value in result.values()):
        return run
    replay = _compiled(torch, steps, result)
    if replay is None:
        return run
    with _log(torch) as got:
        again = replay()
    return replay if got.lines == wanted.lines and again.keys() == result.keys() else run


def _took_s(run: Run) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _holds_tensors(value: Any) -> bool:
    return _is_tensor(value) or (type(value) in (tuple, list) and any(map(_holds_tensors, value)))


def _computes(result: Any) -> bool:
    """Return whether a function with this result makes or writes tensors, and so must be replayed."""
    return result is None or _holds_tensors(list(result) if isinstance(result, (tuple, list)) else result)


def _tape(torch: Any, steps: list[_Step]) -> Any:
    """Return a context that records the PyTorch functions that are called in it."""

    class Tape(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
        refused = False

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if _computes(result):
                steps.append(_Step(function=function, args=args, kwargs=dict(kwargs or {}), result=result))
            elif getattr(function, "__name__", "") not in {*_SHAPE_ONLY, "__get__"}:
                self.refused = True  # it may have read data, which differ between calls
            return result

    return Tape()


def _log(torch: Any) -> Any:
    """Return a context that logs the dispatcher's operators with shapes, formats and numbers."""

    class Log(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        only_looks = True  # so that operators save the same tensors as without it

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else the compiler is imported, which takes more than a second in each process

        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if _computes(result):
                self.lines.append(f"{function} {_described(args)} {_described(kwargs or {})}")
            return result

    return Log()


def _described(value: Any) -> str:
    if _is_tensor(value):
        return f"{value.dtype}{tuple(value.shape)}{value.stride()}"
    if isinstance(value, (tuple, list)):
        return f"[{' '.join(map(_described, value))}]"
    if isinstance(value, dict):
        return " ".join(f"{name}={_described(entry)}" for name, entry in value.items())
    return repr(value)


def _compiled(torch: Any, steps: list[_Step], result: Mapping[str, Any]) -> Run | None:
    """Return a function that replays `steps`; none where an argument hides tensors.

    torch.fx generates it: functions and constants are its arguments, and results are freed after their last use.
    """
    if any(_hides(value) for step in steps for value in (*step.args, *step.kwargs.values())):
        return None
    if len(steps) == len(result) == 1 and steps[0].result is next(iter(result.values())):
        name, only = *result, partial(steps[0].function, *steps[0].args, **steps[0].kwargs)
        return lambda: {name: only()}
    graph, constants = torch.fx.Graph(), list[Any]()
    nodes: dict[int, tuple[Any, tuple[int, ...]]] = {}

    def node(value: Any) -> Any:
        if id(value) in nodes:
            made, path = nodes[id(value)]
            return reduce(lambda whole, index: graph.call_function(operator.getitem, (whole, index)), path, made)
        if type(value) in (tuple, list) and _holds_tensors(value):
            return type(value)(map(node, value))
        constants.append(value)
        made = graph.placeholder(f"k{len(constants)}")
        if _is_tensor(value):
            nodes[id(value)] = made, ()
        return made

    for step in steps:
        args = (node(step.function), *map(node, step.args))
        made = graph.call_method("__call__", args, {name: node(argument) for name, argument in step.kwargs.items()})
        nodes.update((id(leaf), (made, path)) for leaf, path in _leaves(step.result))
    graph.output({name: node(argument) for name, argument in result.items()})
    return partial(torch.fx.GraphModule(torch.nn.Module(), graph).forward, *constants)


def _hides(value: Any) -> bool:
    """Return whether tensors lie inside a mapping, a named tuple or a slice, which are passed on unchanged."""
    if isinstance(value, slice):
        return any(map(_is_tensor, (value.start, value.stop, value.step)))
    if isinstance(value, Mapping):
        return any(map(_holds_tensors, value.values()))
    if isinstance(value, (tuple, list)):
        listed = list(value)
        return (type(value) not in (tuple, list) and _holds_tensors(listed)) or any(map(_hides, listed))
    return False


def _leaves(value: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Yield the tensors in a result, each with the indices that lead to it."""
    if _is_tensor(value):
        yield value, path
    elif isinstance(value, (tuple, list)):
        for index, entry in enumerate(value):
            yield from _leaves(entry, (*path, index))
