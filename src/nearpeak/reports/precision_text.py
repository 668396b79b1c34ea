"""Words of mixed precision that all formats of its report share."""

from collections.abc import Iterator

from nearpeak.core.answers.mixed_precision import MixedPrecision, PrecisionVerdict
from nearpeak.core.traces.executed_precision import MODES, ExecutedPrecision, PrecisionGap, Realised
from nearpeak.core.traces.shortfall import TERMS
from nearpeak.reports import figure_text as words
from nearpeak.units import show

BASELINES = {"fp32": "fp32 (highest)", "tf32": "TF32 everywhere", "default": "PyTorch's defaults"}
UNITS = {
    "tensor": "matrix units",
    "tf32": "matrix units, TF32",
    "vector": "vector units",
    "": "units that no name tells",
}
STEPS = {"lowered": "under autocast", "converted": "converted as a whole", "written": "as written"}


def of_host(eager: MixedPrecision, verdict: PrecisionVerdict) -> str:
    """Return how the speed-up changes with the time of a host; nothing where it takes none."""
    if not eager.fixed_s:
        return ""
    ahead, turns = (f"{one:.2f}" for one in (verdict.eager_ratio, verdict.serial_ratio))
    host = f"{show(eager.fixed_s, 's')} of host per operator"
    return f", {ahead} with {host} that runs ahead, {turns} where it waits for each"


def ran(found: ExecutedPrecision) -> Iterator[str]:
    """Yield in sentences how the products of a trace ran."""
    to = f" to {found.format}" if found.format else ""
    yield f"{words.clean(found.name)} ran: {MODES[found.mode]}{to} ({words.clean(found.reason)})"
    if found.lowered_flop_ratio is not None:
        time = "" if found.lowered_time_ratio is None else f", {found.lowered_time_ratio:.0%} of their time"
        yield f"in at most 16 bits: {found.lowered_flop_ratio:.0%} of the products' FLOP{time}"
    elif found.lowered_time_ratio is not None:
        yield f"in at most 16 bits: {found.lowered_time_ratio:.0%} of the products' time"
    if found.matrix_unit_ratio is not None:
        yield f"on matrix units: {found.matrix_unit_ratio:.0%} of the products' time, by names of kernels"
    else:
        yield "on matrix units: not known, no kernel's name tells"
    for name, time_ns in found.unused[:3]:
        yield f"on vector units although matrix units take it: {words.clean(name)}, {show(time_ns * 1e-9, 's')} a step"
    if found.conflict:
        yield f"settings and kernels disagree: {words.clean(found.conflict)}"


def plain(operator: str) -> str:
    """Return the name of an operator without what all have.

    >>> plain("aten.addmm.default")
    'addmm'
    """
    return words.clean(operator).removeprefix("aten.").removesuffix(".default")


def casts(found: ExecutedPrecision, expected: int | None = None) -> str:
    """Return the casts of a step in one line."""
    kinds = ", ".join(f"{one.cast_count:g} {one.before} → {one.after}" for one in found.casts[:4]) or "none"
    total = sum(one.time_ns for one in found.casts)
    wanted = "" if expected is None else f", {expected} expected"
    time = f", {show(total * 1e-9, 's')}" if total else ""
    return f"casts of a step: {found.cast_count:g}{wanted} ({kinds}){time}"


def realised(found: Realised) -> Iterator[str]:
    """Yield in sentences what two traces show of the expected speed-up."""
    if found.speed_up_ratio is not None:
        interval = "" if found.low_ratio is None else f" ({found.low_ratio:.2f} to {found.high_ratio:.2f})"
        wanted = ""
        if found.expected_ratio is not None:
            wanted = f", {found.expected_ratio:.2f} expected against {BASELINES[found.baseline]}"
        yield f"executed: {found.speed_up_ratio:.2f} times as fast{interval}{wanted}"
    if found.realised_ratio is not None and found.log_ratio is not None:
        yield f"realised: {found.realised_ratio:.0%} of the expected gain, {found.log_ratio:.0%} of it by logarithms"
    if found.reason:
        yield f"realised part withheld: {words.clean(found.reason)}"


def terms(gap: PrecisionGap) -> Iterator[tuple[str, int, int | None]]:
    """Yield the terms of the shortfall with their nanoseconds in all steps, and those of the baseline."""
    base = {(one.term, one.detail): one.time_ns for one in gap.base.parts} if gap.base else {}
    own = {(one.term, one.detail): one.time_ns for one in gap.shortfall.parts}
    for key in dict.fromkeys([*own, *base]):
        name = TERMS[key[0]] + (f": {key[1]}" if key[1] else "")
        yield name, own.get(key, 0), base.get(key, 0) if gap.base else None
