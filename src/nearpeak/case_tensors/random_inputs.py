"""Seeded random inputs of a case as NumPy arrays, with their sizes in bytes and the arguments of its forward pass."""

import math
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from nearpeak.base.host_system import usable_core_count
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS, work_of

LARGEST_BYTES = 2 * 2**30
"""Most bytes of a case's tensors on a CPU."""
_FLOATS = {"fp64": np.float64, "complex64": np.complex64, "complex128": np.complex128}
_INTEGERS = {"int64": np.int64, "int32": np.int32, "int16": np.int16, "uint64": np.uint64, "uint32": np.uint32,
             "uint16": np.uint16, "uint8": np.uint8}  # fmt: skip


def drawn(case: Case, set_count: int = 1) -> tuple[Mapping[str, Any], ...]:
    """Return independent sets of inputs of `case`, arrays by name: the same ones at every call.

    Formats that NumPy lacks are drawn in float32 and int8, for the runner to narrow. Positions, classes and other
    integers are uniform in the range that the operator states, with as many distinct ones as the case states (one
    touched row means an unknown number). Inputs that must be positive are. Masks are true everywhere, or as often as
    the case states.

    >>> from nearpeak.ops import case
    >>> sets = drawn(case("gemm", m=2, n=2, k=3, dtype="bf16"), 2)
    >>> sets[0]["a"].shape, sets[0]["a"].dtype.name, bool((sets[0]["a"] == sets[1]["a"]).any())
    ((1, 2, 3), 'float32', False)
    >>> embedding = case("embedding", tokens=100, vocab=50, dim=1, touched_rows=7, dtype="fp32")
    >>> index = drawn(embedding)[0]["index"]
    >>> len(set(index.tolist())), bool((index < 50).all())
    (7, True)

    Raises:
        NotModelledError: an extent is 0, and there are no valid inputs.
    """
    arguments = forward_arguments(case)
    seed = random.Random(case.digest).getrandbits(64)
    try:
        specs = OPS[case.op].inputs(**arguments)
        return tuple(_set(case.op, specs, arguments, (seed, index)) for index in range(set_count))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        if zeros := zeros_of(case):
            raise NotModelledError(f"{case.op}: no inputs with {zeros}: {error_line(error)}") from None
        raise


def zeros_of(case: Case) -> str:
    """Return the extents of `case` that are 0 and whose default is not, as text.

    >>> from nearpeak.ops import case
    >>> zeros_of(case("gemm", m=0, n=2, k=3, dtype="bf16"))
    'm=0'
    >>> zeros_of(case("conv", batch=1, in_channels=2, out_channels=3, w=4, kw=2, pw=1, pw_end=0, dtype="bf16"))
    ''
    """
    defaults = OPS[case.op].signatures[case.phase].defaults
    zeros = (name for name, extent in case.axes if extent == 0)
    # Padding at an end defaults to the padding at the beginning.
    return " ".join(f"{name}=0" for name in zeros if defaults.get(name.removesuffix("_end")) != 0)


def error_line(error: Exception) -> str:
    """Return the first line of an exception's message, or its type where the message is empty."""
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _set(op: str, specs: Mapping[str, Tensor], arguments: Mapping[str, Any], seed: tuple[int, int]) -> dict[str, Any]:
    arrays = {
        name: _input(np.random.default_rng((*seed, number)), op, name, spec, arguments)
        for number, (name, spec) in enumerate(specs.items())
    }
    valid = OPS[op].valid
    made = {} if valid is None else valid(arrays, **arguments)
    return arrays | {name: np.asarray(array, dtype=arrays[name].dtype) for name, array in made.items()}


def _input(generator: np.random.Generator, op: str, name: str, spec: Tensor, arguments: Mapping[str, Any]) -> Any:
    """Return one input in the range that the operator states."""
    numerics, kind = OPS[op].tolerance, dtype_of(spec.dtype).kind
    below = numerics.limit(name, arguments)
    counts = ((axis, int(arguments[axis])) for axis in OPS[op].data_axes if arguments.get(axis))
    true_count = next((0 if axis == "touched_rows" and count == 1 else count for axis, count in counts), 0)
    if kind == "bool":
        return _true(generator, spec.shape, true_count or _most(op, arguments))
    repeats = bool(true_count) or any(map(arguments.get, numerics.repeats_if))
    if kind in ("int", "opaque") and name in numerics.distinct and below and not repeats:
        return _distinct(generator, spec, below)
    if kind in ("int", "opaque"):
        return _whole(generator, spec, below or _BELOW.get(spec.dtype, 100), true_count if below else 0)
    if below == 2 and true_count:  # zeros and ones with a stated number of ones
        return _true(generator, spec.shape, true_count).astype(_FLOATS.get(spec.dtype, np.float32))
    if below and numerics.kind == "exact":
        return _whole(generator, spec, below, true_count).astype(_FLOATS.get(spec.dtype, np.float32))
    if kind == "complex":
        real, imaginary = (generator.standard_normal(spec.shape) for _ in range(2))
        values: Any = (real + 1j * imaginary).astype(_FLOATS.get(spec.dtype, np.complex64))
    else:
        values = _normal(generator, spec.shape, np.dtype(_FLOATS.get(spec.dtype, np.float32)))
    choices = {value for value in arguments.values() if isinstance(value, str)}
    positive = (entry.rpartition(":") for entry in numerics.positive)
    if any(positive_name == name and (not choice or choice in choices) for choice, _, positive_name in positive):
        values = np.abs(values) + _LEAST
    return values


def _most(op: str, arguments: Mapping[str, Any]) -> int:
    """Return the most elements of a mask that can be true; 0 where nothing limits them."""
    bounds = [bound for axis in OPS[op].data_axes.values() for bound in axis]
    return min((math.prod(int(arguments[name]) for name in bound.split("*")) for bound in bounds), default=0)


_BELOW = {"int4": 8, "uint4": 16}
_LEAST = np.float32(0.1)
"""Added to magnitudes, so that they are positive."""


def _true(generator: np.random.Generator, shape: tuple[int, ...], count: int) -> Any:
    """Return a mask with `count` true elements; 0 for all."""
    mask = np.ones(shape, np.bool_)
    if 0 < count < mask.size:
        mask.flat[generator.permutation(mask.size)[count:]] = False
    return mask


def _whole(generator: np.random.Generator, spec: Tensor, below: int, distinct_count: int) -> Any:
    """Return integers from 0 to below `below` with a number of distinct ones; 0 for any number."""
    shape, is_float = spec.shape, dtype_of(spec.dtype).kind == "float"
    kind = np.int64 if is_float else _INTEGERS.get(spec.dtype, np.int8)
    if not 0 < distinct_count <= min(below, spec.elements):
        return generator.integers(0, below, shape).astype(kind)
    chosen = generator.choice(below, distinct_count, replace=False)
    further = chosen[generator.integers(0, distinct_count, spec.elements - distinct_count)]
    return generator.permutation(np.concatenate([chosen, further])).astype(kind).reshape(shape)


def _distinct(generator: np.random.Generator, spec: Tensor, below: int) -> Any:
    """Return positions that are distinct within a row, if there are enough: each is written once."""
    wide = spec.shape[-1] if spec.shape else 1
    count = spec.elements // wide if wide else 0
    rows = [generator.choice(below, min(below, wide), replace=False) for _ in range(count)]
    whole = np.array([np.resize(row, wide) for row in rows], dtype=_INTEGERS.get(spec.dtype, np.int64))
    return whole.reshape(spec.shape)


_PIECE = 2**22
"""Elements drawn by one generator; larger arrays are drawn in pieces with own generators, on all cores."""


def _normal(generator: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return normal numbers, independent of the number of cores."""
    count = math.prod(shape)
    if count <= _PIECE:
        return generator.standard_normal(shape, dtype=dtype)
    values = np.empty(count, dtype)
    pieces = [values[first : first + _PIECE] for first in range(0, count, _PIECE)]

    def fill(piece_generator: np.random.Generator, piece: Any) -> None:
        piece_generator.standard_normal(out=piece, dtype=dtype)

    with ThreadPoolExecutor(usable_core_count()) as pool:
        list(pool.map(fill, generator.spawn(len(pieces)), pieces))
    return values.reshape(shape)


def forward_arguments(case: Case) -> dict[str, Any]:
    """Return the arguments of the forward pass of `case`.

    Attributes that a gradient's case does not state take their defaults; inputs that have a gradient are present.

    >>> from nearpeak.ops import case
    >>> gradient = case("conv", "backward", batch=1, in_channels=1, out_channels=1, w=3, kw=3, dtype="fp32",
    ...                 grad_bias=True)
    >>> forward_arguments(gradient)["bias"]
    True
    """
    return OPS[case.op].forward_arguments(case)


def size_bytes(case: Case) -> int:
    """Return the bytes of the inputs of `case` and of its writes.

    >>> from nearpeak.ops import case
    >>> size_bytes(case("gemm", m=2, n=2, k=3, dtype="fp32"))
    64
    """
    specs = OPS[case.op].inputs(**forward_arguments(case))
    return sum(spec.bytes for spec in specs.values()) + int(work_of(case).write_bytes)


def input_elements(case: Case) -> int:
    """Return the elements of all inputs of `case`.

    >>> from nearpeak.ops import case
    >>> input_elements(case("gemm", m=2, n=2, k=3, dtype="fp32"))
    12
    """
    return sum(spec.elements for spec in OPS[case.op].inputs(**forward_arguments(case)).values())


def too_large(case: Case, largest_bytes: int = LARGEST_BYTES) -> str:
    """Return that the tensors of `case` are too large; empty if they are not."""
    if size_bytes(case) <= largest_bytes:
        return ""
    return f"its tensors take more than {largest_bytes / 2**30:g} GiB"
