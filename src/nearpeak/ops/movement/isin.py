"""Membership test: for each element, whether it occurs in a second tensor."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def isin(elements: int, tests: int, dtype: DType) -> Work:
    """Return the least work of y[i] = x[i] is one of t[tests].

    Counts: bytes only; comparisons are not charged, as how many are needed depends on the data.

    Args:
        tests: elements of the set; 0 where it is one number.

    Source: definition.

    >>> isin(8, 3, DType(name="int64", bits_count=64, kind="int")).read_bytes
    88
    """
    return Work(read_bytes=dtype.bytes(elements + tests), write_bytes=elements)


def _valid(drawn: dict[str, Any], elements: int, tests: int, **_: Any) -> dict[str, Any]:
    """Return some elements that are of the set, its last first: few elements would seldom meet those of a large set."""
    if not tests:
        return {}
    members = np.resize(drawn["t"][::-1], elements)
    return {"x": np.where(drawn["x"] > members, members, drawn["x"])}


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.isin(tensors["x"], tensors["t"])}


def _from_aten(site: AtenSite) -> Match:
    """Match isin of tensors and of single numbers."""
    operands = [site.args.get(name) for name in ("elements", "test_elements")]
    x, tests = (value if isinstance(value, Tensor) else None for value in operands)
    dtype = (x or tests or site.outputs[0]).dtype
    arguments: dict[str, Value] = {"elements": site.outputs[0].elements, "tests": tests.distinct if tests else 0}
    return Match(arguments=arguments | {"dtype": dtype})


OPERATOR = Operator(
    forward=isin,
    family="movement",
    tolerance=Tolerance(kind="exact", below={"x": "2*tests", "t": "2*tests"}),
    inputs=lambda elements, tests, dtype, **_: {
        "x": Tensor(shape=(elements,), dtype=dtype),
        "t": Tensor(shape=(tests,), dtype=dtype),
    },
    valid=_valid,
    reference=lambda arrays, **_: {"y": np.isin(arrays["x"], arrays["t"]) * 1},
    torch_call=_torch_call,
    aten={f"aten.isin.{kind}": _from_aten for kind in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")},
)
