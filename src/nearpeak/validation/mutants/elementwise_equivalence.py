"""Proofs that mutants of element-wise comparisons, signs and tests are equivalent."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.ops.shared.reference.elementwise_functions import COMPARISONS, LOGICAL, NONFINITE, function_of


def values(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the possible results by output: booleans, in any format, of comparisons; signs; angles."""
    name = arguments["function"]
    if name == "logical_or" and not arguments["b"]:  # with a scalar that is not 0
        return {"y": np.ones(1)}
    if name == "angle":
        return {"y": np.array([0.0, np.pi])}
    if name == "heaviside" and not arguments["b"]:
        return {"y": np.array([0.0, function_of(name).scalars[0], 1.0])}
    return {"y": np.arange(-1, 2) if name == "sign" else np.arange(2)} if name in _OF_FEW else {}


_OF_FEW = (*COMPARISONS, *LOGICAL, *NONFINITE, "signbit", "sign")


_TWICE = "tile counted twice"
INVARIANT: dict[tuple[str, str, str, str], str] = {
    **{
        ("elementwise", name, row, where): "products with 0, 1 and 2 keep the sign, of zeros too, and no more is read"
        for name, read in (("signbit", "a"), ("copysign", "b"))
        for row, where in (
            ("operand ignored", read), ("last slice dropped", f"{read}[0]"), ("last tile dropped", f"{read}[0]"),
            (_TWICE, f"{read}[0]"),
        )
    },
    **{
        ("elementwise", name, row, where): "the kind of a number is left alone: zero, finite, infinite or none"
        for name in (*LOGICAL, *NONFINITE, "sign")
        for row, where in ((_TWICE, "a[0]"), (_TWICE, "b[0]"), ("computed in fewer bits", ""))
    },
    ("elementwise", "heaviside", _TWICE, "a[0]"): "doubling keeps the sign, and of this operand no more is read",
    **{
        ("elementwise", "angle", row, ""): "the gradient of a step is 0"
        for row in (
            "gradient zero", "gradient by the wrong count", "upstream taken as uniform",
            "only the first upstream element used", "upstream reversed",
        )
    },
    **{
        ("elementwise", "angle", row, where): "the sign is left alone, and no more is read"
        for row, where in ((_TWICE, "a[0]"), ("computed in fewer bits", ""))
    },
    **{
        ("elementwise", "isfinite", row, where): "a product of a number that is not finite and 0 is none either"
        for row, where in (
            ("operand ignored", "a"), ("last slice dropped", "a[0]"), ("last tile dropped", "a[0]"),
        )
    },
    ("elementwise", "signbit", "computed in fewer bits", ""): "rounding keeps the sign, and no more is read",
}  # fmt: skip
"""By operator, function, mistake and place: why the result is the same."""
