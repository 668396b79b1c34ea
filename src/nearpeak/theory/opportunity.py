"""What is worth trying: fusion, narrower formats, fewer launches, each with the most it can gain."""

from collections.abc import Sequence

from nearpeak.core.analysis import CaseRow, CaseTime, Opportunity
from nearpeak.core.bound import Policy
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.theory.rates import matrix_rate
from nearpeak.units import show

SMALLEST_GAIN_RATIO = 0.01
"""Opportunities below this part of the sum of bounds are left out."""
MOST = 8
"""Opportunities kept per target."""
_NARROWER = {"fp32": ("bf16",), "bf16": ("fp8_e4m3",), "fp16": ("fp8_e4m3",)}
Rows = Sequence[tuple[CaseRow, CaseTime]]


def opportunities(
    rows: Sequence[CaseRow], times: Sequence[CaseTime], target: Target, policy: Policy
) -> tuple[Opportunity, ...]:
    """Return the opportunities on `target`, largest gain first; their gains overlap."""
    paired = list(zip(rows, times, strict=True))
    total_s = sum(time.bound_s * row.call_count for row, time in paired)
    found = [*_fusion(paired), *_precision(paired, target, policy), *_weights(paired), *_launches(paired, target)]
    worth = [one for one in found if one.gain_s > SMALLEST_GAIN_RATIO * total_s]
    return tuple(sorted(worth, key=lambda one: (-one.gain_s, one.title))[:MOST])


def _fusion(rows: Rows) -> list[Opportunity]:
    """Gather, per module and phase, the memory-limited calls without products: their traffic could stay on chip."""
    groups: dict[tuple[str, str], list[tuple[CaseRow, CaseTime]]] = {}
    for row, time in rows:
        if row.matrix_flop == 0 and time.limiter == "dram" and row.phase != "optimizer":
            groups.setdefault((row.module, row.phase), []).append((row, time))
    return [_fused(module, phase, group) for (module, phase), group in groups.items()]


def _fused(module: str, phase: str, group: Rows) -> Opportunity:
    calls = sum(row.call_count for row, _ in group)
    size = sum((row.read_bytes + row.write_bytes) * row.call_count for row, _ in group)
    names = ", ".join(sorted({row.case.op for row, _ in group})[:4])
    return Opportunity(
        kind="fusion",
        title=f"Fuse {names} of {module} into the neighbouring kernels ({phase})",
        where=module,
        gain_s=_total_s(group),
        evidence=f"{_calls(calls)} limited by memory, without products, moving {show(size, 'B')}",
    )


def _precision(rows: Rows, target: Target, policy: Policy) -> list[Opportunity]:
    """Compare the products' time with that in a narrower format, bytes unchanged."""
    found = []
    for dtype, narrower in _NARROWER.items():
        part = [(row, time) for row, time in rows if time.limiter == "matrix" and _format(row) == dtype]
        if dtype == "fp32" and policy.dtype == "strict":
            found += _faster(part, "TF32", _speedup(target, dtype, "strict", dtype, "tf32"))
        for other in narrower:
            found += _faster(part, other, _speedup(target, dtype, policy.dtype, other, policy.dtype))
    return found


def _speedup(target: Target, dtype: str, policy: str, other: str, other_policy: str) -> float:
    """Return how many times faster the products get; 1 where the target has no faster unit."""
    try:
        slow, fast = matrix_rate(target, dtype, policy)[1], matrix_rate(target, other, other_policy)[1]
    except NotModelledError:
        return 1.0
    return max(1.0, fast / slow)


def _faster(rows: Rows, name: str, speedup: float) -> list[Opportunity]:
    gain_s = sum((time.bound_s - _without(time, "matrix", speedup)) * row.call_count for row, time in rows)
    if gain_s <= 0:
        return []
    calls = sum(row.call_count for row, _ in rows)
    return [
        Opportunity(
            kind="precision",
            title=f"Form the products in {name} where accuracy allows",
            where=", ".join(sorted({row.case.op for row, _ in rows})),
            gain_s=gain_s,
            evidence=f"{_calls(calls)} limited by products, which {name} forms {speedup:.3g} times as fast",
        )
    ]


def _without(time: CaseTime, term: str, speedup: float) -> float:
    """Return the bound with one term divided by `speedup`; vector and special terms are models and stay out."""
    terms = {name: value for name, value in time.terms_s.items() if name in ("dram", "l2", "matrix")}
    return max((terms | {term: terms[term] / speedup}).values())


def _weights(rows: Rows) -> list[Opportunity]:
    """Gather products limited by memory: halving the bytes of their operands halves their time."""
    part = [(row, time) for row, time in rows if row.matrix_flop and time.limiter == "dram" and row.case.op == "gemm"]
    wide = [(row, time) for row, time in part if _format(row) in ("bf16", "fp16", "fp32")]
    if not wide:
        return []
    size = sum(row.read_bytes * row.call_count for row, _ in wide)
    calls = sum(row.call_count for row, _ in wide)
    return [
        Opportunity(
            kind="memory",
            title="Store the operands of memory-limited products in half the bits (8-bit weights, larger batch)",
            where="gemm",
            gain_s=_total_s(wide) / 2,
            evidence=f"{_calls(calls)} of gemm limited by memory, reading {show(size, 'B')} of operands",
        )
    ]


def _launches(rows: Rows, target: Target) -> list[Opportunity]:
    """Gather the calls whose bound is below the least time of a kernel."""
    floor_s = target.launch_floor_s
    if floor_s is None:
        return []
    short = [(row, time) for row, time in rows if time.bound_s < floor_s]
    gain_s = sum((floor_s - time.bound_s) * row.call_count for row, time in short)
    calls = sum(row.call_count for row, _ in short)
    return [
        Opportunity(
            kind="launch",
            title="Launch fewer kernels: fuse the short ones, or run many samples at once",
            where="whole step",
            gain_s=gain_s,
            evidence=f"{_calls(calls)} below the {show(floor_s, 's')} that the smallest kernel takes",
        )
    ]


def _calls(count: int) -> str:
    return "1 call" if count == 1 else f"{count} calls"


def _format(row: CaseRow) -> str:
    return dict(row.case.dtypes).get("dtype", "")


def _total_s(rows: Rows) -> float:
    return sum(time.bound_s * row.call_count for row, time in rows)
