"""Report of two traces side by side: step times, breakdown of the difference, and its resolution."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from nearpeak.core.traces.trace_difference import TraceDifference
from nearpeak.reports.document import Block, Document, Heading, Items, Table, columns
from nearpeak.units import show

TOP_COUNT, _CLASS_COUNT = 12, 9
"""Operators and classes shown."""


def to_json(difference: TraceDifference) -> str:
    """Return the difference as one JSON object."""
    record = {"kind": "nearpeak trace difference", "schema_version": 1, **asdict(difference)}
    record["operators"] = [pair._asdict() for pair in difference.operators]
    return json.dumps(record, allow_nan=False, indent=1) + "\n"


def document_of(difference: TraceDifference) -> Document:
    """Return the difference as a document."""
    steps = f"{show(difference.candidate_step_s, 's')} instead of {show(difference.baseline_step_s, 's')}"
    reason = difference.reason
    if difference.low_ratio is not None and difference.high_ratio is not None:
        interval = f"{_change(difference.low_ratio)} to {_change(difference.high_ratio)}"
        reason = f"{interval}, tolerance {difference.tolerance_ratio:.1%}: {difference.reason}"
    parts = [(name, f"{'+' if time > 0 else '−'}{show(abs(time), 's')}") for name, time in difference.parts]
    blocks: list[Block] = [
        reason,
        *([Table(columns=columns("where the difference of a step goes", "#time"), rows=parts)] if parts else []),
        Table(columns=columns("device time by class, of a step", "#before_s|before", "#after_s|after", "#ratio"),
              rows=[(name, before, after, f"{after / before:.2f}" if before else None)
                    for name, before, after in difference.classes[:_CLASS_COUNT]]),
        *_aligned(difference), *([_operators(difference)] if difference.operators else []),
    ]  # fmt: skip
    if difference.findings:
        blocks.append(Heading("what the findings of each could gain, of a step", 3))
        gains = [(name, [show(gain, "s") if gain else "none" for gain in pair]) for name, *pair in difference.findings]
        blocks.append(Items(tuple(f"{name}: {' → '.join(pair)}" for name, pair in gains)))
    return Document(
        title=difference.candidate, subject=f"against {difference.baseline}", blocks=blocks, kicker="Two traces",
        lead=f"{difference.verdict}: a step takes {steps} ({_change(difference.step_ratio)})",
    )  # fmt: skip


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
