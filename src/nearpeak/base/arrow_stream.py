"""Columns as Arrow streams, which data frames read, and data frames as columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.errors import MissingExtraError, SpecError


def stream_of(columns: Mapping[str, Any]) -> Any:
    """Return a capsule with the columns as an Arrow C stream of one batch; numbers without a mask are not copied.

    Args:
        columns: arrays of one length: numbers, truth values or, as objects, texts; masked cells and none are null.

    Raises:
        MissingExtraError: nanoarrow is not installed.

    Source: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html

    >>> type(stream_of({"m": np.arange(3), "op": np.array(["gemm", None, "conv"], dtype=object)})).__name__
    'PyCapsule'
    """
    try:
        import nanoarrow
        from nanoarrow.c_array_stream import CArrayStream
    except ImportError:
        raise MissingExtraError("arrow: nanoarrow is not installed; pip install 'nearpeak[tables]'") from None
    fields, children = {}, []
    for name, values in columns.items():
        kind, buffers = _text(values) if values.dtype.kind in "OU" else _numbers(values)
        fields[name] = getattr(nanoarrow, kind)()
        children.append(nanoarrow.c_array_from_buffers(fields[name], len(values), buffers))
    count = len(next(iter(columns.values()), ()))
    batch = nanoarrow.c_array_from_buffers(nanoarrow.struct(fields), count, [None], children=children)
    return CArrayStream.from_c_arrays([batch], batch.schema).__arrow_c_stream__()


def frame_columns(frame: Any) -> dict[str, Any]:
    """Return the columns of a data frame of pandas, polars, pyarrow or whatever else narwhals reads.

    Raises:
        MissingExtraError: narwhals is not installed.
        SpecError: it is no data frame.
    """
    try:
        import narwhals
    except ImportError:
        raise MissingExtraError("data frame: narwhals is not installed; pip install 'nearpeak[tables]'") from None
    try:
        whole = narwhals.from_native(frame).lazy().collect()
    except TypeError:
        name = type(frame).__name__
        raise SpecError(f"table: {name} is no data frame; give one, or a mapping of columns") from None
    return {column.name: column.to_numpy() for column in whole.iter_columns()}


def _numbers(values: Any) -> tuple[str, list[Any]]:
    """Return the Arrow type of numbers or truth values, with validity and data."""
    data, mask = np.ma.getdata(values), np.ma.getmask(values)
    valid = None if mask is np.ma.nomask else _bits(~mask)
    if data.dtype.kind == "b":
        return "bool_", [valid, _bits(data)]
    return str(data.dtype), [valid, np.ascontiguousarray(data)]


def _text(values: Any) -> tuple[str, list[Any]]:
    """Return the Arrow type of texts, with validity, offsets and the texts one after the other."""
    cells = values.tolist()
    encoded = [b"" if cell is None else str(cell).encode() for cell in cells]
    offsets = np.zeros(len(cells) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(cells)), out=offsets[1:])
    valid = _bits(np.array([cell is not None for cell in cells], dtype=bool)) if None in cells else None
    return "large_string", [valid, offsets, b"".join(encoded)]


def _bits(truths: Any) -> Any:
    return np.packbits(truths, bitorder="little")
