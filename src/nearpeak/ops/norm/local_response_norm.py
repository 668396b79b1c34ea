"""Local response normalisation: each channel divided by the energy of its neighbours."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

_ALPHA, _BETA, _BIAS = 1e-4, 0.75, 1.0
"""What reference and PyTorch call use; the work does not depend on it."""


def local_response_norm(batch: int, channels: int, spatial: int, dtype: DType, size: int = 5) -> Work:
    """Return the least work of y = x / (bias + alpha * mean of x² over `size` neighbouring channels) ^ beta.

    Counts: per element a square, at least one addition to the window's sum where it holds several channels, scale and
    bias; a power and a division.

    Args:
        size: channels of the window.

    Source: Krizhevsky et al. 2012, "ImageNet classification with deep convolutional neural networks", section 3.3.

    >>> local_response_norm(1, 8, 16, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 512}
    """
    elements = batch * channels * spatial
    return Work(
        flop={unit(dtype): elements * (3 + minimum(size - 1, 1))},
        special_count=2 * elements,
        read_bytes=dtype.bytes(elements),
        write_bytes=dtype.bytes(elements),
    )


def _reference(arrays: dict[str, Any], channels: int, size: int, **_: Any) -> dict[str, Any]:
    x = arrays["x"]
    squares = np.pad(x * x, [(0, 0), (size // 2, (size - 1) // 2), (0, 0)])
    sums = sum(squares[:, start : start + channels] for start in range(size))
    return {"y": x / (_BIAS + _ALPHA * sums / size) ** _BETA}


def _torch_call(tensors: dict[str, Any], size: int, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.nn.functional.local_response_norm(tensors["x"], size, _ALPHA, _BETA, _BIAS)}


def _from_onnx(site: OnnxSite) -> Match:
    """Match LRN."""
    x = site.tensor(0)
    arguments: dict[str, Value] = {
        "batch": x.shape[0], "channels": x.shape[1], "spatial": prod(x.shape[2:]), "dtype": x.dtype,
        "size": site.attributes["size"],
    }  # fmt: skip
    return Match(arguments=arguments)


OPERATOR = Operator(
    forward=local_response_norm,
    family="norm",
    tolerance=Tolerance(kind="pointwise", ulp_count=16.0),
    inputs=lambda batch, channels, spatial, dtype, **_: {"x": Tensor(shape=(batch, channels, spatial), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    onnx={"LRN": _from_onnx},
)
