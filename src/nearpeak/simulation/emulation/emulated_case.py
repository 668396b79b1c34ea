"""Error of a case in emulated formats, before hardware with them exists."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import DTYPES
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS
from nearpeak.ops.shared.number_formats import FORMATS, INTS, FloatFormat
from nearpeak.ops.shared.torch_names import torch_dtype
from nearpeak.simulation.emulation.accumulator import FP32, Accumulator
from nearpeak.simulation.emulation.block_formats import BLOCKS, Row
from nearpeak.simulation.emulation.emulated_arrays import Arithmetic, emulating

Call = Callable[..., Mapping[str, Any]]


def emulated(
    case: Case, accumulator: Accumulator = FP32, formats: Mapping[str, Row] = FORMATS, *, factors: str = "",
    vector: str = "", rounding: str = "nearest_even", seed: int = 0,
) -> Call:  # fmt: skip
    """Return an implementation of a case, on arrays or tensors, to be validated like any other.

    The float64 reference runs on arrays whose products of matrices are summed with the accumulator; partial sums that
    are added to one another stay in it. Every result is rounded to the format in which the case stores it.

    Args:
        accumulator: how sums of products are kept.
        formats: number formats by name; one of your own goes beside those that are known, see `sim.formats.table_of`.
        factors: format that factors of products are put into first, e.g. mxfp4; empty for that of the case.
        vector: format of element-wise results; empty for float64.
        rounding: how factors and results are rounded.
        seed: of stochastic rounding.

    Raises:
        NotModelledError: the case stores its result in a format that is not known.

    >>> from nearpeak.ops import case
    >>> product = case("gemm", m=1, n=1, k=1000, dtype="bf16")
    >>> ones = {"a": np.ones((1, 1, 1000)), "b": np.ones((1, 1000, 1))}
    >>> arguments = dict(product.axes) | dict(product.attributes)
    >>> emulated(product, Accumulator(significant_bits_count=8))(ones, **arguments)["y"].item()
    256.0
    """
    out = _stored(case, formats)
    options = {
        **OPS[case.op].signatures[case.phase].defaults,
        **dict(case.axes),
        **dict(case.dtypes),
        **dict(case.attributes),
    }
    reference = _reference(case)
    vector_format = _known(vector, formats)
    if vector_format is not None and not isinstance(vector_format, FloatFormat):
        raise SpecError(f"emulate: element-wise results are floats of one format, not {vector}")
    elements = vector_format
    arithmetic = Arithmetic(
        accumulator=accumulator, factors=_known(factors, formats), vector=elements,
        rounding=rounding, seed=seed,
    )  # fmt: skip

    def call(inputs: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
        wide = {name: emulating(_wide(array), arithmetic) for name, array in inputs.items()}
        results = reference(wide, **options | arguments)
        rounded = {name: _rounded(np.asarray(array), out, rounding, seed) for name, array in results.items()}
        return {name: _like(array, inputs, out) for name, array in rounded.items()}

    return call


def emulation(case: Case, accumulator: Accumulator = FP32, formats: Mapping[str, Row] = FORMATS, **how: Any) -> Any:
    """Return an emulated case with its gradient as `measure.validation` judges implementations.

    Args:
        how: further arguments of `emulated`.
    """
    from nearpeak.validation import Implementation, forward_case

    forward = forward_case(case)
    operator = OPS[case.op]
    backward = None
    if operator.backward_reference is not None:
        gradient = replace(forward, phase="backward") if case.phase == "forward" else case
        backward = _backward_call(gradient, accumulator, formats, how)
    return Implementation(name="emulated", call=emulated(forward, accumulator, formats, **how), backward=backward)


def _backward_call(case: Case, accumulator: Accumulator, formats: Mapping[str, Row], how: Mapping[str, Any]) -> Call:
    """Return the gradients as validation asks for them, from inputs, outputs that are kept, and their gradients."""
    gradient = emulated(case, accumulator, formats, **how)
    result = emulated(replace(case, phase="forward"), accumulator, formats, **how)

    def call(tensors: Mapping[str, Any], **arguments: Any) -> Mapping[str, Any]:
        inputs = {name: array for name, array in tensors.items() if not name.startswith("grad_")}
        return gradient({**result(inputs, **arguments), **tensors}, **arguments)

    return call


def _reference(case: Case) -> Call:
    """Return the float64 reference of a phase; fake quantisation in the fp32 that its grid is defined in."""
    operator = OPS[case.op]
    reference = operator.reference if case.phase == "forward" else operator.backward_reference
    if reference is None:
        raise NotModelledError(f"emulate: {case.op} has no reference of its {case.phase} pass")
    if case.op == "fake_quantise" and case.phase == "forward":
        return _fake_quantised
    return reference


def _fake_quantised(arrays: Mapping[str, Any], mask: bool = False, **_: Any) -> dict[str, Any]:
    """Return numbers on the grid of `ops.fake_quantise`, as integer arithmetic and one product in fp32 give them."""
    grid = INTS["int4"]
    scale = np.asarray(arrays.get("scale", [0.5]))[:, None]
    zero = grid.rounded(np.asarray(arrays.get("zero", [0])))[:, None]
    y, inside = grid.fake_quantised(np.asarray(arrays["x"]), scale, zero)
    return {"y": y, "mask": inside * 1} if mask else {"y": y}


def _stored(case: Case, formats: Mapping[str, Row]) -> Row | None:
    """Return the format in which a case stores its result; none where it is wider than any that is emulated."""
    named = dict(case.dtypes)
    scheme = DTYPES[named["dtype"]].scheme
    name = named.get("out_dtype") or (scheme.out if scheme is not None else named["dtype"])
    if name not in formats and name != "fp64":
        raise NotModelledError(f"emulate: no format {name} for the result of {case.op}; there are {', '.join(formats)}")
    return formats.get(name)


def _known(name: str, formats: Mapping[str, Row]) -> Row | None:
    """Return a format by name; none for no name."""
    if not name:
        return None
    table: Mapping[str, Row] = {**BLOCKS, **formats}
    if name not in table:
        raise unknown_name("format", name, tuple(table))
    return table[name]


def _wide(array: Any) -> Any:
    """Return an array, or a tensor of PyTorch, as float64; whole numbers as they are."""
    if hasattr(array, "detach"):
        array = array.detach()
        array = (array.double() if array.is_floating_point() else array).numpy()
    return array.astype(np.float64) if getattr(array, "dtype", np.dtype(object)).kind == "f" else array


def _rounded(array: Any, out: Row | None, rounding: str, seed: int) -> Any:
    """Return a result rounded to its format; whole numbers stay."""
    values = np.asarray(array)
    if out is None or values.dtype.kind != "f":
        return values
    return out.rounded(values, rounding, seed=seed)


def _like(array: Any, inputs: Mapping[str, Any], out: Row | None) -> Any:
    """Return a result as a tensor where inputs are tensors; else as an array."""
    tensor = next((value for value in inputs.values() if hasattr(value, "new_tensor")), None)
    if tensor is None:
        return array
    if array.dtype.kind != "f":
        return tensor.new_tensor(array)
    if out is None or out.name not in DTYPES:
        return tensor.new_tensor(array)
    return tensor.new_tensor(array, dtype=torch_dtype(sys.modules["torch"], out.name))  # whose tensors these are
