"""Extents and values of the inputs of an ONNX file: as stated, by shared symbols, or by a usual size."""

from collections.abc import Sequence
from math import prod
from typing import Any

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

_MOST_VALUES = 1024
_USUAL = (
    (("batch",), 1), (("seq", "len", "token", "position"), 128), (("time", "frame", "step"), 128),
    (("sample", "audio", "wave"), 16000), (("height", "width", "image"), 224), (("channel",), 3),
)  # fmt: skip
"""Extents that stand for open dimensions whose names have one of the parts, where guesses are allowed."""
_BATCHLESS_NAMES = ("seq", "len", "time", "frame", "height", "width")
_USUAL_OTHER = 16
"""Extent of an open dimension whose name says nothing."""


def fix_inputs(onnx: Any, graph: Any, options: CaptureOptions) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Write extents and values of every input into the graph; return the inputs' names and what was guessed.

    An open first dimension is the batch unless its name says otherwise. A stated value makes an input a constant.

    Raises:
        SpecError: a shape or value contradicts the file, or dimensions stay open; all of them are named.
    """
    stored = {item.name for item in graph.initializer}
    inputs = [item for item in graph.input if item.name not in stored and item.type.HasField("tensor_type")]
    names = tuple(item.name for item in inputs)
    others = tuple(item.name for item in graph.input if item.name not in {*stored, *names})
    for option, stated in (("--input-shape", options.shapes), ("--input-value", options.input_values)):
        for name in stated:
            if name not in names:
                raise SpecError(f"{option}: {unknown_name('input', name, names)}")
    symbols: dict[str, int] = {}
    for item in inputs:
        if item.name in options.shapes:
            _write_shape(item, options.shapes[item.name], symbols)
    for item in inputs:
        if item.name in options.input_values:
            _fix_value(onnx, graph, item, options.input_values[item.name])
    left = [item for item in inputs if item.name not in options.input_values]
    guesses: list[str] = []
    if options.guess_sizes:
        for item in left:
            guesses += _guess(item, symbols)
    missing = [problem for item in left for problem in _fill_shape(item, options.batch, symbols)]
    if missing:
        unsized = "; ".join(what for what, _ in missing)
        options_text = " ".join(dict.fromkeys(how for _, how in missing))
        raise SpecError(f"{unsized}: give {options_text}, or --guess-sizes for usual extents")
    first = [int(dims[0].dim_value) if (dims := item.type.tensor_type.shape.dim) else 1 for item in left]
    if options.batch is not None and first and options.batch not in first:
        raise SpecError(
            f"--batch {options.batch}: the file fixes input {left[0].name!r} to {first[0]}; leave the option out"
        )
    return tuple(item.name for item in left) + others, tuple(guesses)


def _write_shape(item: Any, shape: Sequence[int], symbols: dict[str, int]) -> None:
    """Write a requested shape, refusing one that contradicts the file; note the values of its symbols."""
    shape_proto = item.type.tensor_type.shape
    dims = shape_proto.dim if item.type.tensor_type.HasField("shape") else [shape_proto.dim.add() for _ in shape]
    where = f"--input-shape {item.name}={','.join(map(str, shape))}"
    if len(dims) != len(shape):
        raise SpecError(f"{where}: has {len(shape)} dimensions; the file's input has {len(dims)}")
    for position, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
        if extent < 1:
            raise SpecError(f"{where}: dimension {position} is {extent}; give at least 1")
        if dim.dim_value > 0 and dim.dim_value != extent:
            raise SpecError(f"{where}: dimension {position} is {extent}, but the file fixes it to {dim.dim_value}")
        if dim.dim_param:
            symbols.setdefault(dim.dim_param, extent)
        dim.dim_value = extent


def _fix_value(onnx: Any, graph: Any, item: Any, values: tuple[float, ...]) -> None:
    """Make an input the constant that holds the values; one value stands for all elements."""
    import numpy as np

    where = f"--input-value {item.name}={','.join(f'{value:g}' for value in values)}"
    dims = item.type.tensor_type.shape.dim
    extents = [int(dim.dim_value) for dim in dims]
    if len(values) > 1 and extents.count(0) == 1:
        extents[extents.index(0)] = len(values) // max(1, prod(extent for extent in extents if extent))
    extents = [extent or 1 for extent in extents]
    if len(values) not in (1, prod(extents)) or prod(extents) > _MOST_VALUES:
        shape = "×".join(map(str, extents)) or "one element"
        raise SpecError(
            f"{where}: has {len(values)} values; the input holds {shape}, at most {_MOST_VALUES} can be given"
        )
    kind = onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type)
    if np.issubdtype(kind, np.integer) and any(value != int(value) for value in values):
        raise SpecError(f"{where}: is not whole; the input holds {kind}")
    filled = np.broadcast_to(np.array(values).astype(kind).reshape(extents if len(values) > 1 else ()), extents)
    graph.input.remove(item)
    graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(filled).reshape(extents), item.name))


def _guess(item: Any, symbols: dict[str, int]) -> list[str]:
    """Give open dimensions, but for a batch in first place, a usual extent; return what was guessed."""
    guesses = []
    for position, dim in enumerate(item.type.tensor_type.shape.dim):
        symbol = dim.dim_param
        if dim.dim_value or symbol in symbols or _is_batch(position, symbol):
            continue
        usual = next((n for parts, n in _USUAL if any(part in symbol.lower() for part in parts)), _USUAL_OTHER)
        dim.dim_value = usual
        if symbol:
            symbols[symbol] = usual
        guesses.append(f"{item.name} dimension {position}{f' ({symbol})' if symbol else ''} = {usual}")
    return guesses


def _fill_shape(item: Any, batch: int | None, symbols: dict[str, int]) -> list[tuple[str, str]]:
    """Fill open dimensions with known symbols and the batch; return what stays open, with the option that states it."""
    if not item.type.tensor_type.HasField("shape"):
        return [(f"input {item.name!r}: its shape is not stated in the file", f"--input-shape {item.name}=…")]
    dims = item.type.tensor_type.shape.dim
    left_open = []
    for position, dim in enumerate(dims):
        symbol = dim.dim_param
        if dim.dim_value > 0:
            continue
        if dim.dim_value < 0:
            raise SpecError(
                f"input {item.name!r}: dimension {position} is {dim.dim_value} in the file, which is no extent; "
                f"give every dimension with --input-shape {item.name}=…"
            )
        if symbol in symbols or _is_batch(position, symbol):
            dim.dim_value = symbols.setdefault(symbol, batch or 1) if symbol else batch or 1
        else:
            left_open.append(f"{position} ({symbol})" if symbol else str(position))
    if not left_open:
        return []
    plural = "dimensions" if len(left_open) > 1 else "dimension"
    example = ",".join(str(d.dim_value) if d.dim_value > 0 else (d.dim_param or "N") for d in dims)
    verb = "are" if len(left_open) > 1 else "is"
    what = f"input {item.name!r}: {plural} {', '.join(left_open)} {verb} open in the file"
    return [(what, f"--input-shape {item.name}={example}")]


def _is_batch(position: int, symbol: str) -> bool:
    """Say whether an open dimension is taken for the batch: the first, unless its name says otherwise."""
    return position == 0 and not any(part in symbol.lower() for part in _BATCHLESS_NAMES)
