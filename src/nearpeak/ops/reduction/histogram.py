"""Histograms: histc and bincount."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.call_operands import claimed
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype

_REACH = 4.0
"""Reference and PyTorch call count floats between minus and plus this much; the work does not depend on it."""


@free_when_empty
def histogram(elements: int, bins: int, dtype: DType, out_dtype: DType | None = None, weighted: bool = False) -> Work:
    """Return the least work of y[bin] = number (or summed weight) of the values that fall into the bin.

    Counts: bytes only; finding the bin is comparison and conversion, counting is integer arithmetic, and how many
    weights meet in a bin depends on the data.

    Args:
        dtype: floats fall into bins of equal width, integers name their bin.
        weighted: each value adds its weight, in the format of the result, instead of 1.

    Source: definition.

    >>> histogram(1024, 8, DType(name="int64", bits_count=64, kind="int")).read_bytes
    8192
    """
    out = out_dtype or dtype
    return Work(
        read_bytes=dtype.bytes(elements) + (out.bytes(elements) if weighted else 0), write_bytes=out.bytes(bins)
    )


def _inputs(elements: int, dtype: str, out_dtype: str, weighted: bool, **_: Any) -> dict[str, Tensor]:
    tensors = {"x": Tensor(shape=(elements,), dtype=dtype)}
    return tensors | ({"weights": Tensor(shape=(elements,), dtype=out_dtype)} if weighted else {})


def _reference(arrays: dict[str, Any], bins: int, **_: Any) -> dict[str, Any]:
    x = arrays["x"]
    if x.dtype.kind in "iu":
        return {"y": np.bincount(x, weights=arrays.get("weights"), minlength=bins)}
    return {"y": np.histogram(x, bins=bins, range=(-_REACH, _REACH))[0]}


def _edges(bins: int, **_: Any) -> Any:
    """Return 0 and the edges far from it: bins are found by distances from the first edge, of whose size errors are."""
    every = np.linspace(-_REACH, _REACH, max(bins, 1) + 1)
    return every[(every == 0) | (np.abs(every) > _REACH / 4)]


def _torch_call(tensors: dict[str, Any], bins: int, dtype: str, out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    x = tensors["x"]
    if x.is_floating_point():
        y = torch.histc(x, bins=bins, min=-_REACH, max=_REACH)
    else:
        y = torch.bincount(x, tensors.get("weights"), minlength=bins)
    return {"y": y if dtype == out_dtype else y.to(torch_dtype(torch, out_dtype))}


def _from_aten(site: AtenSite) -> Match:
    """Match all histograms; bin edges are not counted, and how many bins bincount writes beyond the least is data."""
    x, out = site.args["self"], site.outputs[0]
    arguments = {
        "elements": x.elements, "bins": out.elements, "dtype": x.dtype, "out_dtype": out.dtype,
        "weighted": site.args.get("weights") is not None,
    }  # fmt: skip
    return Match(arguments=arguments)


def _between(site: AtenSite) -> Match:
    """Match the edges of bins between the extrema of each coordinate."""
    x = site.args["self"]
    columns = x.shape[-1] if x.shape else 1
    arguments: dict[str, Value] = {"outputs": columns, "reduced": x.elements // max(1, columns), "dtype": x.dtype}
    return Match(op="reduce", arguments=arguments | {"function": "min_max"})


OPERATOR = Operator(
    forward=histogram,
    family="reduction",
    tolerance=Tolerance(
        kind="normalisation",
        reduction="elements",
        below={"x": "bins"},
        steps_count=2,
        least_format="fp32",
        rounds=("large", "edges", "ends", "single"),  # of many bins, random elements fill few
    ),
    inputs=_inputs,
    reference=_reference,
    edges=_edges,
    torch_call=_torch_call,
    aten={
        **claimed(("aten.histc.default", "aten.bincount.default"), _from_aten),
        **claimed(("aten.histogram.bin_ct", "aten.histogram.bins_tensor"), _from_aten),
        **{f"aten._histogramdd_from_bin_{kind}.default": _from_aten for kind in ("cts", "tensors")},
        "aten._histogramdd_bin_edges.default": _between,
    },
)
