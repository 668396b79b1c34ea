"""Right implementations that round differently: other summation orders, splits, wider arithmetic, other threads."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import MeasureError
from nearpeak.ops import OPS
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.inputs.distributions import ALWAYS, drawn
from nearpeak.validation.inputs.nonfinite_values import special_draw
from nearpeak.validation.mutants.mutant import Tensors, right_call
from nearpeak.validation.oracle.autograd_gradients import widened_case
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats, draw_inputs, unbounded_draw
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.running.implementation_run import Call, Implementation, columns_dense, imported_torch

PLAIN = "PyTorch"
"""The variant that mutants are derived from."""
THREADS = (1, 2, 4)
"""Numbers of threads; libraries split sums by them."""
SPLITS = (2, 4)
"""Parts into which sums are split."""


SEEDS = (0, 1)
"""Seeds of the draws that decide whether a variant is legitimate."""
FEW, MORE = 64, tuple(range(10, 26))
"""Input elements up to which further seeds decide too, and those seeds."""
FURTHER = ("ends", "single")
"""Distributions added for every case: lengths and groups depend on them."""


def variants_of(case: Case) -> Iterator[Implementation]:
    """Yield right implementations of `case`; validation must reject none of them."""
    right = right_call(case)
    yield Implementation(name=PLAIN, call=right)
    for count in THREADS:
        yield Implementation(name=f"PyTorch, {count} threads", call=_threads(right, count))
    if (column_major := _column_major(case, right)) is not None:
        yield Implementation(name="matrices by columns", call=column_major)
    for wide in ("fp32", "fp64") if _narrow(case) else ("fp64",):
        if dict(case.attributes).get("function") != "nextafter" and _widens(case, wide):
            yield Implementation(name=f"{wide} inside, rounded once", call=_wider(case, right, wide))
    yield Implementation(name="reference, rounded at the end", call=_reference(case))
    for dimension in _batch_dimensions(case):
        yield Implementation(name=f"rows of extent {dimension} in reverse", call=_reversed_rows(right, dimension))
        if all(_joins(case, draws, dimension) for draws in _looked_at(case)):
            yield Implementation(name=f"two tiles of extent {dimension}, last first", call=_tiled(right, dimension))
    for name, dimension in () if _narrow(case) else summed(case):
        for parts in SPLITS:
            yield Implementation(
                name=f"{parts} sums over {name}[{dimension}]", call=_split(right, name, dimension, parts)
            )
        yield Implementation(
            name=f"one sum after the other over {name}[{dimension}]", call=_split(right, name, dimension, 0)
        )


def _threads(right: Call, count: int) -> Call:
    torch = imported_torch()

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        before = torch.get_num_threads()
        torch.set_num_threads(count)
        try:
            return right(tensors, **arguments)
        finally:
            torch.set_num_threads(before)

    return call


def _column_major(case: Case, right: Call) -> Call | None:
    """Return the call on column-major matrices, for which libraries have other kernels; none if they refuse them."""
    draw, written = draw_inputs(case, 0, "normal"), declared_formats(case)
    call = columns_dense(right, written)
    if draw is None or all(k in written or t.dim() < 2 for k, t in draw.tensors.items()):
        return None
    try:
        call({name: t.clone() for name, t in draw.tensors.items()}, **draw.arguments)
    except (RuntimeError, TypeError, ValueError):  # a library refuses this layout
        return None
    return call if _right_in_fp64(case, call) else None


def _right_in_fp64(case: Case, call: Call) -> bool:
    """Return whether `call` agrees with the reference in float64."""
    wide = widened_case(case)
    try:
        draw = None if wide is None else draw_inputs(wide, 0, "normal")
        if wide is None or draw is None:
            return False
        outputs = call({name: t.clone() for name, t in draw.tensors.items()}, **draw.arguments)
    except (RuntimeError, TypeError, ValueError):
        return False
    pairs = [(widened(outputs[name]), expected.values) for name, expected in draw.expected.items()]
    return all(np.allclose(got, value, rtol=1e-6, atol=1e-9, equal_nan=True) for got, value in pairs)


def _widens(case: Case, wide: str) -> bool:
    """Return whether PyTorch computes the case in the format `wide` too, and no input is quantised."""
    inputs = {name: torch_format(t.dtype) for name, t in OPS[case.op].inputs(**arguments_of(case)).items()}
    floats = {dtype for dtype in inputs.values() if dtype.is_floating_point and dtype.itemsize > 1}
    quantised = any(dtype.is_floating_point and dtype.itemsize == 1 for dtype in inputs.values())
    inside = widened_case(case, wide)
    try:
        return bool(floats) and not quantised and inside is not None and bool(declared_formats(inside))
    except (MeasureError, NotImplementedError, RuntimeError):
        return False


def _wider(case: Case, right: Call, wide: str) -> Call:
    """Return the call in a wider format with results rounded once, like a fused kernel."""
    inside, formats = widened_case(case, wide), declared_formats(case)
    assert inside is not None
    dtype = torch_format(wide)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        del arguments
        wider = {name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()}
        outputs = right(wider, **arguments_of(inside))
        return {name: y if str(y.dtype) == "torch.bool" else y.to(formats[name]) for name, y in outputs.items()}

    return call


def _reference(case: Case) -> Call:
    """Return the NumPy reference with results rounded once, like an exact implementation."""
    torch, formats = imported_torch(), declared_formats(case)
    reference = OPS[case.op].reference

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        with np.errstate(all="ignore"):
            results = reference({name: widened(t).copy() for name, t in tensors.items()}, **arguments)
        return {name: torch.as_tensor(np.array(value)).to(formats[name]) for name, value in results.items()}

    call.backward = None  # type: ignore[attr-defined]  # NumPy has no autograd
    return call


def _batch_dimensions(case: Case) -> list[int]:
    """Return the extents whose rows may be reversed: the oracle gives reversed results."""
    if OPS[case.op].draws or OPS[case.op].tolerance.kind in ("decomposition", "sampling"):
        return []
    from nearpeak.validation.checks.v04_special import inputs_with_nan
    from nearpeak.validation.checks.v10_relations import reversible_rows

    draws = _looked_at(case)
    # NaN may be all that an input's values matter for.
    special = (special_draw(case, 0, name, float("nan")) for name in inputs_with_nan(case))
    extents = [set(reversible_rows(draw)) for draw in (*draws, *special) if draw is not None]
    return sorted(set.intersection(*extents)) if extents else []


@lru_cache(maxsize=4)
def _looked_at(case: Case) -> tuple[Draw, ...]:
    """Return the draws on which a variant must be right; more of them for small cases."""
    arguments, kinds = arguments_of(case), (*ALWAYS, *tolerance_of(case).rounds, *FURTHER)
    few = sum(tensor.elements for tensor in OPS[case.op].inputs(**arguments).values()) <= FEW
    tensors = [drawn(case.op, arguments, (seed,), kind) for seed in (*SEEDS, *(MORE if few else ())) for kind in kinds]
    return tuple(unbounded_draw(case, input_set, "any") for input_set in tensors if input_set is not None)


def _reversed_rows(right: Call, extent: int) -> Call:
    from nearpeak.validation.checks.v10_relations import reversed_rows

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        turned = {name: _turned(t, extent, reversed_rows) for name, t in tensors.items()}
        return {name: _turned(y, extent, reversed_rows) for name, y in right(turned, **arguments).items()}

    return call


def _turned(tensor: Any, extent: int, turn: Any) -> Any:
    return turn(tensor) if tensor.dim() and tensor.shape[0] == extent else tensor


def _joins(case: Case, draw: Draw, extent: int) -> bool:
    arrays, reference = {name: widened(t) for name, t in draw.tensors.items()}, OPS[case.op].reference
    try:
        with np.errstate(all="ignore"):
            whole = reference({name: array.copy() for name, array in arrays.items()}, **draw.arguments)
            parts = [reference(_half(arrays, extent, number), **draw.arguments) for number in (0, 1)]
            tensors = {name: t.clone() for name, t in draw.tensors.items()}
            tiled = _tiled(right_call(case), extent)(tensors, **draw.arguments)
        joined = {name: np.concatenate([part[name] for part in parts]) for name in whole}
        return all(
            joined[name].shape == np.shape(value) == tuple(tiled[name].shape)  # one row may be broadcast to all
            and np.allclose(joined[name], value, rtol=1e-11, equal_nan=True)
            for name, value in whole.items()
        )
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return False


def _half(tensors: Tensors, extent: int, number: int) -> dict[str, Any]:
    """Return the first or second half of the rows of tensors with this leading extent."""
    part = (slice(None, extent // 2), slice(extent // 2, None))[number]
    return {name: t[part] if t.ndim and t.shape[0] == extent else t for name, t in tensors.items()}


def _tiled(right: Call, extent: int) -> Call:
    torch = imported_torch()

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        last, first = (right(_half(tensors, extent, number), **arguments) for number in (1, 0))
        return {name: torch.cat((first[name], y)) for name, y in last.items()}

    return call


def summed(case: Case) -> list[tuple[str, int]]:
    """Return the input dimensions over which the result is a sum: the oracle's partial results add up."""
    draw = draw_inputs(case, 0, "normal")
    if draw is None or tolerance_of(case).kind not in ("contraction", "reduction"):
        return []
    arrays = {name: widened(t) for name, t in draw.tensors.items()}
    dimensions = []
    for name, array in arrays.items():
        for dimension in range(array.ndim) if array.dtype.kind == "f" else ():
            if array.shape[dimension] > 1 and _adds_up(case, draw.arguments, arrays, name, dimension):
                dimensions.append((name, dimension))
                break
    return dimensions


def _narrow(case: Case) -> bool:
    """Return whether partial sums would be rounded to few bits, which is not legitimate."""
    return any(dtype_of(value).kind == "float" and dtype_of(value).bits_count < 32 for _, value in case.dtypes)


def _adds_up(case: Case, arguments: Any, arrays: Tensors, name: str, dimension: int) -> bool:
    reference = OPS[case.op].reference
    total: dict[str, Any] = {}
    met: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        whole = reference({key: array.copy() for key, array in arrays.items()}, **arguments)
        for part in (0, 1):
            share = arrays[name].copy()
            half = share.shape[dimension] // 2
            index: list[Any] = [slice(None)] * share.ndim
            index[dimension] = slice(half, None) if part == 0 else slice(None, half)
            share[tuple(index)] = 0
            for key, value in reference({**arrays, name: share}, **arguments).items():
                total[key] = total.get(key, 0) + value
                met[key] = met.get(key, True) & (np.asarray(value) != 0)  # concatenated parts are no sum
    same = all(np.allclose(total[key], value, rtol=1e-10, atol=1e-12) for key, value in whole.items())
    return same and any(np.any(both) for both in met.values())


def _split(right: Call, name: str, dimension: int, parts: int) -> Call:
    """Return the call that adds `parts` partial sums; 0 adds single summands from the last to the first."""
    torch = imported_torch()

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        x = tensors[name]
        total: dict[str, Any] = {}
        chunks = torch.arange(x.shape[dimension]).tensor_split(parts or x.shape[dimension])
        for chunk in reversed(chunks):
            share = torch.zeros_like(x).index_copy(dimension, chunk, x.index_select(dimension, chunk))
            for key, part in right({**tensors, name: share}, **arguments).items():
                total[key] = total[key] + part if key in total else part
        return total

    return call
