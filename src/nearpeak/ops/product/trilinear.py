"""Bilinear layers and their gradients: sums of products of three factors."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import contraction
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

OPERANDS = {"left": "bi", "weight": "oij", "right": "bj", "output": "bo"}
"""Axes of the four tensors, of which three give the fourth."""


@free_when_empty
def trilinear(batch: int, out: int, left: int, right: int, dtype: DType, result: str = "output") -> Work:
    """Return the least work of y[b,o] = sum over i and j of left[b,i] weight[o,i,j] right[b,j].

    Counts: 2 * batch * out * left * right FLOP, those of the first of two matrix products; the second one, smaller by
    one axis, and what forms a product of two vectors are not counted, as it depends on the order which that is.

    Args:
        left: elements of the first input vector.
        right: elements of the second.
        result: output, or the tensor whose gradient is wanted: left, weight or right.

    Source: definition, as torch.nn.Bilinear states it.

    >>> trilinear(2, 3, 4, 5, DType(name="fp32", bits_count=32)).flop
    {'matrix.fp32': 240}
    """
    required_one_of("trilinear", OPERANDS, result=result)
    sizes = {"left": batch * left, "weight": out * left * right, "right": batch * right, "output": batch * out}
    return Work(
        flop=contraction(dtype, batch * out * left * right),
        read_bytes=sum(dtype.bytes(size) for name, size in sizes.items() if name != result),
        write_bytes=dtype.bytes(sizes[result]),
    )


def _inputs(batch: int, out: int, left: int, right: int, dtype: str, result: str, **_: Any) -> dict[str, Tensor]:
    extents = {"b": batch, "o": out, "i": left, "j": right}
    return {
        name: Tensor(shape=tuple(extents[axis] for axis in axes), dtype=dtype)
        for name, axes in OPERANDS.items()
        if name != result
    }


def _equation(names: Any, result: str) -> str:
    return ",".join(OPERANDS[name] for name in names) + "->" + OPERANDS[result]


def _torch_call(tensors: dict[str, Any], result: str, **_: Any) -> dict[str, Any]:
    import torch

    if result == "output":
        return {"y": torch.nn.functional.bilinear(tensors["left"], tensors["right"], tensors["weight"])}
    return {"y": torch.einsum(_equation(tensors, result), *tensors.values())}


def _from_aten(site: AtenSite) -> Match:
    """Match _trilinear; its dimensions are batch, output, left and right."""
    shapes, sums = [], [dimension % 4 for dimension in site.args["sumdim"]]
    for number in (1, 2, 3):
        shape = list(site.args[f"i{number}"].shape)
        for dimension in sorted(site.args[f"expand{number}"]):
            shape.insert(dimension, 0)
        shapes.append(shape)
    extents = [max(shape[axis] for shape in shapes) for axis in range(len(shapes[0]))]
    result = {(2, 3): "output", (0,): "weight"}.get(tuple(sorted(sums)), "right" if 2 in sums else "left")
    axes = dict(zip(("batch", "out", "left", "right"), extents, strict=True))
    arguments: dict[str, Value] = {**axes, "dtype": site.outputs[0].dtype, "result": result}
    return Match(arguments=arguments)


OPERATOR = Operator(
    forward=trilinear,
    family="product",
    degree_count=4,
    tolerance=Tolerance(kind="contraction", reduction="left right", steps_count=1),
    inputs=_inputs,
    reference=lambda arrays, result, **_: {
        "y": np.einsum(_equation([n for n in arrays if n in OPERANDS], result), *arrays.values())
    },
    torch_call=_torch_call,
    aten={"aten._trilinear.default": _from_aten},
)
