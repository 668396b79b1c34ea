"""Report of two traces side by side: step times, breakdown of the difference, and its resolution."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from nearpeak.core.traces.trace_difference import DeviceResult, TraceDifference, UnpairedDevice, worst_of
from nearpeak.reports.document import WHY, Block, Details, Document, Heading, Items, Table, columns
from nearpeak.units import show

KIND, SCHEMA_VERSION = "nearpeak trace difference", 1
TOP_COUNT, _CLASS_COUNT, _PART_COUNT = 12, 9, 6
"""Operators, classes and parts of the difference shown."""


def to_json(difference: TraceDifference) -> str:
    """Return the difference as one JSON object."""
    record = {"kind": KIND, "schema_version": SCHEMA_VERSION, **asdict(difference)}
    record["operators"] = [pair._asdict() for pair in difference.operators]
    return json.dumps(record, allow_nan=False, indent=1) + "\n"


def devices_to_json(results: Sequence[DeviceResult]) -> str:
    """Return the differences of all devices: that of the worst verdict, with those of all beside it."""
    if len(results) == 1 and isinstance(results[0], TraceDifference):
        return to_json(results[0])
    worst = worst_of(results)
    record = json.loads(to_json(worst)) if isinstance(worst, TraceDifference) else _unpaired(worst)
    devices = [json.loads(to_json(each)) if isinstance(each, TraceDifference) else _unpaired(each) for each in results]
    return json.dumps({**record, "devices": devices}, allow_nan=False, indent=1) + "\n"


def _unpaired(device: UnpairedDevice) -> dict[str, object]:
    return {
        "kind": KIND, "schema_version": SCHEMA_VERSION, **device._asdict(),
        "verdict": device.verdict, "reason": device.reason,
    }  # fmt: skip


def document_of_devices(results: Sequence[DeviceResult]) -> Document:
    """Return the differences of all devices as one document, the verdict by the worst."""
    if len(results) == 1 and isinstance(results[0], TraceDifference):
        return document_of(results[0])
    worst = worst_of(results)
    compared = [each for each in results if isinstance(each, TraceDifference)]
    rows = [_device_row(each) for each in results]
    heads = ("#before_s|busy before", "#after_s|after", "#ratio", "#step_ratio|step", "verdict")
    blocks: list[Block] = [Table(columns=columns("device", *heads), rows=rows)]
    blocks += [each.reason for each in results if isinstance(each, UnpairedDevice)]
    for each in compared:
        document = document_of(each)
        blocks.append(Details(f"device {_numbers(each)}: {document.lead} (--why)",
                              (Heading(f"device {_numbers(each)}: {document.lead}"), *document.blocks)))  # fmt: skip
    title, against = (compared[0].candidate, compared[0].baseline) if compared else ("two traces", "each other")
    whose = worst.device_number if isinstance(worst, UnpairedDevice) else _numbers(worst)
    return Document(
        title=title, subject=f"against {against}", blocks=blocks, kicker="Two traces",
        lead=f"{worst.verdict}, by device {whose}, the worst of {len(results)}: {worst.reason}",
    )  # fmt: skip


def _device_row(result: DeviceResult) -> tuple[object, ...]:
    if isinstance(result, UnpairedDevice):
        return str(result.device_number), None, None, None, None, result.verdict
    _, before, after = result.classes[0]
    ratio = f"{after / before:.2f}" if before else None
    return _numbers(result), before, after, ratio, f"{result.step_ratio:.2f}", result.verdict


def _numbers(difference: TraceDifference) -> str:
    """Return the numbers of the device in both traces, once where they are one."""
    return " beside ".join(dict.fromkeys(map(str, reversed(difference.device_numbers))))


def document_of(difference: TraceDifference) -> Document:
    """Return the difference as a document."""
    steps = f"{show(difference.candidate_step_s, 's')} instead of {show(difference.baseline_step_s, 's')}"
    reason = difference.reason
    if difference.low_ratio is not None and difference.high_ratio is not None:
        interval = f"{_change(difference.low_ratio)} to {_change(difference.high_ratio)}"
        reason = f"{interval}, tolerance {difference.tolerance_ratio:.1%}: {difference.reason}"
    parts = [(name, f"{'+' if time > 0 else '−'}{show(abs(time), 's')}") for name, time in difference.parts]
    folded: list[Block] = [
        Table(columns=columns("device time by class, of a step", "#before_s|before", "#after_s|after", "#ratio"),
              rows=[(name, before, after, f"{after / before:.2f}" if before else None)
                    for name, before, after in difference.classes[:_CLASS_COUNT]]),
        *([_operators(difference)] if difference.operators else []),
    ]  # fmt: skip
    if difference.findings:
        folded.append(Heading("what the findings of each could gain, of a step", 3))
        gains = [(name, [_gain(gain) for gain in pair]) for name, *pair in difference.findings]
        folded.append(Items(tuple(f"{name}: {' → '.join(pair)}" for name, pair in gains)))
    heads = columns("where the difference of a step goes", "#time")
    blocks: list[Block] = [
        reason,
        *([Table(columns=heads, rows=parts, brief_count=_PART_COUNT, rest="all with --why")] if parts else []),
        _busy(difference), *_aligned(difference), Details(WHY, tuple(folded)),
    ]  # fmt: skip
    return Document(
        title=difference.candidate, subject=f"against {difference.baseline}", blocks=blocks, kicker="Two traces",
        lead=f"{difference.verdict}: a step takes {steps} ({_change(difference.step_ratio)})",
    )  # fmt: skip


def _busy(difference: TraceDifference) -> str:
    _, before, after = difference.classes[0]
    ratio = f" ({_change(after / before)})" if before else ""
    return f"the device is busy for {show(after, 's')} of a step instead of {show(before, 's')}{ratio}"


def _gain(gain_s: float | None) -> str:
    return "unknown" if gain_s is None else show(gain_s, "s") if gain_s else "none"


def _aligned(difference: TraceDifference) -> Iterator[Block]:
    """Yield how well the two traces align."""
    if difference.by_kernel:
        yield "neither trace has operators: kernels of the same name are compared"
    elif difference.aligned_ratio is None:
        yield "one of the traces has no operators: nothing can be aligned"
    else:
        yield f"{difference.aligned_ratio:.1%} of the operator calls are aligned by order, name, shapes and formats"
    if difference.unnamed and not difference.by_kernel:
        names = ", ".join(difference.unnamed)
        yield f"no bounds for {names}: its device is not known; --target NAME, and another --target for --against"


def _operators(difference: TraceDifference) -> Table:
    rows = []
    for pair in difference.operators[:TOP_COUNT]:
        ratio = f"{pair.candidate_ns / pair.baseline_ns:.2f}" if pair.baseline_ns else None
        ends = (pair.baseline_of_bound, pair.candidate_of_bound)
        reached = " → ".join("–" if reached_ratio is None else f"{reached_ratio:.0%}" for reached_ratio in ends)
        rows.append((pair.name, pair.baseline_ns * 1e-9, pair.candidate_ns * 1e-9, ratio, reached))
    name = "kernel, of a step" if difference.by_kernel else "operator, of a step"
    return Table(columns=columns(name, "#before_s|before", "#after_s|after", "#ratio", "#of bound"), rows=rows)


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
