"""Cumulative sums, products, extrema and log-sum-exps."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.call_operands import along
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import in_wider, torch_dtype

_EXTREMA: Mapping[str, Any] = {"max": np.maximum, "min": np.minimum}
_SCANS: Mapping[str, Any] = {"sum": np.add, "prod": np.multiply, "logsumexp": np.logaddexp, **_EXTREMA}


def scan(rows: int, length: int, dtype: DType, function: str = "sum", out_dtype: DType | None = None) -> Work:
    """Return the least work of y[row,i] = x[row,0] + … + x[row,i], or of the product, maximum and so on.

    Counts: length - 1 FLOP per row; integers none. Extrema come with their positions as int64; logsumexp takes an
    exponential per element and a logarithm per result beyond the first.

    Args:
        function: sum, prod, max, min or logsumexp.

    Source: definition.

    >>> scan(2, 8, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 14}
    """
    positions = INDEX.bytes(rows * length) if scan_of(function) in _EXTREMA else 0
    return Work(
        flop={unit(dtype): rows * maximum(length - 1, 0)} if dtype.kind == "float" else {},
        special_count=rows * maximum(2 * length - 1, 0) if function == "logsumexp" else 0,
        read_bytes=dtype.bytes(rows * length),
        write_bytes=(out_dtype or dtype).bytes(rows * length) + positions,
    )


def scan_of(name: str) -> str:
    """Return `name`, refused when it is no known scan."""
    if name not in _SCANS:
        raise unknown_name("scan", name, tuple(_SCANS))
    return name


def _reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    x = arrays["x"]
    y = _SCANS[function].accumulate(x, axis=-1)
    if function not in _EXTREMA:
        return {"y": y}
    # Of equal elements the last one counts, as in PyTorch.
    places = np.where(x == y, np.arange(x.shape[-1]), 0)
    return {"y": y, "indices": np.maximum.accumulate(places, axis=-1)}


def _torch_call(tensors: dict[str, Any], function: str, dtype: str, out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    if function in _EXTREMA:
        return dict(zip(("y", "indices"), getattr(torch, f"cum{function}")(tensors["x"], -1), strict=True))
    name = {"logsumexp": "logcumsumexp"}.get(function, f"cum{function}")
    if dtype == out_dtype:
        return {"y": getattr(torch, name)(tensors["x"], -1)}
    y = getattr(torch, name)(in_wider(torch, tensors, out_dtype)["x"], -1)
    return {"y": y.to(torch_dtype(torch, out_dtype))}


def _match(x: Tensor, out: Tensor, dimension: int, function: str) -> Match:
    rows, length = along(x, dimension)
    arguments: dict[str, Value] = {"rows": rows, "length": length, "dtype": x.dtype, "out_dtype": out.dtype}
    return Match(arguments=arguments | {"function": function})


def _from_aten(site: AtenSite) -> Match:
    """Match the cumulative operators."""
    name = site.name.split(".")[1].strip("_")
    function = "logsumexp" if name == "logcumsumexp" else name.removeprefix("cum")
    return _match(site.args["self"], site.outputs[0], site.args["dim"], function)


def _from_onnx(site: OnnxSite) -> Match:
    """Match CumSum and CumProd, whose second input is the axis."""
    x = site.tensor(0)
    axis = int(site.constants.get(1, (0,))[0])
    return _match(x, site.outputs[0], axis, site.name.removeprefix("Cum").lower())


OPERATOR = Operator(
    forward=scan,
    family="reduction",
    tolerance=Tolerance(
        kind="reduction",
        reduction="length",
        exact=("max", "min"),
        rounds=("large:logsumexp", "deep:max", "high:min", "peak_first:logsumexp", "peak_last:logsumexp"),
        not_in_fp16=("prod",),
    ),
    inputs=lambda rows, length, dtype, **_: {"x": Tensor(shape=(rows, length), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    aten={
        f"aten.{name}.default": _from_aten
        for name in ("cumsum", "cumsum_", "cumprod", "cumprod_", "cummax", "cummin", "logcumsumexp", "_logcumsumexp")
    },
    onnx={"CumSum": _from_onnx, "CumProd": _from_onnx},
)
