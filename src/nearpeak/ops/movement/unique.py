"""Distinct values of a tensor, with the inverse indices and the counts."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def unique(elements: int, dtype: DType, found: int = 1, inverse: bool = False, counts: bool = False) -> Work:
    """Return the least work of the distinct values of x in ascending order.

    Counts: bytes only; comparisons are not charged. How many values are distinct is data, between 1 and `elements`; a
    bound takes one unless the values are known (assumption A9).

    Args:
        found: distinct values.
        inverse: the position of each element's value among them is written too, as int64.
        counts: how often each value occurs is written too, as int64.

    Source: definition.

    >>> unique(8, DType(name="fp32", bits_count=32), found=3, inverse=True).write_bytes
    76
    """
    some = minimum(found, elements)
    return Work(
        read_bytes=dtype.bytes(elements),
        write_bytes=dtype.bytes(some) + INDEX.bytes(inverse * elements + counts * some),
    )


def _chosen(results: Any, inverse: bool, counts: bool) -> dict[str, Any]:
    by_name = dict(zip(("values", "inverse", "counts"), results, strict=True))
    return {name: by_name[name] for name, wanted in zip(by_name, (True, inverse, counts), strict=True) if wanted}


def _reference(arrays: dict[str, Any], inverse: bool, counts: bool, **_: Any) -> dict[str, Any]:
    return _chosen(np.unique(arrays["x"], return_inverse=True, return_counts=True), inverse, counts)


def _torch_call(tensors: dict[str, Any], inverse: bool, counts: bool, **_: Any) -> dict[str, Any]:
    import torch

    results = torch._unique2(tensors["x"], sorted=True, return_inverse=inverse, return_counts=counts)
    return _chosen(results, inverse, counts)


def _from_aten(site: AtenSite) -> Match:
    """Match the variants of unique; with a dimension, the distinct slices hold at least one slice's elements."""
    x, dimension = site.args["self"], site.args.get("dim")
    extent = 1 if dimension is None or not x.shape else x.shape[dimension]
    arguments: dict[str, Value] = {
        "elements": x.elements, "dtype": x.dtype,
        "found": x.elements // extent if dimension is not None and extent else 1,
    }  # fmt: skip
    # Slices of a dimension have one position for all their elements: neither positions nor counts are charged then.
    if dimension is None:
        arguments |= {name: bool(site.args.get(f"return_{name}")) for name in ("inverse", "counts")}
    return Match(arguments=arguments, touched_bytes={"write:": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match Unique; results beyond the values are not charged."""
    x = site.tensor(0)
    return Match(arguments={"elements": x.elements, "dtype": x.dtype})


OPERATOR = Operator(
    forward=unique,
    family="movement",
    data_axes={"found": ("elements",)},
    tolerance=Tolerance(kind="exact", below={"x": "elements"}),
    inputs=lambda elements, dtype, **_: {"x": Tensor(shape=(elements,), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    aten={f"aten.{name}.default": _from_aten for name in ("_unique2", "_unique", "unique_consecutive", "unique_dim")},
    onnx={"Unique": _from_onnx},
)
