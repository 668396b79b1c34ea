"""Cases of operators in PyTorch profiles: each is run once on fake tensors with the recorded shapes."""

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nearpeak.core.work.workload import Call
from nearpeak.frontends.torch.fake_tensors import require_torch
from nearpeak.frontends.torch.module_capture import fake_world
from nearpeak.frontends.torch.plain_operators import FORMATS, Recorded

_LISTS = ("TensorList", "GenericList")


def recorded_calls(rows: Sequence[Recorded]) -> list[tuple[Call, ...] | str]:
    """Return for each operator the calls that it dispatches, or why it cannot be run.

    An operator that launches nothing (a view) gives no calls. Arguments that a profiler leaves out, such as optional
    ones, take their defaults; nothing of a shape is guessed.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    if not rows:
        return []
    require_torch()
    with fake_world(None) as world:
        return [_calls(world, row) for row in rows]


class Described(NamedTuple):
    """Shape, strides and format of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


def run_and_recorded(run: Callable[[], Any]) -> list[tuple[str, tuple[Call, ...]]]:
    """Call `run`, and return every operator that PyTorch executed in it, with the calls that it dispatches.

    Operators without a rule, or that cannot be replayed on shapes alone, have no calls; operators that were compiled
    into fused kernels do not appear.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    require_torch()
    rows = _executed(run)
    with fake_world(None) as world:
        return [
            (str(func.overloadpacket.__name__), _replayed(world, func, args, kwargs)) for func, args, kwargs in rows
        ]


def _executed(run: Callable[[], Any]) -> list[tuple[Any, Any, Any]]:
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_map

    rows = []

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            rows.append((func, tree_map(_described, args), tree_map(_described, kwargs)))
            return func(*args, **kwargs)

    with Mode():
        run()
    return rows


def _described(value: Any) -> Any:
    if not hasattr(value, "storage_offset"):
        return value
    return Described(shape=tuple(value.shape), strides=tuple(value.stride()), dtype=value.dtype)


def _replayed(world: Any, func: Any, args: Any, kwargs: Any) -> tuple[Call, ...]:
    """Return the calls of an operator, replayed on fake tensors; `out` variants become functional ones."""
    import torch
    from torch.utils._pytree import tree_map

    def made(value: Any) -> Any:
        if not isinstance(value, Described):
            return value
        return torch.empty_strided(value.shape, value.strides, dtype=value.dtype)

    if "out" in kwargs and hasattr(func.overloadpacket, "default"):
        func, kwargs = (
            func.overloadpacket.default,
            {name: argument for name, argument in kwargs.items() if name != "out"},
        )
    try:
        arguments = tree_map(made, (args, kwargs), is_leaf=lambda value: isinstance(value, Described))
        with world.recorder.detached("forward") as calls:
            func(*arguments[0], **arguments[1])
    except Exception:  # PyTorch raises exceptions of any type; such an operator is not counted
        return ()
    return tuple(calls)


def _calls(world: Any, row: Recorded) -> tuple[Call, ...] | str:
    import torch

    space, _, operator = row.name.partition("::")
    known = space in ("aten", "torchvision") and operator and operator not in ("from_file", "save", "_print")
    packet = getattr(getattr(torch.ops, space), operator, None) if known else None
    if row.name.startswith("triton_"):
        return "no rule: a kernel that TorchInductor fused, whose operators the trace does not name"
    if packet is None:
        return f"no rule for {row.name}, which is no operator of this PyTorch"
    reason = ""
    for kind in _kinds_of_lists(row):
        try:
            with world.recorder.detached("backward" if "backward" in row.name else "forward") as calls:
                _run(packet, _arguments(torch, row, kind))
        except Exception as error:  # PyTorch raises exceptions of any type; the record is at fault
            reason = reason or (str(error).splitlines()[0][:160] if str(error) else type(error).__name__)
            continue
        return tuple(calls)
    return f"{row.name} cannot be run as recorded: {reason}"


def _kinds_of_lists(row: Recorded) -> tuple[str, ...]:
    """Return formats to try for tensors in lists, which the profiler does not state: that of the others, or indices."""
    if not any(kind in _LISTS for kind in row.dtypes if isinstance(kind, str)):
        return ("float",)
    return (next((kind for kind in row.dtypes if isinstance(kind, str) and kind in FORMATS), "float"), "long int")


def _run(packet: Any, arguments: list[Any]) -> None:
    """Call an operator; arguments at the end that were not recorded are left to their defaults."""
    remaining = list(arguments)
    while True:
        try:
            _resolved(packet, remaining)(*remaining)
        except (RuntimeError, TypeError):
            if remaining and remaining[-1] is None:
                remaining.pop()
                continue
            _run_by_schema(packet, arguments)
        return


def _resolved(packet: Any, arguments: list[Any]) -> Any:
    """Return the packet, or an overload that does not take a list where a tensor was recorded.

    Raises:
        TypeError: no overload is left.
    """
    import torch

    tensors = {place for place, value in enumerate(arguments) if isinstance(value, torch.Tensor)}
    named = [getattr(packet, name) for name in packet.overloads()]
    fitting = [overload for overload in named if not _takes_list(overload, tensors)]
    if len(fitting) == len(named):
        return packet
    for overload in fitting:
        required = sum(
            not argument.has_default_value() and not argument.kwarg_only for argument in overload._schema.arguments
        )
        if required <= len(arguments) <= len(overload._schema.arguments):
            return overload
    raise TypeError("no overload takes what was recorded")


def _takes_list(overload: Any, places: set[int]) -> bool:
    """Say whether an argument at one of the places is a list."""
    schema = overload._schema.arguments
    return any(str(argument.type).startswith("List[") for place, argument in enumerate(schema) if place in places)


def _run_by_schema(packet: Any, arguments: list[Any]) -> None:
    """Call the first overload that takes the arguments in the order of its schema, keyword-only ones by name.

    Overloads that write into given tensors come last, as TorchInductor calls them, and become the functional ones:
    the work is the same.

    Raises:
        TypeError: none does; says what each takes.
    """
    failure: Exception | None = None
    tensors = {place for place, value in enumerate(arguments) if hasattr(value, "storage_offset")}
    overloads = sorted((getattr(packet, name) for name in packet.overloads()), key=_writes)
    for overload in overloads:
        schema = overload._schema.arguments
        if len(schema) < len(arguments) or _takes_list(overload, tensors):
            continue
        pairs = list(zip(schema, arguments, strict=False))
        written = [argument for argument, value in pairs if argument.is_out and value is not None]
        if _writes(overload) != bool(written):
            continue
        call = _functional(overload, overloads) if written else overload
        by_name = {
            argument.name: value
            for argument, value in pairs
            if not argument.is_out and (value is not None or not argument.has_default_value())
        }
        try:
            call(**by_name)
        except (RuntimeError, TypeError, NotImplementedError) as error:
            failure = failure or TypeError(f"overload {overload._overloadname}: {error}")
            continue
        return
    raise failure or TypeError(f"no overload takes the {len(arguments)} recorded arguments: {_taken(overloads)}")


def _writes(overload: Any) -> bool:
    """Say whether an overload writes its results into tensors that it is given."""
    return any(argument.is_out for argument in overload._schema.arguments)


def _functional(overload: Any, overloads: Sequence[Any]) -> Any:
    """Return the overload of the same arguments that makes its results; itself where there is none."""
    wanted = [(entry.name, str(entry.type)) for entry in overload._schema.arguments if not entry.is_out]
    return next(
        (
            candidate
            for candidate in overloads
            if [(entry.name, str(entry.type)) for entry in candidate._schema.arguments] == wanted
        ),
        overload,
    )


def _taken(overloads: Sequence[Any]) -> str:
    return ", ".join(f"{overload._overloadname} takes {len(overload._schema.arguments)}" for overload in overloads[:4])


def _arguments(torch: Any, row: Recorded, lists: str) -> list[Any]:
    arguments = []
    for index, kind in enumerate(row.dtypes):
        shape = row.shapes[index] if index < len(row.shapes) else ()
        strides = row.strides[index] if index < len(row.strides) else ()
        concrete = row.concrete[index] if index < len(row.concrete) else ""
        arguments.append(_argument(torch, kind, shape, strides, concrete, lists))
    return arguments


def _argument(torch: Any, kind: Any, shape: Any, strides: Any, concrete: Any, lists: str) -> Any:
    if isinstance(kind, (list, tuple)):
        shapes = [shape[i] if i < len(shape) else () for i in range(len(kind))]
        return [_argument(torch, item, extents, (), "", lists) for item, extents in zip(kind, shapes, strict=True)]
    if kind in _LISTS and shape and isinstance(shape[0], (list, tuple)):
        return [_tensor(torch, lists, item, ()) for item in shape]
    if kind in FORMATS:
        return _tensor(torch, kind, shape, strides)
    return _value(concrete)


def _tensor(torch: Any, kind: str, shape: Any, strides: Any) -> Any:
    dtype = getattr(torch, FORMATS[kind])
    extents = [int(extent) for extent in shape]
    if any(extent < 0 or extent > 1 << 40 for extent in extents):
        raise ValueError(f"extents {extents} are no shape")
    if strides and len(strides) == len(extents):
        return torch.empty_strided(extents, [int(extent) for extent in strides], dtype=dtype)
    return torch.empty(extents, dtype=dtype)


def _value(concrete: Any) -> Any:
    """Return the literal that a text of the profiler states, else none."""
    text = str(concrete).strip()
    if not text:
        return None
    try:
        return ast.literal_eval(text.replace("true", "True").replace("false", "False"))
    except (ValueError, SyntaxError):
        return None
