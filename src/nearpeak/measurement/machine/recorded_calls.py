"""Recording of the PyTorch functions that an operator calls, replayed without the Python code around them."""

import operator
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

LONG_S = 2e-3
"""Time of a call from which on the Python around it does not show: it takes some 10 µs."""
FIRST_S = 0.1
"""The same for the first call, which makes what later ones find in caches."""
_SHAPE_ONLY = frozenset({
    "dim", "size", "stride", "numel", "nelement", "element_size", "storage_offset", "is_contiguous",
    "is_floating_point", "is_complex", "is_signed", "__len__", "promote_types", "result_type", "can_cast",
})  # fmt: skip
"""Functions that say something of a tensor other than its data, beside attributes: the same at every call."""
Run = Callable[[], dict[str, Any]]


@dataclass(slots=True, kw_only=True)
class _Step:
    """One call of a function of PyTorch's."""

    function: Any
    """What is called."""
    args: tuple[Any, ...]
    """What it is given by position."""
    kwargs: Mapping[str, Any]
    """What it is given by name."""
    result: Any
    """What it returned; nothing where it only writes."""


def recorded_call(torch: Any, run: Run) -> Run:
    """Return what computes the same as `run` by the same functions of PyTorch, or `run` where that cannot be told.

    The Python of an operator, which knows every case of it, takes as long as a short kernel. Beside it a kernel of the
    user's, called by itself, would be judged faster than the same kernel of PyTorch's.

    A call is taken down once, and what comes of it is kept only if it makes PyTorch's dispatcher run the same
    operators on the same shapes and numbers as two calls. Those that look at data, and those that take longer than
    LONG_S, stay as they are.

    Args:
        run: returns tensors by name; it is called up to five times, in its own form or the new one.

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
    """Say whether what returned this makes tensors or writes into some: all else is not needed again."""
    return result is None or _holds_tensors(list(result) if isinstance(result, (tuple, list)) else result)


def _tape(torch: Any, steps: list[_Step]) -> Any:
    """Return a context that takes down the functions of PyTorch that are called in it."""

    class Tape(torch.overrides.TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
        refused = False

        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if _computes(result):
                steps.append(_Step(function=function, args=args, kwargs=dict(kwargs or {}), result=result))
            elif getattr(function, "__name__", "") not in {*_SHAPE_ONLY, "__get__"}:
                self.refused = True  # it may have looked at data, which differ from call to call
            return result

    return Tape()


def _log(torch: Any) -> Any:
    """Return a context that takes down what the dispatcher runs in it: operators, shapes, formats, numbers."""

    class Log(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        only_looks = True  # so that operators keep what they keep without it

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # or the compiler, which is of no use here, is imported: more than a second in each process

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
    """Return the function that makes the calls of `steps`; nothing where an argument hides tensors.

    It is made by torch.fx: functions and constants are its arguments, and results are let go after their last use.
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
    """Say whether tensors lie in what is passed on as it is: a mapping, a named tuple, a slice."""
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
