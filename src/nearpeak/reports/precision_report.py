"""Report of mixed precision, expected and executed: benefit, reasons, casts, and the products of a trace."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from nearpeak.core.answers.mixed_precision import BASELINES, MixedPrecision, PrecisionVerdict
from nearpeak.core.traces.executed_precision import MODES, ExecutedPrecision, PrecisionGap, Realised
from nearpeak.core.traces.shortfall import TERMS, Shortfall
from nearpeak.reports.document import Block, Document, Heading, Items, Span, Table, Text, columns
from nearpeak.reports.figure_text import clean
from nearpeak.units import show

TOP_COUNT, SHOWN_COUNT = 8, 40
"""Operators and kinds of casts that a terminal shows, and that a page shows."""
_BASELINES = {"fp32": "fp32 (highest)", "tf32": "TF32 everywhere", "default": "PyTorch's defaults"}
_UNITS = {
    "tensor": "matrix units",
    "tf32": "matrix units, TF32",
    "vector": "vector units",
    "": "units that no name tells",
}
_STEPS = {"lowered": "under autocast", "converted": "converted as a whole", "written": "as written"}
_STYLES = {"pays": "good", "pays only in a graph": "warn", "does not pay": "bad"}


class Priced(NamedTuple):
    """Expected precision gains on one device, and the precision executed there."""

    device: MixedPrecision
    eager: MixedPrecision
    verdict: PrecisionVerdict
    gap: PrecisionGap | None = None
    step_counts: tuple[int, int] = (1, 1)


def document_of(results: list[Priced], version: str = "") -> Document:
    """Return the expected precision gains as a document, a section for each device."""
    first = results[0].device
    return Document(
        title=first.name, subject=f"{first.step} step under autocast to {first.format}", kicker="Mixed precision",
        blocks=[block for result in results for block in _device(result)], foot=f"nearpeak {version}",
    )  # fmt: skip


def executed_document_of(executed: ExecutedPrecision) -> Document:
    """Return the precision of a trace as a document."""
    return Document(title=executed.name, blocks=[*_ran(executed), *_products(executed)], kicker="Precision of a trace")


def _device(priced: Priced) -> Iterator[Block]:
    device, verdict = priced.device, priced.verdict
    yield Heading((f"{device.target}: ", Span(f"autocast {verdict.verdict}", _STYLES[verdict.verdict])))
    yield f"{verdict.speed_up_ratio:.2f} times as fast on the device alone{_of_host(priced.eager, verdict)}"
    yield Items(verdict.reasons)
    yield from (_speed_ups(device, priced.eager), _times(device), _operators(device))
    yield from _casts(device)
    if priced.gap is not None:
        yield from gap_blocks(priced.gap, priced.step_counts)
    yield Text(f"expected from {'; '.join(device.assumptions)}", "muted")


def _of_host(eager: MixedPrecision, verdict: PrecisionVerdict) -> str:
    """Return how the speed-up changes with the time of a host; nothing where it takes none."""
    if not eager.fixed_s:
        return ""
    ahead, turns = (f"{ratio:.2f}" for ratio in (verdict.eager_ratio, verdict.serial_ratio))
    host = f"{show(eager.fixed_s, 's')} of host per operator"
    return f", {ahead} with {host} that runs ahead, {turns} where it waits for each"


def _speed_ups(device: MixedPrecision, eager: MixedPrecision) -> Table:
    lowered = show(device.lowered_s, "s")
    hosts = ["#host ahead", "#in turns"] if eager.fixed_s else []
    rows = []
    for name in BASELINES:
        cells = [_BASELINES[name], show(device.baseline_s[name], "s"), lowered, f"{device.speed_up_ratio(name):.2f}"]
        cells += [f"{eager.ahead_ratio(name):.2f}", f"{eager.speed_up_ratio(name):.2f}"] if hosts else []
        rows.append(cells)
    before_s = device.baseline_s["default"]
    for title, time_s in (("casts fused (compiled)", device.fused_s), ("converted, no autocast", device.converted_s)):
        if time_s is not None:
            ratio = f"{before_s / time_s:.2f}"
            rows.append([title, show(before_s, "s"), show(time_s, "s"), ratio, *("" for _ in hosts)])
    return Table(columns=columns("against", "#as written", "#lowered", "#speed-up", *hosts), rows=rows)


def _times(device: MixedPrecision) -> Table:
    """Return the time of the step in each precision, and its part of the longest."""
    times = [(_BASELINES[name], device.baseline_s[name]) for name in BASELINES]
    times += [(f"autocast to {device.format}", device.lowered_s)]
    times += [("autocast, casts fused by a compiler", device.fused_s)]
    times += [("converted as a whole", device.converted_s)] if device.converted_s is not None else []
    longest_s = max(time_s for _, time_s in times)
    rows = [(name, time_s, time_s / longest_s) for name, time_s in times]
    return Table(columns=columns("expected step", "#time_s|time", "part_bar|"), rows=rows)


def _operators(device: MixedPrecision) -> Table:
    rows = []
    for part in device.parts[:SHOWN_COUNT]:
        before_s, after_s = part.baseline_s["default"], part.lowered_s + part.cast_s
        ratio = f"{before_s / after_s:.2f}" if after_s else None
        rows.append((_plain(part.operator), part.call_count, before_s, part.lowered_s, part.cast_s or None, ratio))
    heads = ("#calls", "#before_s|as written", "#lowered_s|lowered", "#cast_s|its casts", "#speed-up")
    return Table(columns=columns("operator", *heads), rows=rows, brief_count=TOP_COUNT)


def _plain(operator: str) -> str:
    """Return the name of an operator without what all have.

    >>> _plain("aten.addmm.default")
    'addmm'
    """
    return clean(operator).removeprefix("aten.").removesuffix(".default")


def _casts(device: MixedPrecision) -> Iterator[Block]:
    """Yield the kinds of casts, those that take longest together first."""
    if not device.casts:
        yield "autocast casts nothing: no operator of its lists is called"
        return
    counts: Counter[tuple[str, str, str, str]] = Counter()
    times_s: dict[tuple[str, str, str, str], float] = {}
    for cast in device.casts:
        key = (cast.consumer, cast.of, cast.before, cast.after)
        counts[key] += 1
        times_s[key] = times_s.get(key, 0.0) + cast.time_s
    order = sorted(times_s, key=lambda key: -times_s[key])[:SHOWN_COUNT]
    rows = [(_plain(consumer) or "what follows the step", counts[key], kind, f"{before} → {after}", times_s[key])
            for key in order for consumer, kind, before, after in [key]]  # fmt: skip
    share = f"{device.cast_ratio:.0%} of the lowered step"
    operators = f"{device.call_count} operators become {device.lowered_count}"
    yield Heading(f"{device.cast_count} casts, {show(device.cast_s, 's')}, {share}; {operators}", 3)
    yield Table(columns=columns("for", "#casts", "of", "formats", "#time_s|time"), rows=rows, brief_count=TOP_COUNT)


def gap_blocks(gap: PrecisionGap, step_counts: tuple[int, int]) -> Iterator[Block]:
    """Yield a trace compared with its prediction.

    Args:
        step_counts: steps of the trace, and of the baseline's.
    """
    yield Heading("What ran", 3)
    yield from _ran(gap.executed, gap.expected_cast_count)
    yield from (Text(line, "strong") for line in (_realised(gap.realised) if gap.realised else ()))
    yield Text(f"little can be concluded: {gap.reason}", "strong") if gap.reason else ""
    yield from _products(gap.executed)
    shortfalls = [shortfall for shortfall in (gap.shortfall, gap.base) if shortfall is not None]
    rows = [
        (f"{'+' if times[0] >= 0 else '−'} {name}", times)
        for name, *times in _terms(shortfalls)
    ]  # fmt: skip
    rows += [("expected", [shortfall.expected_ns for shortfall in shortfalls])]
    rows += [("executed", [shortfall.executed_ns for shortfall in shortfalls])]
    more = ["#baseline", "#difference"] if gap.base else []
    table = columns(f"beyond the expected step {_STEPS[gap.against]}", "#per step", *more)
    cells: list[tuple[str, ...]] = []
    for name, times_ns in rows:
        each = [time / count for time, count in zip(times_ns, step_counts, strict=False)]
        each += [each[0] - each[1]] if len(each) > 1 else []
        cells.append((name, *(f"{'−' if time < 0 else ''}{show(abs(time) * 1e-9, 's')}" for time in each)))
    yield Table(columns=table, rows=cells)
    share = f"{gap.matched_ratio:.0%} of the expected calls ran, in {gap.shortfall.covered_ratio:.0%} of busy time"
    yield Text(f"{share}; terms add up to executed less expected", "muted")


def _terms(shortfalls: list[Shortfall]) -> Iterator[tuple[Any, ...]]:
    """Yield the terms of each shortfall with their nanoseconds in all steps."""
    times = [{(part.term, part.detail): part.time_ns for part in item.parts} for item in shortfalls]
    for key in dict.fromkeys(key for item in times for key in item):
        yield TERMS[key[0]] + (f": {key[1]}" if key[1] else ""), *(item.get(key, 0) for item in times)


def _products(executed: ExecutedPrecision) -> Iterator[Block]:
    total_ns = max(sum(product.time_ns for product in executed.products), 1)
    rows = [
        (f"{product.inputs or 'format not recorded'} on {_UNITS[product.unit]}", f"{product.call_count:g}",
         product.time_ns * 1e-9,
         product.time_ns / total_ns) for product in executed.products
    ]  # fmt: skip
    if rows:
        heads = ("#kernels", "#time_s|time", "#share_ratio|share")
        yield Table(columns=columns("products by format and unit", *heads), rows=rows)


def _ran(executed: ExecutedPrecision, expected_count: int | None = None) -> Iterator[Block]:
    """Yield in sentences how the products of a trace ran."""
    to = f" to {executed.format}" if executed.format else ""
    yield Text(f"{executed.name} ran: {MODES[executed.mode]}{to} ({executed.reason})", "strong")
    if executed.lowered_flop_ratio is not None:
        time = "" if executed.lowered_time_ratio is None else f", {executed.lowered_time_ratio:.0%} of their time"
        yield f"in at most 16 bits: {executed.lowered_flop_ratio:.0%} of the products' FLOP{time}"
    elif executed.lowered_time_ratio is not None:
        yield f"in at most 16 bits: {executed.lowered_time_ratio:.0%} of the products' time"
    if executed.matrix_unit_ratio is not None:
        yield f"on matrix units: {executed.matrix_unit_ratio:.0%} of the products' time, by names of kernels"
    else:
        yield "on matrix units: not known, no kernel's name tells"
    for name, time_ns in executed.unused[:3]:
        yield f"on vector units although matrix units take it: {clean(name)}, {show(time_ns * 1e-9, 's')} a step"
    if executed.conflict:
        yield f"settings and kernels disagree: {clean(executed.conflict)}"
    kinds = ", ".join(f"{cast.cast_count:g} {cast.before} → {cast.after}" for cast in executed.casts[:4]) or "none"
    total = sum(cast.time_ns for cast in executed.casts)
    wanted = "" if expected_count is None else f", {expected_count} expected"
    time = f", {show(total * 1e-9, 's')}" if total else ""
    yield f"casts of a step: {executed.cast_count:g}{wanted} ({kinds}){time}"


def _realised(realised: Realised) -> Iterator[str]:
    """Yield in sentences what two traces show of the expected speed-up."""
    if realised.speed_up_ratio is not None:
        interval = "" if realised.low_ratio is None else f" ({realised.low_ratio:.2f} to {realised.high_ratio:.2f})"
        wanted = ""
        if realised.expected_ratio is not None:
            wanted = f", {realised.expected_ratio:.2f} expected against {_BASELINES[realised.baseline]}"
        yield f"executed: {realised.speed_up_ratio:.2f} times as fast{interval}{wanted}"
    if realised.realised_ratio is not None and realised.log_ratio is not None:
        by_logarithms = f"{realised.log_ratio:.0%} of it by logarithms"
        yield f"realised: {realised.realised_ratio:.0%} of the expected gain, {by_logarithms}"
    if realised.reason:
        yield f"realised part withheld: {clean(realised.reason)}"


def to_json(
    device: MixedPrecision, eager: MixedPrecision, verdict: PrecisionVerdict, gap: PrecisionGap | None = None
) -> str:
    """Return one JSON object: the verdict, the device alone with its casts, the eager figures, and what ran."""
    ratios = {name: device.speed_up_ratio(name) for name in BASELINES}
    slowed = {name: eager.speed_up_ratio(name) for name in BASELINES}
    body = asdict(device) | {"speed_up_ratio": ratios, "cast_ratio": device.cast_ratio, "cast_count": device.cast_count}
    ahead = {name: eager.ahead_ratio(name) for name in BASELINES}
    host = {
        "fixed_s": eager.fixed_s, "speed_up_ratio": slowed, "lowered_s": eager.lowered_s, "ahead_ratio": ahead,
        "ahead_s": dict(eager.ahead_s), "ahead_lowered_s": eager.ahead_lowered_s,
    }  # fmt: skip
    record: dict[str, Any] = {"verdict": asdict(verdict), **body, "eager": host}
    if gap is not None:
        record["executed"] = _gap_record(gap)
    return json.dumps(record, indent=2)


def executed_to_json(executed: ExecutedPrecision) -> str:
    """Return the precision of a trace as one JSON object."""
    return json.dumps({"kind": "nearpeak executed precision", "schema_version": 1, **_executed(executed)}, indent=2)


def _executed(executed: ExecutedPrecision) -> dict[str, Any]:
    body = asdict(executed)
    body["products"] = [item._asdict() for item in executed.products]
    body["casts"] = [item._asdict() for item in executed.casts]
    names = ("lowered_flop_ratio", "lowered_time_ratio", "matrix_unit_ratio", "cast_count")
    return body | {name: getattr(executed, name) for name in names}


def _gap_record(gap: PrecisionGap) -> dict[str, Any]:
    return {
        **_executed(gap.executed), "against": gap.against, "expected_cast_count": gap.expected_cast_count,
        "matched_ratio": gap.matched_ratio, "doubt": gap.reason, "shortfall": _shortfall(gap.shortfall),
        "baseline_shortfall": None if gap.base is None else _shortfall(gap.base),
        "realised": None if gap.realised is None else asdict(gap.realised),
    }  # fmt: skip


def _shortfall(shortfall: Shortfall) -> dict[str, Any]:
    return {
        "expected_ns": shortfall.expected_ns, "executed_ns": shortfall.executed_ns,
        "residual_ns": shortfall.residual_ns,
        "covered_ratio": shortfall.covered_ratio, "parts": [part._asdict() for part in shortfall.parts],
    }  # fmt: skip
