"""Report of engine coverage: verdict, pieces, times by device, plug-ins, and what to change first."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from html import escape

from nearpeak.conversion.engine_parts import (
    CONDITIONAL,
    DENIED,
    SUPPORTED,
    UNKNOWN,
    VERDICTS,
    EngineCoverage,
    EnginePiece,
    Interval,
    JudgedNode,
    TargetPlan,
)
from nearpeak.reports.brief_text import brief, ends, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Drawing, Span, Table, Text, columns
from nearpeak.reports.document.html import COLOURS, keys
from nearpeak.reports.gate.sarif import artifact_place, sarif_text
from nearpeak.units import counted, show

SHOWN_PIECES, SHOWN_CHANGES, SHOWN_KINDS = 6, 2, 2
"""Pieces of the picture in words, changes, and operator types, that a terminal shows."""
_STYLES = {SUPPORTED: "good", CONDITIONAL: "warn", DENIED: "bad", UNKNOWN: "warn"}
_LEVELS = {CONDITIONAL: "note", UNKNOWN: "warning", DENIED: "error"}
"""Level of a SARIF result by verdict."""
_RULES = {
    DENIED: "The engine documents that it does not take the node",
    UNKNOWN: "The engine's capability table has no row for the operator",
    CONDITIONAL: "The engine takes the node under a condition that the file does not decide",
}
DEFINITIONS = (
    "Engines are predicted with pointwise neighbours in one kernel and epilogues in the product before them; nodes "
    "outside run one by one on the same device. A border converts tensors of four axes and more from one layout to "
    "another. The host starts engines and calls ahead of the device: the slower of the two decides. Intervals hold "
    "90 %; gains compare plans that err the same way, so that common parts cancel. Copies of the model's own inputs "
    "and outputs are in no plan. Formats are those of the file."
)


def to_json(coverage: EngineCoverage) -> str:
    """Return the coverage as one JSON line."""
    return json.dumps(coverage.record(), allow_nan=False)


def to_sarif(coverage: EngineCoverage, source: str) -> str:
    """Return each node that is not plainly supported as a SARIF result.

    Args:
        source: path of the model as the user states it.
    """
    names = list(_RULES)
    results = [
        {
            "ruleId": node.verdict.verdict, "ruleIndex": names.index(node.verdict.verdict), "kind": "fail",
            "level": _LEVELS[node.verdict.verdict],
            "message": {"text": f"{node.kind} {node.key}: {node.verdict.reason}"},
            "locations": [{
                "physicalLocation": artifact_place(source),
                "logicalLocations": [{"name": node.key, "fullyQualifiedName": f"{coverage.model}#{node.key}"}],
            }],
            "partialFingerprints": {"nearpeakNode/v1": f"{node.verdict.verdict}:{node.key}"[:200]},
        }
        for node in coverage.nodes if node.verdict.verdict in _RULES
    ]  # fmt: skip
    properties = {"engine": coverage.engine, "source": coverage.source, **coverage.counts()}
    return sarif_text(
        _RULES, f"nearpeak-coverage/{coverage.engine.replace(' ', ':')}/{coverage.model}/", results, properties
    )


def document_of(coverage: EngineCoverage) -> Document:
    """Return the coverage as a document."""
    blocks: list[Block] = [
        Drawing("Pieces", partial(_picture, coverage)), Text(_chain(coverage.pieces)), *_times(coverage),
        *_kinds(coverage), *_changes(coverage),
        Details("Breaks, plug-ins, all operator types, definitions and source (--why)", tuple(_why(coverage))),
    ]  # fmt: skip
    return Document(
        title=f"{coverage.model} on {coverage.engine}", lead=_verdict(coverage), blocks=blocks,
        subject=f"opset {coverage.opset}" if coverage.opset else "core operators of PyTorch",
        kicker="Conversion coverage", figures=_figures(coverage),
    )  # fmt: skip


def _verdict(coverage: EngineCoverage) -> str:
    """Return the answer in one or two sentences."""
    engines = sum(piece.is_converted for piece in coverage.pieces)
    share = "" if coverage.flop_ratio is None else f" ({whole_percent(coverage.flop_ratio)} of the arithmetic)"
    words = f"{coverage.taken_count:,} of {counted(len(coverage.nodes), 'node')} convert{share}"
    words += f" into {counted(engines, 'engine')}"
    others = [
        f"{count} {verdict}" for verdict in (CONDITIONAL, DENIED, UNKNOWN) if (count := coverage.counts().get(verdict))
    ]  # fmt: skip
    words += f"; {', '.join(others)}" if others else ""
    costs = []
    for plan in coverage.plans:
        lost = plan.as_is.total.less(plan.whole.total)
        if lost.time_s > 0:
            costs.append(f"{_interval(lost)} of {brief(plan.as_is.total.time_s, 's')} on {plan.target}")
    return f"{words}. The breaks cost {' and '.join(costs)}." if costs else f"{words}."


def _interval(value: Interval) -> str:
    """Return a time with its interval."""
    return f"{brief(value.time_s, 's')} ({ends(value.low_s, value.high_s, value.time_s, 's')})"


def _figures(coverage: EngineCoverage) -> list[tuple[str, str, str]]:
    engines = sum(piece.is_converted for piece in coverage.pieces)
    rows = [("nodes that convert", f"{coverage.taken_count:,} of {len(coverage.nodes):,}", counted(engines, "engine"))]
    for plan in coverage.plans:
        lost_s = plan.as_is.total.time_s - plan.whole.total.time_s
        rows.append((f"a run on {plan.target}", brief(plan.as_is.total.time_s, "s"), f"breaks {brief(lost_s, 's')}"))
    return rows


def _chain(pieces: tuple[EnginePiece, ...]) -> str:
    """Return the pieces in words, in the order in which they can run."""
    words = [_piece_name(piece) for piece in pieces]
    if len(words) > SHOWN_PIECES:
        left = len(words) - SHOWN_PIECES
        words = [*words[: SHOWN_PIECES - 1], f"… {left} more …", words[-1]]
    return "pieces: " + " → ".join(words)


def _piece_name(piece: EnginePiece) -> str:
    if piece.is_converted:
        return f"[{counted(len(piece.keys), 'node')}]"
    names = [kind if count == 1 else f"{count} {kind}" for kind, count in list(piece.kinds.items())[:2]]
    return ", ".join(names) + (", …" if len(piece.kinds) > 2 else "")


def _picture(coverage: EngineCoverage) -> str:
    """Return the pieces as a strip for each device, as wide as their times."""
    strips = []
    for plan in coverage.plans:
        times = [piece.time_s for piece in plan.pieces]
        whole_s = sum(times) or 1.0
        least = 100 / max(1, 4 * len(times))
        widths = [max(least, 100 * time_s / whole_s) for time_s in times]
        scale, x, parts = 100 / (sum(widths) or 1.0), 0.0, []
        for piece, time_s, width in zip(coverage.pieces, times, widths, strict=True):
            colour = COLOURS[0] if piece.is_converted else COLOURS[1]
            inside = "; ".join(f"{count} {kind}" for kind, count in list(piece.kinds.items())[:6])
            parts.append(
                f'<rect x="{x * scale:.3f}%" y="0" width="{width * scale:.3f}%" height="26" fill="{colour}" '
                f'stroke="#fff" stroke-width="1"><title>{escape(inside)}: {escape(show(time_s, "s"))}</title></rect>'
            )
            x += width
        label = f"{plan.target}: {counted(len(times), 'piece')}, {show(whole_s, 's')} of device time without borders"
        strips.append(
            f'<p>{escape(label)}</p><svg class="drawing" height="26" role="img" '
            f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
        )
    return keys([("in an engine", COLOURS[0]), ("outside", COLOURS[1])]) + "".join(strips)


def _times(coverage: EngineCoverage) -> Iterator[Block]:
    """Yield the three times of each device, and the time without conditional nodes where there are some."""
    rows = []
    for plan in coverage.plans:
        best = min(plan.plugins, key=lambda answer: answer.plan.total.time_s, default=None)
        cells = [plan.target, _interval(plan.as_is.total), _interval(plan.whole.total)]
        cells.append("–" if best is None else f"{brief(best.plan.total.time_s, 's')} ({best.kind})")
        rows.append((*cells, None if plan.refused is None else brief(plan.refused.total.time_s, "s")))
    if rows:
        heads = ("device", "#as it is", "#all converted", "#+best plug-in", "#+conditional refused")
        yield Table(columns=columns(*heads), rows=rows, name="times", caption="Predicted time of a run")
    unpredicted = coverage.plans[0].unpredicted if coverage.plans else {}
    if unpredicted:
        named = ", ".join(f"{kind} ({count})" for kind, count in unpredicted.items())
        yield Text(f"without a prediction, so in no time: {named}", "muted")


def _by_kind(nodes: tuple[JudgedNode, ...]) -> Mapping[tuple[str, str, str], list[JudgedNode]]:
    grouped: dict[tuple[str, str, str], list[JudgedNode]] = {}
    for node in nodes:
        grouped.setdefault((node.kind, node.verdict.verdict, node.verdict.reason), []).append(node)
    return grouped


def _kinds(coverage: EngineCoverage) -> Iterator[Block]:
    """Yield the operator types that do not plainly convert, the strictest verdict and most nodes first."""
    groups = [item for item in _by_kind(coverage.nodes).items() if item[0][1] != SUPPORTED]
    groups.sort(key=lambda item: (-VERDICTS.index(item[0][1]), -len(item[1])))
    for (kind, verdict, reason), nodes in groups[:SHOWN_KINDS]:
        yield Text((Span(verdict, _STYLES[verdict]), f": {kind}, {counted(len(nodes), 'node')}: {reason}"))
    if len(groups) > SHOWN_KINDS:
        yield Text(f"and {counted(len(groups) - SHOWN_KINDS, 'more group')} of nodes (--why)", "muted")


def _changes(coverage: EngineCoverage) -> Iterator[Block]:
    if not coverage.changes:
        return
    names = [plan.target for plan in coverage.plans]
    rows = [
        (change.text, *(
            (brief(change.gains[name].time_s, "s") if place else _interval(change.gains[name]))
            if name in change.gains else "–" for place, name in enumerate(names)
        ))
        for change in coverage.changes
    ]  # fmt: skip
    heads = columns("~change", *(f"#{name}|saves on {name}" for name in names))
    pays = any(gain.time_s > 0 for gain in coverage.changes[0].gains.values())
    caption = "What to change first" if pays else "No change is expected to save time; these may"
    yield Table(columns=heads, rows=rows, name="changes", caption=caption, brief_count=SHOWN_CHANGES)


def _plugins(coverage: EngineCoverage) -> Iterator[Block]:
    rows = [
        (plan.target, answer.kind, answer.node_count, answer.verdict, answer.break_even_s, answer.call_s,
         answer.bound_s, answer.recovered_ratio)
        for plan in coverage.plans for answer in plan.plugins
    ]  # fmt: skip
    if rows:
        heads = columns(
            "device", "`operator", "#node_count|nodes", "verdict", "#break_even_s|pays below", "#call_s|expected",
            "+#bound_s|least", "+#recovered_ratio|recovers",
        )  # fmt: skip
        yield Table(
            columns=heads, rows=rows, name="plugins", caption="Would a plug-in pay? Times of one of its kernels",
        )  # fmt: skip


def _why(coverage: EngineCoverage) -> Iterator[Block]:
    """Yield breaks, operator types, parts of the times, and what all of it rests on."""
    names = [plan.target for plan in coverage.plans]
    rows = [
        (len(item.keys), ", ".join(item.keys[:3]) + (" …" if len(item.keys) > 3 else ""),
         *(_interval(item.costs[name]) for name in names))
        for item in coverage.breaks
    ]  # fmt: skip
    heads = columns("#node_count|nodes", "~which", *(f"#{name}|costs on {name}" for name in names))
    yield Table(columns=heads, rows=rows, name="breaks", caption="Breaks", empty="no break")
    yield from _plugins(coverage)
    total = sum(node.flop for node in coverage.nodes)
    kinds = [
        (kind, len(nodes), Cell(value=verdict, kind=_STYLES[verdict]),
         sum(node.flop for node in nodes) / total if total else None, reason)
        for (kind, verdict, reason), nodes in _by_kind(coverage.nodes).items()
    ]  # fmt: skip
    heads = columns("`operator", "#node_count|nodes", "verdict", "#flop_ratio|arithmetic", ">reason")
    yield Table(columns=heads, rows=kinds, name="all_kinds", caption="All operator types")
    yield Table(
        columns=columns("device", "plan", "#engines", "#engine_s|in engines", "#left_s|outside", "#border_s|borders",
                        "#host_s|host"),
        rows=[row for plan in coverage.plans for row in _parts(plan)], name="parts", caption="Parts of the times",
    )  # fmt: skip
    size = "unknown bytes" if coverage.boundary_bytes is None else show(coverage.boundary_bytes, "B")
    yield f"{counted(coverage.boundary_count, 'tensor')} cross between engines and the rest: {size}."
    yield from coverage.notes
    yield Text(f"Table: {coverage.source}", "muted")
    yield Text(DEFINITIONS, "muted")


def _parts(plan: TargetPlan) -> Iterator[tuple[str | int | float, ...]]:
    for name, time in (("as it is", plan.as_is), ("all converted", plan.whole)):
        parts = (time.engine, time.left, time.border, time.host)
        yield (plan.target, name, time.piece_count, *(part.time_s for part in parts))
