"""Inputs of a case as NumPy arrays: seeded by the case, random where numbers are computed with, valid as positions."""

import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.dtype import dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.ops import OPS, work_of

LARGEST_BYTES = 2 * 2**30
"""Cases whose tensors take more are not run on a CPU."""
_FLOATS = {"fp64": np.float64, "complex64": np.complex64, "complex128": np.complex128}
_INTEGERS = {"int64": np.int64, "int32": np.int32, "int16": np.int16, "uint64": np.uint64, "uint32": np.uint32,
             "uint16": np.uint16, "uint8": np.uint8}  # fmt: skip


def drawn(case: Case, set_count: int = 1) -> tuple[Mapping[str, Any], ...]:
    """Return independent sets of inputs of `case`, arrays by name: the same ones at every call.

    Formats that NumPy lacks are drawn in float32 and int8, for the runner to narrow. Integers are 0 and masks true:
    what is an index of what, the shapes do not say.

    >>> from nearpeak.ops import case
    >>> sets = drawn(case("gemm", m=2, n=2, k=3, dtype="bf16"), 2)
    >>> sets[0]["a"].shape, sets[0]["a"].dtype.name, bool((sets[0]["a"] == sets[1]["a"]).any())
    ((1, 2, 3), 'float32', False)
    """
    specs = OPS[case.op].inputs(**forward_arguments(case))
    seed = random.Random(case.digest).getrandbits(64)
    return tuple(
        {
            name: _values(np.random.default_rng((seed, index, number)), spec)
            for number, (name, spec) in enumerate(specs.items())
        }
        for index in range(set_count)
    )


def _values(generator: np.random.Generator, spec: Tensor) -> Any:
    kind = dtype_of(spec.dtype).kind
    if kind == "bool":
        return np.ones(spec.shape, np.bool_)
    if kind in ("int", "opaque"):
        return np.zeros(spec.shape, _INTEGERS.get(spec.dtype, np.int8))
    if kind == "complex":
        parts = (generator.standard_normal(spec.shape) for _ in range(2))
        return (next(parts) + 1j * next(parts)).astype(_FLOATS.get(spec.dtype, np.complex64))
    if spec.dtype == "fp64":
        return generator.standard_normal(spec.shape)
    return generator.standard_normal(spec.shape, dtype=np.float32)


def forward_arguments(case: Case) -> dict[str, Any]:
    """Return the arguments of the forward pass that `case` is, or whose gradient it is.

    What the gradient's case leaves open stands at its default; what has a gradient is present.

    >>> from nearpeak.ops import case
    >>> gradient = case("conv", "backward", batch=1, in_channels=1, out_channels=1, w=3, kw=3, dtype="fp32",
    ...                 grad_bias=True)
    >>> forward_arguments(gradient)["bias"]
    True
    """
    operator = OPS[case.op]
    signature = operator.signatures["forward"]
    given: dict[str, Any] = {**dict(case.axes), **dict(case.dtypes), **dict(case.attributes)}
    present = {name: given[f"grad_{name}"] for name in signature.attributes if f"grad_{name}" in given}
    known = {name: value for name, value in (present | given).items() if name in signature.names()}
    whole = operator.case("forward", **known)
    return {**dict(whole.axes), **dict(whole.dtypes), **dict(whole.attributes)}


def size_bytes(case: Case) -> int:
    """Return the bytes of the inputs of `case` and of what it writes.

    >>> from nearpeak.ops import case
    >>> size_bytes(case("gemm", m=2, n=2, k=3, dtype="fp32"))
    64
    """
    specs = OPS[case.op].inputs(**forward_arguments(case))
    return sum(spec.bytes for spec in specs.values()) + int(work_of(case).write_bytes)


def too_large(case: Case, largest_bytes: int = LARGEST_BYTES) -> str:
    """Return that the tensors of `case` take too much; empty when they do not."""
    if size_bytes(case) <= largest_bytes:
        return ""
    return f"its tensors take more than {largest_bytes / 2**30:g} GiB"
