"""Running sums and products."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DType
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._arrays import maximum
from nearpeak.ops._operator import AtenSite, Match, Numerics, OnnxSite, Operator, Value
from nearpeak.ops._sites import along


def scan(rows: int, length: int, dtype: DType, function: str = "sum", out_dtype: DType | None = None) -> Work:
    """Return the least work of y[row,i] = x[row,0] + … + x[row,i], or of the product.

    Counts: length - 1 FLOP per row; integers none.

    Args:
        function: sum or prod.

    Source: definition.

    >>> scan(2, 8, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 14}
    """
    unit = "vector.fp64" if dtype.name == "fp64" else "vector.fp32"
    return Work(
        flop={unit: rows * maximum(length - 1, 0)} if dtype.kind == "float" else {},
        read_bytes=dtype.bytes(rows * length),
        write_bytes=(out_dtype or dtype).bytes(rows * length),
    )


def _inputs(rows: int, length: int, dtype: str, **_: Any) -> dict[str, Tensor]:
    return {"x": Tensor(shape=(rows, length), dtype=dtype)}


def _reference(arrays: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    return {"y": (np.cumsum if function == "sum" else np.cumprod)(arrays["x"], axis=-1)}


def _torch_call(tensors: dict[str, Any], function: str, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": (torch.cumsum if function == "sum" else torch.cumprod)(tensors["x"], -1)}


def _match(x: Tensor, out: Tensor, dimension: int, function: str) -> Match:
    rows, length = along(x, dimension)
    arguments: dict[str, Value] = {"rows": rows, "length": length, "dtype": x.dtype, "out_dtype": out.dtype}
    return Match(arguments=arguments | {"function": function})


def _from_aten(site: AtenSite) -> Match:
    """Match cumsum and cumprod."""
    function = "prod" if "cumprod" in site.name else "sum"
    return _match(site.args["self"], site.outputs[0], site.args["dim"], function)


def _from_onnx(site: OnnxSite) -> Match:
    """Match CumSum, whose second input is the axis."""
    x = site.inputs[0]
    assert x is not None
    return _match(x, site.outputs[0], int(site.constants.get(1, (0,))[0]), "sum")


OPERATOR = Operator(
    forward=scan,
    source="definition",
    numerics=Numerics(kind="reduction", reduction="length"),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    aten={f"aten.{name}{end}": _from_aten for name in ("cumsum", "cumprod") for end in (".default", "_.default")},
    onnx={"CumSum": _from_onnx},
)
