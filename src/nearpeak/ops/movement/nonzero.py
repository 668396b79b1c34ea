"""Indices of the non-zero elements of a tensor."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def nonzero(elements: int, dtype: DType, rank: int = 1, found: int = 0) -> Work:
    """Return the least work of listing the positions of all elements that are not zero, `rank` int64 each.

    Counts: bytes only. How many there are is data, between 0 and `elements`; a bound takes none unless the values are
    known (assumption A9).

    Args:
        rank: numbers per position; reference and PyTorch call give the tensor that many dimensions of which all but
            the last are 1.
        found: elements that are not zero.

    Source: definition.

    >>> nonzero(8, DType(name="fp32", bits_count=32), rank=2, found=3).write_bytes
    48
    """
    return Work(read_bytes=dtype.bytes(elements), write_bytes=INDEX.bytes(minimum(found, elements) * rank))


MOST_DIMENSIONS = 64
"""Of a tensor of PyTorch."""


def _inputs(elements: int, rank: int, dtype: str, **_: Any) -> dict[str, Tensor]:
    if rank > MOST_DIMENSIONS:
        raise NotModelledError(f"nonzero: rank={rank}, but no tensor is made of more than {MOST_DIMENSIONS} dimensions")
    return {"x": Tensor(shape=(1,) * (rank - 1) + (elements,), dtype=dtype)}


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.nonzero(tensors["x"])}


def _match(x: Tensor) -> Match:
    arguments: dict[str, Value] = {"elements": x.elements, "rank": max(1, len(x.shape)), "dtype": x.dtype}
    return Match(arguments=arguments, touched_bytes={"write:": 0})


def _from_aten(site: AtenSite) -> Match:
    """Match nonzero and argwhere; how many positions there are is not known."""
    return _match(site.args["self"])


def _counted(site: AtenSite) -> Match:
    """Match nonzero_static, which fills up what it does not find."""
    x, out = site.args["self"], site.outputs[0]
    positions = out.elements // max(1, len(x.shape))
    return Match(arguments={**_match(x).arguments, "found": positions})


def _from_onnx(site: OnnxSite) -> Match:
    """Match NonZero."""
    return _match(site.tensor(0))


OPERATOR = Operator(
    forward=nonzero,
    family="movement",
    data_axes={"found": ("elements",)},
    tolerance=Tolerance(kind="exact", below={"x": "2"}),
    inputs=_inputs,
    reference=lambda arrays, **_: {"y": np.argwhere(arrays["x"])},
    torch_call=_torch_call,
    aten={
        "aten.nonzero.default": _from_aten,
        "aten.argwhere.default": _from_aten,
        "aten.nonzero_static.default": _counted,
    },
    onnx={"NonZero": _from_onnx},
)
