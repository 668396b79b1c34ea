"""Formats and execution units of the products in a trace: autocast, converted, fp32, or TF32 instead of fp32."""

import re
from collections import defaultdict

import numpy as np

from nearpeak.core.traces.executed_precision import CastUse, ExecutedPrecision, ProductUse
from nearpeak.core.traces.executed_run import NOTHING, Executed, ExecutedOperator
from nearpeak.core.traces.trace import EventKind
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import work_of
from nearpeak.traces import NO_ROW, Trace
from nearpeak.traces.executed.case_join import can_be_joined, parsed_list

_PRODUCTS = ("gemm", "grouped_gemm", "scaled_gemm", "conv", "conv_transpose", "attention", "paged_attention",
             "varlen_attention")  # fmt: skip
_PRODUCT_NAMES = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_convolution", "cudnn_convolution",
                  "miopen_convolution", "_scaled_dot_product_flash_attention",
                  "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention")  # fmt: skip
"""ATen operators that are products; they are few, and what encloses them has names of its own."""
_KERNELS = ("gemm", "conv", "attention")
_LEAST = 0.05
"""Part of the products from which on a format counts as the mode of the step."""
_MOST_ROWS = 20_000
_WRITTEN = re.compile(r"^triton_(poi|red|per|tem|for|unk)_")
"""Names of the kernels that TorchInductor writes; those of people are called otherwise."""
COMPILED_RATIO = 0.05
"""Part of the kernels' time in such kernels from which on a step counts as compiled."""


def is_product(operator: ExecutedOperator) -> bool:
    """Say whether matrix units can form what an operator computes; fp64 and whole numbers of fp32 models aside."""
    if operator.dtypes[:1] == ("fp64",):
        return False
    if operator.cases:
        return any(case.op in _PRODUCTS for case in operator.cases)
    return operator.family in _KERNELS


def precision_of(trace: Trace, executed: Executed) -> ExecutedPrecision:
    """Return in which precision the products of the steps looked at ran."""
    products = _products(executed)
    written = sum(use.device_ns for use in executed.kernels if _WRITTEN.search(use.name))
    compiled = written / max(1, sum(use.device_ns for use in executed.kernels))
    mode, narrow_format, reason = _mode(trace, products, compiled=compiled > COMPILED_RATIO)
    return ExecutedPrecision(
        name=executed.name, mode=mode, format=narrow_format, reason=reason, conflict=_conflict(executed, products),
        products=products, unused=_unused(executed), casts=_casts(executed), compiled_ratio=compiled,
    )  # fmt: skip


def _products(executed: Executed) -> tuple[ProductUse, ...]:
    totals: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0, 0.0])
    flop = {place: _flop_per_ns(value) for place, value in enumerate(executed.operators)}
    for item in executed.items:
        if NOTHING in (item.operator, item.kernel) or not is_product(executed.operators[item.operator]):
            continue
        operator, kernel = executed.operators[item.operator], executed.kernels[item.kernel]
        if kernel.family not in _KERNELS and not kernel.unit and operator.family in _KERNELS:
            continue  # what a product runs beside its kernel: fills, sums of parts
        row = totals[operator.dtypes[0] if operator.dtypes else "", kernel.unit]
        row[0] += 1
        row[1] += item.device_ns
        row[2] += flop[item.operator] * item.device_ns
    steps = executed.step_count
    uses = [ProductUse(*key, *(value / steps for value in row)) for key, row in totals.items()]
    return tuple(sorted(uses, key=lambda value: -value.time_ns))


def _flop_per_ns(operator: ExecutedOperator) -> float:
    """Return the products' FLOP of an operator for each nanosecond of its kernels, so that its kernels share them."""
    flop = sum(
        count for case in operator.cases if case.op in _PRODUCTS
        for unit, count in work_of(case).flop.items() if unit.startswith("matrix.")
    )  # fmt: skip
    return flop * operator.call_count / operator.device_ns if operator.device_ns else 0.0


def _mode(trace: Trace, products: tuple[ProductUse, ...], *, compiled: bool) -> tuple[str, str, str]:
    """Return mode, 16-bit format, and the evidence."""
    known = [use for use in products if use.inputs]
    total = sum(use.time_ns for use in known)
    if not total:
        return "unknown", "", "no product with a recorded format (record_shapes=True)"
    narrow: dict[str, float] = defaultdict(float)
    for use in known:
        if dtype_of(use.inputs).bits_count <= 16:
            narrow[use.inputs] += use.time_ns
    name = max(narrow, key=lambda key: narrow[key], default="")
    if name and sum(narrow.values()) > _LEAST * total:
        wrapped, narrow_count = _wrapped(trace)
        if wrapped:
            return (
                "autocast",
                name,
                f"{wrapped} of {narrow_count} products of 16 bits are in a call with fp32 inputs",
            )
        if compiled:
            return (
                "unknown",
                name,
                f"compiled code hides the inputs of its {narrow_count} products of 16 bits",
            )
        return "converted", name, f"none of {narrow_count} products of 16 bits is in a call with fp32 inputs"
    mode, reason = _single(known)
    return mode, "", reason


def _single(known: list[ProductUse]) -> tuple[str, str]:
    """Return which fp32 ran: on vector units, in TF32, or both, by names of kernels."""
    by_unit: dict[str, float] = defaultdict(float)
    for use in known:
        by_unit[use.unit] += use.time_ns
    total = sum(by_unit.values())
    rounded, plain = by_unit["tf32"] + by_unit["tensor"], by_unit["vector"]
    if rounded + plain < 0.5 * total:
        return "unknown", "fp32 products whose kernel names identify no unit"
    reason = f"{rounded / total:.0%} of the products' time in kernels named TF32, {plain / total:.0%} on vector units"
    if plain <= _LEAST * total:
        return "tf32", reason
    return ("fp32" if rounded <= _LEAST * total else "default"), reason


def _wrapped(trace: Trace) -> tuple[int, int]:
    """Return how many products of 16 bits a call encloses that was given fp32, which autocast casts; and their number.

    Autocast stands between the call of a model and the operator: the outer one has what the model gave, the inner one
    what autocast made of it.
    """
    if not trace.has("dtypes"):
        return 0, 0
    known = trace.name_table(
        lambda name: name.startswith("aten::") and can_be_joined(name) and name[6:] in _PRODUCT_NAMES
    )
    rows = trace.rows(EventKind.HOST_OP)
    rows = rows[known[trace.name[rows]]][:_MOST_ROWS]
    wrapped = narrow_count = 0
    for row in map(int, rows):
        if not any(
            kind in ("c10::BFloat16", "c10::Half", "half") for kind in parsed_list(trace.text_of("dtypes", row))[:2]
        ):
            continue
        narrow_count += 1
        parent = int(trace.parent[row])
        while parent != NO_ROW and trace.kind[parent] == EventKind.HOST_OP:
            if "float" in parsed_list(trace.text_of("dtypes", parent)):
                wrapped += 1
                break
            parent = int(trace.parent[parent])
    return wrapped, narrow_count


def _conflict(executed: Executed, products: tuple[ProductUse, ...]) -> str:
    """Return where the trace's settings and the names of its kernels cannot both be right."""
    forbidden = [name for name, value in executed.flags.items() if value in ("False", "highest")]
    rounded = sum(use.time_ns for use in products if use.unit == "tf32" and use.inputs == "fp32")
    total = sum(use.time_ns for use in products)
    by_cudnn = all("cudnn" not in name for name in forbidden)
    products_only = by_cudnn and any("conv" in use.family for use in executed.operators)
    if forbidden and rounded > _LEAST * total and not products_only:
        return f"{', '.join(forbidden)} forbid TF32, and {rounded / total:.0%} of the products' time is in TF32 kernels"
    return ""


def _unused(executed: Executed) -> tuple[tuple[str, float], ...]:
    times_ns: dict[str, float] = defaultdict(float)
    for item in executed.items:
        if NOTHING in (item.operator, item.kernel) or executed.kernels[item.kernel].unit != "vector":
            continue
        operator = executed.operators[item.operator]
        if is_product(operator):
            times_ns[operator.label or operator.name] += item.device_ns / executed.step_count
    return tuple(sorted(times_ns.items(), key=lambda pair: -pair[1]))


def _casts(executed: Executed) -> tuple[CastUse, ...]:
    totals: dict[tuple[str, str], np.ndarray] = defaultdict(lambda: np.zeros(2))
    for operator in executed.operators:
        ends = cast_ends(operator)
        if ends is not None:
            totals[ends] += (operator.call_count, operator.device_ns)
    steps = executed.step_count
    rows = [CastUse(*ends, float(row[0]) / steps, float(row[1]) / steps) for ends, row in totals.items()]
    return tuple(sorted(rows, key=lambda use: -use.time_ns))


def cast_ends(operator: ExecutedOperator) -> tuple[str, str] | None:
    """Return the formats before and after a cast; none for anything else."""
    for case in operator.cases:
        if case.op == "cast":
            kinds = dict(case.dtypes)
            return kinds["dtype"], kinds["out_dtype"]
    return None
