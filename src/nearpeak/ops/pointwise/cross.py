"""Cross products of three-component vectors."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def cross(vectors: int, dtype: DType, a: int | None = None, b: int | None = None) -> Work:
    """Return the least work of y[vector] = a[vector] x b[vector].

    Counts: nine FLOP per vector: two products and one difference per component; integers none, complex numbers as for
    other element-wise arithmetic twice as many.

    Args:
        a: distinct vectors of the first operand; fewer than `vectors` when it is broadcast; likewise b.

    Source: definition.

    >>> cross(4, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 36}
    """
    left, right = vectors if a is None else a, vectors if b is None else b
    required_at_most("cross", {"vectors": vectors}, a=left, b=right)
    factor = {"float": 9, "complex": 18}.get(dtype.kind, 0)
    return Work(
        flop={unit(dtype): factor * vectors} if factor else {},
        read_bytes=dtype.bytes(3 * (left + right)),
        write_bytes=dtype.bytes(3 * vectors),
    )


def _torch_call(tensors: dict[str, Any], vectors: int, **_: Any) -> dict[str, Any]:
    import torch

    a, b = tensors["a"], tensors["b"]
    shared = max(len(a), len(b)) < vectors
    return {"y": torch.linalg.cross(a.expand(vectors, 3) if shared else a, b)}


def _from_aten(site: AtenSite) -> Match:
    """Match linalg.cross."""
    out, vectors = site.outputs[0], site.outputs[0].elements // 3
    distinct = {name: min(site.args[of].distinct // 3, vectors) for name, of in (("a", "self"), ("b", "other"))}
    return Match(arguments={"vectors": vectors, "dtype": out.dtype, **distinct})


OPERATOR = Operator(
    forward=cross,
    family="pointwise",
    tolerance=Tolerance(kind="normalisation", steps_count=2),
    inputs=lambda dtype, a, b, **_: {
        name: Tensor(shape=(count, 3), dtype=dtype) for name, count in (("a", a), ("b", b))
    },
    reference=lambda arrays, vectors, **_: {"y": np.broadcast_to(np.cross(arrays["a"], arrays["b"]), (vectors, 3))},
    torch_call=_torch_call,
    same={"a": "vectors", "b": "vectors"},
    aten={"aten.linalg_cross.default": _from_aten},
)
