"""Report of two compared analyses: a ratio and a verdict for every pair of figures."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nearpeak.core.answers.analysis_comparison import SAME, Change, Comparison, TargetComparison
from nearpeak.core.answers.execution_time import MODES
from nearpeak.reports.document import Block, Cell, Document, Heading, Span, Table, Text, columns
from nearpeak.reports.figure_text import count
from nearpeak.units import show

KIND = "nearpeak comparison"
SCHEMA_VERSION = 1
# 1: first version; documented in docs/reference/report_json.md.
TOP_COUNT = 10
"""Cases shown per target."""
_STYLES = {"better": "good", "worse": "bad", "same": "muted", "not comparable": "warn"}
_MARKS = {"better": "▼", "worse": "▲", "same": "=", "not comparable": "?"}
"""A sign per verdict: time, work and memory go down or up."""
_QUANTITIES: Mapping[str, str] = {
    "expected_s": "expected, as each is run",
    "bound_s": "bound, any fusion", "chained_s": "one kernel per operator", "unfused_s": "operators added up",
    "launch_floor_s": "launch floor", "matrix_flop": "FLOP for matrix units", "total_flop": "all FLOP",
    "fused_bytes": "bytes fused", "unfused_bytes": "bytes operator by operator", "weight_bytes": "weights",
    "activation_peak_bytes": "activations at their peak", "peak_bytes": "memory at the peak",
    **{f"expected_{mode}_s": f"expected, {mode}" for mode in MODES},
}  # fmt: skip
"""Figures in words."""


def document_of(comparison: Comparison) -> Document:
    """Return the comparison as a document."""
    blocks: list[Block] = []
    if comparison.reason:
        blocks.append(Text(f"The steps are not comparable: {comparison.reason}", "warn"))
    else:
        blocks.append(_changes("work and memory", comparison.changes))
    for target in comparison.targets:
        blocks += _target(target)
    return Document(
        title=comparison.candidate, subject=f"against {comparison.baseline}", blocks=blocks, kicker="Comparison"
    )


def _target(target: TargetComparison) -> Iterator[Block]:
    verdict = Span(f"{target.verdict}{_grounds(target)}", _STYLES[target.verdict])
    yield Heading((Span(target.target, "code"), "  ", verdict))
    if target.changes:
        yield from [Text(target.reason, "warn")] if target.reason else []
        yield _changes("least and expected time", target.changes)
    moved = [case for case in target.cases if case.verdict != SAME]
    rows = [
        (case.label, *_figures(case.changes[-1]), _verdict(case.verdict, case.reason or _ratio(case.changes[-1])))
        for case in moved[:TOP_COUNT]
    ]
    is_expected = all(case.changes[-1].quantity == "expected_total_s" for case in moved[:TOP_COUNT])
    heads = columns(
        f"`case, all calls, {'expected' if is_expected else 'by bounds'}", "#baseline", "#candidate", "ratio"
    )
    yield from [Table(columns=heads, rows=rows)] if rows else []
    rest = len(moved) - TOP_COUNT
    yield from [Text(f"{rest} more cases differ", "muted")] if rest > 0 else []
    same = len(target.cases) - len(moved)
    yield from [Text(f"{same} cases are the same", "muted")] if same else []


def _grounds(target: TargetComparison) -> str:
    """Return after a verdict what it is of, and the bound where that says otherwise; why there is none."""
    if not target.changes:
        return f": {target.reason}" if target.reason else ""
    first = target.changes[0]
    bound = next((change for change in target.changes if change.quantity == "bound_s"), first)
    other = "" if bound.verdict == first.verdict else f"; its bound is {bound.verdict}, {_ratio(bound)}"
    return f" by {_QUANTITIES[first.quantity]}: {' → '.join(_figures(first))}, {_ratio(first)}{other}"


def _changes(title: str, changes: Sequence[Change]) -> Table:
    rows = [
        (_QUANTITIES.get(change.quantity, change.quantity), *_figures(change),
         _verdict(change.verdict, f"{_ratio(change)} {change.verdict}")) for change in changes
    ]  # fmt: skip
    return Table(columns=columns(title, "#baseline", "#candidate", "ratio"), rows=rows)


def _verdict(verdict: str, text: str) -> Cell:
    return Cell(value=verdict, text=f"{_MARKS[verdict]} {text}", kind=_STYLES[verdict])


def _ratio(change: Change) -> str:
    if change.ratio is None:
        return "–"
    text = f"{change.ratio:.4g}×"
    return f"≈ {text}" if text == "1×" and change.verdict != SAME else text


def _figures(change: Change) -> Sequence[str]:
    """Return baseline and candidate as texts."""
    unit, *values = change.pair
    return [show(value, unit) if unit else count(int(value)) for value in values]


def to_json(comparison: Comparison) -> str:
    """Return the comparison as one JSON object."""
    record = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "baseline": comparison.baseline,
        "candidate": comparison.candidate,
        "reason": comparison.reason,
        "changes": _records(comparison.changes),
        "targets": [
            {
                "target": target.target,
                "verdict": target.verdict,
                "reason": target.reason,
                "changes": _records(target.changes),
                "cases": [
                    {
                        "label": case.label,
                        "digest": case.digest,
                        "verdict": case.verdict,
                        "reason": case.reason,
                        "changes": _records(case.changes),
                    }
                    for case in target.cases
                ],
            }
            for target in comparison.targets
        ],
    }
    return json.dumps(record, allow_nan=False, indent=1) + "\n"


def _records(changes: Sequence[Change]) -> dict[str, Any]:
    return {
        change.quantity: {
            "baseline": change.pair[1],
            "candidate": change.pair[2],
            "ratio": change.ratio,
            "verdict": change.verdict,
        }
        for change in changes
    }
