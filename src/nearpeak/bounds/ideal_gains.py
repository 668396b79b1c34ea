"""Upper limits of the gain from fusion, narrower formats, smaller operands and fewer kernel launches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearpeak.bounds.terms.unit_rates import matrix_rate
from nearpeak.core.answers.analysis import CaseRow, CaseTime, Opportunity
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.units import show

SMALLEST_GAIN_RATIO = 0.01
"""Opportunities below this part of the sum of bounds are left out."""
MOST = 8
"""Opportunities kept per target."""
_NARROWER = {"fp32": ("bf16",), "bf16": ("fp8_e4m3",), "fp16": ("fp8_e4m3",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Work that runs as one kernel: one call, or a group of calls that a compiler fuses."""

    ops: tuple[str, ...]
    """Operators that it does."""
    module: str
    """Pattern of the modules that call it, layer numbers as `*`."""
    phase: str
    """Step phase in which it runs."""
    dtype: str
    """Format of its first operand."""
    count: int
    """How often it runs in a step."""
    matrix_flop: int
    """FLOP of one run that matrix units can do."""
    read_bytes: int
    """Bytes that one run reads."""
    write_bytes: int
    """Bytes that one run writes."""
    bound_s: float
    """Least time of one run."""
    limiter: str
    """Term that sets it."""
    terms_s: Mapping[str, float]
    """Time by term."""
    noun: str = "call"
    """What reports call one run."""


Pieces = Sequence[Piece]


def pieces_of(rows: Sequence[CaseRow], times: Sequence[CaseTime]) -> tuple[Piece, ...]:
    """Return the rows of an analysis as pieces, a kernel for each call."""
    return tuple(
        Piece(
            ops=(row.case.op,), module=row.module, phase=row.phase, dtype=dict(row.case.dtypes).get("dtype", ""),
            count=row.call_count, matrix_flop=row.matrix_flop, read_bytes=row.read_bytes, write_bytes=row.write_bytes,
            bound_s=time.bound_s, limiter=time.limiter, terms_s=time.terms_s,
        )
        for row, time in zip(rows, times, strict=True)
    )  # fmt: skip


def opportunities(
    pieces: Pieces, target: Target, policy: Policy, others: Sequence[Opportunity] = ()
) -> tuple[Opportunity, ...]:  # fmt: skip
    """Return the opportunities on `target`, largest gain first; their gains overlap.

    Args:
        others: opportunities that pieces do not show.
    """
    total_s = _total_s(pieces)
    candidates = [
        *_fusion(pieces),
        *_precision(pieces, target, policy),
        *_weights(pieces),
        *_launches(pieces, target),
        *others,
    ]
    worth = [opportunity for opportunity in candidates if opportunity.gain_s > SMALLEST_GAIN_RATIO * total_s]
    return tuple(sorted(worth, key=lambda opportunity: (-opportunity.gain_s, opportunity.title))[:MOST])


def _fusion(pieces: Pieces) -> list[Opportunity]:
    """Gather, per module and phase, the memory-limited kernels without products: their traffic could stay on chip."""
    groups: dict[tuple[str, str], list[Piece]] = {}
    for piece in pieces:
        if piece.matrix_flop == 0 and piece.limiter == "dram" and piece.phase != "optimizer":
            groups.setdefault((piece.module, piece.phase), []).append(piece)
    return [_fused(module, phase, group) for (module, phase), group in groups.items()]


def _fused(module: str, phase: str, group: Pieces) -> Opportunity:
    size = sum((piece.read_bytes + piece.write_bytes) * piece.count for piece in group)
    names = ", ".join(sorted({name for piece in group for name in piece.ops})[:4])
    return Opportunity(
        kind="fusion",
        title=f"Fuse {names} of {module} into the neighbouring kernels ({phase})",
        where=module,
        gain_s=_total_s(group),
        evidence=f"{_counted(group)} limited by memory, without products, moving {show(size, 'B')}",
    )


def _precision(pieces: Pieces, target: Target, policy: Policy) -> list[Opportunity]:
    """Compare the products' time with that in a narrower format, bytes unchanged."""
    gains = []
    for dtype, narrower in _NARROWER.items():
        part = [piece for piece in pieces if piece.limiter == "matrix" and piece.dtype == dtype]
        if dtype == "fp32" and policy.dtype == "strict":
            gains += _faster(part, "TF32", _speedup(target, dtype, "strict", dtype, "tf32"))
        for other in narrower:
            gains += _faster(part, other, _speedup(target, dtype, policy.dtype, other, policy.dtype))
    return gains


def _speedup(target: Target, dtype: str, policy: str, other: str, other_policy: str) -> float:
    """Return how many times faster the products get; 1 where the target has no faster unit."""
    try:
        slow, fast = matrix_rate(target, dtype, policy)[1], matrix_rate(target, other, other_policy)[1]
    except NotModelledError:
        return 1.0
    return max(1.0, fast / slow)


def _faster(pieces: Pieces, name: str, speedup: float) -> list[Opportunity]:
    gain_s = 0.0
    for piece in pieces:  # vector and special terms are models and stay out
        terms = {name: value for name, value in piece.terms_s.items() if name in ("dram", "l2", "matrix")}
        faster_s = max((terms | {"matrix": terms["matrix"] / speedup}).values())
        gain_s += (piece.bound_s - faster_s) * piece.count
    if gain_s <= 0:
        return []
    return [
        Opportunity(
            kind="precision",
            title=f"Form the products in {name} where accuracy allows",
            where=", ".join(sorted({op for piece in pieces for op in piece.ops})),
            gain_s=gain_s,
            evidence=f"{_counted(pieces)} limited by products, which {name} forms {speedup:.3g} times as fast",
        )
    ]


def _weights(pieces: Pieces) -> list[Opportunity]:
    """Gather products limited by memory: halving the bytes of their operands halves their time."""
    part = [piece for piece in pieces if piece.matrix_flop and piece.limiter == "dram" and "gemm" in piece.ops]
    wide = [piece for piece in part if piece.dtype in ("bf16", "fp16", "fp32")]
    if not wide:
        return []
    size = sum(piece.read_bytes * piece.count for piece in wide)
    return [
        Opportunity(
            kind="memory",
            title="Store the operands of memory-limited products in half the bits (8-bit weights, larger batch)",
            where="gemm",
            gain_s=_total_s(wide) / 2,
            evidence=f"{_counted(wide)} of gemm limited by memory, reading {show(size, 'B')} of operands",
        )
    ]


def _launches(pieces: Pieces, target: Target) -> list[Opportunity]:
    """Gather the kernels whose bound is below the least time of a kernel."""
    floor_s = target.launch_floor_s
    if floor_s is None:
        return []
    short = [piece for piece in pieces if piece.bound_s < floor_s]
    gain_s = sum((floor_s - piece.bound_s) * piece.count for piece in short)
    return [
        Opportunity(
            kind="launch",
            title="Launch fewer kernels: fuse the short ones, or run many samples at once",
            where="whole step",
            gain_s=gain_s,
            evidence=f"{_counted(short)} below the {show(floor_s, 's')} that the smallest kernel takes",
        )
    ]


def _counted(pieces: Pieces) -> str:
    count, noun = sum(piece.count for piece in pieces), pieces[0].noun if pieces else "call"
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def _total_s(pieces: Pieces) -> float:
    return sum(piece.bound_s * piece.count for piece in pieces)
