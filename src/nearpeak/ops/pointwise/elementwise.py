"""Element-wise functions of one to three operands, with broadcasting."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, unless_empty, where
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple
from nearpeak.ops.shared.definition.operator import Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.elementwise_calls import aten_claims, onnx_claims
from nearpeak.ops.shared.reference.elementwise_functions import (
    COMPARISONS,
    FUNCTIONS,
    LOGICAL,
    NONFINITE,
    POLYNOMIALS,
    WHOLE,
    Function,
    function_of,
)
from nearpeak.ops.shared.reference.formula import Formula, next_after
from nearpeak.ops.shared.torch_names import torch_dtype


def elementwise(
    elements: int, dtype: DType, function: str, a: int | None = None, b: int = 0, c: int = 0,
    a_dtype: DType | None = None, b_dtype: DType | None = None, c_dtype: DType | None = None,
    out_dtype: DType | None = None,
) -> Work:  # fmt: skip
    """Return the least work of y[elements] = function(a, b, c), operands broadcast.

    Counts: one FLOP per addition, multiplication, comparison, rounding or sign operation of the function's formula,
    one special evaluation per division, power, root, exponential and the like; twice that for complex numbers;
    integer and Boolean arithmetic is no FLOP.

    Args:
        dtype: format of the arithmetic and, unless out_dtype is given, of the result; comparisons give out_dtype=bool.
        function: add, mul, gelu, silu, where, …
        a: distinct elements of the first operand; fewer than `elements` when it is broadcast.
        b: distinct elements of the second operand; 0 where it is a scalar, absent or the first one again.
        c: likewise of the third.

    Source: definitions of the functions, as PyTorch and ONNX state them; an FMA is 2 FLOP.

    >>> work = elementwise(8, DType(name="bf16", bits_count=16), "add", b=4)
    >>> work.read_bytes, work.write_bytes
    (24, 16)
    """
    row = function_of(function)
    sizes = _sizes(row, elements if a is None else a, b, c)
    required_at_most("elementwise", {"elements": elements}, **sizes)
    formats = {"a": a_dtype or dtype, "b": b_dtype or dtype, "c": c_dtype or dtype}
    return _work(
        (row.forward,),
        elements,
        dtype,
        read_bytes=sum(formats[name].bytes(size) for name, size in sizes.items()),
        write_bytes=(out_dtype or dtype).bytes(elements),
    )


def _backward(
    elements: int, dtype: DType, function: str, a: int | None = None, b: int = 0, c: int = 0,
    a_dtype: DType | None = None, b_dtype: DType | None = None, c_dtype: DType | None = None,
    out_dtype: DType | None = None, grad: int | None = None,
) -> Work:  # fmt: skip
    """Return the least work of the gradients of all floating operands, from the result's gradient.

    Counts: the formulas of the gradients, common parts once; one FLOP per addition where a broadcast operand's
    gradient is summed. Operands and results are read where the formulas name them.

    Args:
        grad: distinct elements of the result's gradient; fewer than `elements` when it is itself broadcast.
    """
    row = function_of(function)
    sizes = _sizes(row, elements if a is None else a, b, c)
    formats = {"a": a_dtype or dtype, "b": b_dtype or dtype, "c": c_dtype or dtype}
    stored = {name: (size, formats[name]) for name, size in sizes.items()}
    upstream = (elements if grad is None else grad, out_dtype or dtype)
    floating = {name: size for name, size in sizes.items() if formats[name].kind == "float"}
    shares = [
        _share(row, wanted, where(rows, elements, 0), dtype, stored, upstream)
        for wanted, rows in _combinations(row, floating)
    ]
    return reduce(_either, shares, Work())


def _share(
    row: Function,
    wanted: str,
    elements: int,
    dtype: DType,
    stored: Mapping[str, tuple[int, DType]],
    upstream: tuple[int, DType],
) -> Work:
    """Return the work of the gradients of the operands `wanted`, on the rows that have elements left."""
    rules = row.gradient_formulas(wanted)
    used = frozenset[str]().union(*(rule.operands for rule in rules))
    grad, out = upstream
    read = sum(format_.bytes(size) for name, (size, format_) in stored.items() if name in used)
    read += out.bytes(elements) if "y" in used else 0
    return _work(
        rules,
        elements,
        dtype,
        read_bytes=unless_empty(elements, read + out.bytes(grad)) if wanted else 0 * elements,
        write_bytes=unless_empty(elements, sum(stored[name][1].bytes(stored[name][0]) for name in wanted)),
        sums=sum(maximum(elements - stored[name][0], 0) for name in wanted),
    )


def _either(left: Work, right: Work) -> Work:
    """Return the work of rows of which each has either that of `left` or that of `right`."""
    both = left + right
    return replace(both, launch_count=1)


def _combinations(row: Function, sizes: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    """Yield each set of operands whose gradients are requested, with the rows that it applies to.

    Rows of a table differ in which operands are scalars, and gradients together cost less than each alone.
    """
    choices = (dict(zip(sizes, flags, strict=True)) for flags in product((0, 1), repeat=len(sizes)))
    for wanted in dict.fromkeys(_wanted(row, tensors) for tensors in choices):
        rows: Any = True
        for name, size in sizes.items():
            if _wanted(row, {name: 1}):
                rows = rows & ((size != 0) == (name in wanted))
        if np.any(rows):
            yield wanted, rows


def _sizes(row: Function, a: int, b: int, c: int) -> dict[str, int]:
    """Return the distinct elements of the operands that the function has."""
    sizes = {"a": a, "b": b, "c": c}
    for name, size in sizes.items():
        if name not in row.operand_names and np.any(size):
            raise SpecError(f"elementwise: {name}={size}, but {row.name} has no such operand; leave it out")
    return {name: size for name, size in sizes.items() if name in row.operand_names}


def _wanted(row: Function, sizes: dict[str, int]) -> str:
    """Return the operands whose gradients are computed: those with elements and a formula."""
    rules = dict(zip("abc", row.gradients, strict=False))
    return "".join(name for name, size in sizes.items() if rules.get(name, not rules) and size)


def _work(
    rules: tuple[Formula, ...], elements: int, dtype: DType, *, read_bytes: int, write_bytes: int, sums: int = 0
) -> Work:
    factor = {"float": 1, "complex": 2}.get(dtype.kind, 0)
    flop = factor * sum(rule.flop_count for rule in rules) * elements + sums
    return Work(
        flop={unit(dtype): flop} if factor and (len(rules) > 1 or any(rule.flop_count for rule in rules)) else {},
        special_count=factor * sum(rule.special_count for rule in rules) * elements,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
    )


def _inputs(function: str, **arguments: Any) -> dict[str, Tensor]:
    row = function_of(function)
    sizes = {name: arguments[name] for name in row.operand_names}
    for name, wanted in row.takes.items():
        _require_kind(function, name, wanted, sizes.get(name, 0), arguments)
    for name, size in sizes.items():  # what is broadcast is repeated a whole number of times
        required_multiple("elementwise", {name: max(size, 1)}, elements=arguments["elements"])
    return {
        name: Tensor(shape=(size,), dtype=arguments[f"{name}_dtype"])
        for name, size in sizes.items()
        if size or (name == "a" and not arguments["elements"])
    }


_KINDS = {
    "bool": ("truth values", "bool"), "int": ("whole numbers", "int32"), "complex": ("complex numbers", "complex64"),
}  # fmt: skip
"""By kind of number: what it is called, and a format of it."""


def _require_kind(function: str, name: str, wanted: str, size: int, arguments: Mapping[str, Any]) -> None:
    """Refuse an operand, or the result `y`, that the function cannot be computed with."""
    if wanted == "scalar":
        if size:
            raise SpecError(f"elementwise: {name}={size}, but {function} takes a number there, no tensor; leave it out")
        return
    key = "out_dtype" if name == "y" else f"{name}_dtype"
    words, example = _KINDS[wanted]
    if dtype_of(arguments[key]).kind != wanted:
        what = "gives" if name == "y" else "takes"
        raise SpecError(
            f"elementwise: {key}={arguments[key]}, but {function} {what} {words} there; say {key}={example}"
        )


_USUAL_ELEMENTS = 8
"""Of operands that cannot be left out: what directed cases usually have."""


def _needs(row: Function) -> dict[str, Value]:
    """Return the arguments without which a function has no case: formats of operands that are no floats, and these."""
    if row.takes == WHOLE:
        return {"dtype": _KINDS["int"][1], "b": _USUAL_ELEMENTS}
    if row.torch.startswith("special."):
        return {"dtype": "fp32"}  # of which PyTorch has no kernels in 16 bits
    needed = {name: _KINDS[wanted][1] for name, wanted in row.takes.items() if wanted != "scalar"}
    operands: dict[str, Value] = {name: _USUAL_ELEMENTS for name in needed if name in "bc"}
    if row.name in ("glu", "polar"):  # of two tensors, the latter of no 16 bits
        operands |= {"b": _USUAL_ELEMENTS, **({"dtype": "fp32"} if "y" in needed else {})}
    return {"out_dtype" if name == "y" else f"{name}_dtype": value for name, value in needed.items()} | operands


def _operands(tensors: dict[str, Any], row: Function, spread: Any) -> dict[str, Any]:
    """Return the operands by name, those that are no tensors as the row's scalars."""
    scalars = {"a": 0.0, "b": row.scalars[0], "c": row.scalars[1]}
    return {name: spread(tensors[name]) if name in tensors else scalars[name] for name in row.operand_names}


def _repeated(array: Any, elements: int) -> Any:
    return array if len(array) == elements else np.resize(array, elements)


def _reference(arrays: dict[str, Any], function: str, elements: int, dtype: str, **_: Any) -> dict[str, Any]:
    row = function_of(function)
    if function == "nextafter":  # the only function whose result depends on the format, not on numbers alone
        y = next_after(**_operands(arrays, row, partial(_repeated, elements=elements)), dtype=dtype)
        return {"y": np.broadcast_to(y, (elements,))}
    y = np.asarray(row.forward(**_operands(arrays, row, partial(_repeated, elements=elements))))
    return {"y": np.broadcast_to(y.astype(np.int64) if y.dtype == bool else y, (elements,))}


def _backward_reference(arrays: dict[str, Any], function: str, elements: int, **_: Any) -> dict[str, Any]:
    row = function_of(function)
    wanted = _wanted(row, {name: arrays[name].size for name in "abc" if name in arrays and arrays[name].dtype == float})
    operands = _operands(arrays, row, partial(_repeated, elements=elements))
    operands |= {"y": arrays["y"], "g": arrays["grad_y"]}
    gradients = {}
    for name, rule in zip(wanted, row.gradient_formulas(wanted), strict=True):
        full = np.broadcast_to(rule(**operands), (elements,))
        gradients[f"grad_{name}"] = full.reshape(-1, arrays[name].size).sum(axis=0)
    return gradients


_TENSORS_ONLY = frozenset(
    (
        "addcmul", "addcdiv", "atan2", "hypot", "logaddexp", "logaddexp2", "logical_and", "logical_or", "logical_xor",
        "prelu", "rrelu", "heaviside", "nextafter", "igamma", "igammac", "ldexp", "polar",
    )
)  # fmt: skip
"""Functions whose operands PyTorch does not take as numbers."""


def _torch_call(tensors: dict[str, Any], function: str, elements: int, **arguments: Any) -> dict[str, Any]:
    import torch

    row = function_of(function)
    inner = min([len(tensor) for tensor in tensors.values()], default=1) or 1

    def spread(tensor: Any) -> Any:
        whole = tensor if len(tensor) in (inner, elements) else tensor.repeat(elements // len(tensor))
        return whole.view(-1, inner) if len(whole) > inner else whole

    operands = list(_operands(tensors, row, spread).values())
    held = [torch.is_tensor(operand) for operand in operands]
    # PyTorch has no end of a line that is a number, and no two limits of which only one is.
    together = (row.name == "lerp" and not held[1]) or (row.name == "clamp" and held[1] != held[2])
    if together or row.name in _TENSORS_ONLY:
        operands = [
            value if is_held else operands[0].new_full((), value) for value, is_held in zip(operands, held, strict=True)
        ]
    operands = operands[:1] if row.name == "cube" else operands
    if row.name in _IN_FP32 and operands[0].element_size() == 2:
        operands = [operand.float() for operand in operands]
    y = _torch_function(row, torch)(*operands, **row.options)
    y = y.reshape(-1) if y.numel() == elements else y.reshape(-1).repeat(elements // y.numel())
    wanted = torch_dtype(torch, arguments["out_dtype"])
    return {"y": y if y.dtype == wanted else y.to(wanted)}


_IN_FP32 = ("sinc", "i1", "i1e")
"""Functions whose gradients PyTorch 2.13 lacks in 16 bits on a CPU, or cancels to 0 there (sinc near 0)."""


def _torch_function(row: Function, torch: Any) -> Any:
    """Return PyTorch's callable; gates, which it has on one tensor only, are composed."""
    if row.name == "glu":
        return lambda a, b: a * torch.sigmoid(b)
    if row.name == "swiglu":
        return lambda a, b: torch.nn.functional.silu(a) * b
    if row.name == "mantissa":
        return lambda a: torch.frexp(a).mantissa
    return attrgetter(row.torch or row.name)(torch)


def _edges(function: str, **_: Any) -> tuple[float, ...]:
    """Return where comparisons and signs change: at 0, and at the second operand where that is a scalar."""
    second = function_of(function).scalars[0]
    return (0.0, second)


_SATURATING = (
    "sigmoid", "log_sigmoid", "gelu", "gelu_tanh", "silu", "mish", "softplus", "tanh", "logaddexp", "logaddexp2", "elu",
    "celu", "selu", "glu", "swiglu", "erf", "softsign", "log_ndtr", "log1p", "atan",
)  # fmt: skip
"""Functions that are finite where exponentials on the way need not be."""
_NEAR_ZERO = ("log1p", "expm1", "sinh", "tanh", "asinh", "atanh", "sin", "tan", "asin", "atan")
"""Functions whose results near 0 have all digits, unlike 1 plus or minus them."""

OPERATOR = Operator(
    forward=elementwise,
    family="pointwise",
    backward=_backward,
    tolerance=Tolerance(
        kind="reduction",
        ulp_count=8,
        positive=(
            "entr:a",
            "igamma:a",
            "igamma:b",
            "igammac:a",
            "igammac:b",
            "modified_bessel_k0:a",
            "modified_bessel_k1:a",
            "scaled_modified_bessel_k0:a",
            "scaled_modified_bessel_k1:a",
        ),
        unspecified=(
            "entr",
            "nan_to_num",
            "igamma",
            "igammac",
            "polygamma",
            "zeta",
            *POLYNOMIALS,
            "sign",
            "signbit",
            "hardshrink",
            "softshrink",
            "threshold",
            "nextafter",
            "angle",
            "erfcx",
            "i0e",
            "i1e",
            "spherical_bessel_j0",
            "scaled_modified_bessel_k0",
            "scaled_modified_bessel_k1",
        ),
        steps_count=2,
        # Whole numbers below a number of the same format are numbers of that format: nothing is rounded on the way.
        # What compares or tells kinds of numbers apart does no arithmetic.
        exact=(
            *("floor", "ceil", "round", "trunc", "sign", "signbit", "heaviside", "nextafter"),
            *COMPARISONS,
            *LOGICAL,
            *NONFINITE,
        ),
        rounds=(
            *(f"far:{name}" for name in ("floor", "ceil", "round", "trunc")),
            *(f"{kind}:{name}" for kind in ("far", "small_last") for name in ("floor_divide", "trunc_divide")),
            *(f"large:{name}" for name in _SATURATING),
            *(f"tiny:{name}" for name in _NEAR_ZERO),
            *(f"jumps:{name}" for name in (*COMPARISONS, *LOGICAL, "sign")),
            "jumps_first:heaviside",  # the second operand is the result where the first is 0
            *(f"edges:{name}" for name in COMPARISONS),
            *(f"nonfinite:{name}" for name in NONFINITE),
        ),
    ),
    inputs=_inputs,
    reference=_reference,
    edges=_edges,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={"a": "elements", "grad": "elements"},
    aten=aten_claims(),
    onnx=onnx_claims(),
    listed={"function": {name: _needs(row) for name, row in FUNCTIONS.items()}},
)
