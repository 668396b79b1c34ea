"""Categories sampled in proportion to weights."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def multinomial(rows: int, categories: int, samples: int, dtype: DType, index_dtype: str = "int64") -> Work:
    """Return the least work of drawing `samples` categories per row of weights.

    Counts: bytes only; several algorithms of unlike cost are in use, and random bits are made on chip. Reference and
    PyTorch call leave only the first of the heaviest categories of each row, so that they can be compared.

    Args:
        index_dtype: format of the results.

    Source: definition.

    >>> multinomial(2, 100, 1, DType(name="fp32", bits_count=32)).write_bytes
    16
    """
    return Work(read_bytes=dtype.bytes(rows * categories), write_bytes=dtype_of(index_dtype).bytes(rows * samples))


def _valid(values: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return weights as they must be, none of them negative: all of a row above half of its largest.

    Twice any of them is then the heaviest of its row, so that what counts one twice, or leaves the last out, shows.
    """
    weights = values["weights"]
    if not weights.size:
        return {}
    low, high = (end(weights, axis=-1, keepdims=True) for end in (np.min, np.max))
    return {"weights": weights - low + 1.5 * np.where(high > low, high - low, 1.0)}


def _torch_call(tensors: dict[str, Any], samples: int, **_: Any) -> dict[str, Any]:
    import torch

    weights = tensors["weights"]
    heaviest = weights == weights.amax(-1, keepdim=True)
    first = heaviest & (heaviest.cumsum(-1) == 1)  # of equal ones, as the reference has it
    return {"y": torch.multinomial(first.to(weights.dtype), samples, replacement=True)}


def _match(weights: Tensor, out: Tensor) -> Match:
    rows = weights.elements // weights.shape[-1] if weights.elements else 0
    arguments: dict[str, Value] = {
        "rows": rows, "categories": weights.shape[-1], "samples": out.elements // rows if rows else 0,
        "dtype": weights.dtype, "index_dtype": out.dtype,
    }  # fmt: skip
    return Match(arguments=arguments)


def _from_aten(site: AtenSite) -> Match:
    """Match multinomial."""
    return _match(site.args["self"], site.outputs[0])


def _from_onnx(site: OnnxSite) -> Match:
    """Match Multinomial, whose weights are logarithms."""
    return _match(site.tensor(0), site.outputs[0])


OPERATOR = Operator(
    forward=multinomial,
    family="pointwise",
    tolerance=Tolerance(kind="exact", special="unspecified"),
    inputs=lambda rows, categories, dtype, **_: {"weights": Tensor(shape=(rows, categories), dtype=dtype)},
    reference=lambda arrays, samples, **_: {
        "y": np.repeat(arrays["weights"].argmax(axis=-1)[:, None], samples, axis=1)
    },
    torch_call=_torch_call,
    valid=_valid,
    aten={"aten.multinomial.default": _from_aten},
    onnx={"Multinomial": _from_onnx},
    draws=True,
)
