"""Document of an analysis: bounds on all targets, time breakdown on the first, and provenance of the bounds."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.analysis import Analysis, Share, TargetAnalysis
from nearpeak.core.answers.bound import ASSUMPTIONS
from nearpeak.reports import expected_time_text as expected
from nearpeak.reports import figure_text as words
from nearpeak.reports.bar_geometry import memory_parts
from nearpeak.reports.document import Block, Cell, Document, Heading, Items, Span, Table, Text, columns
from nearpeak.units import show

TOP_COUNT = 8
"""Operators, modules, opportunities and measured calls shown of a target."""


def document_of(analysis: Analysis) -> Document:
    """Return the analysis as a document that fits a screen or two of 80 columns."""
    heads = columns("~target", "#bound", "#1 kernel\nper op", "#launch\nfloor", "#expected\nper op", "limiter", "fits",
                    "#most\nbatch")  # fmt: skip
    targets = Table(
        columns=heads, rows=[_target_cells(analysis, target) for target in analysis.targets], empty="no target"
    )
    blocks = [*_head(analysis), targets, *_remarks(analysis)]
    for target in analysis.targets[:1]:
        blocks += _first_target(analysis, target)
    for target in analysis.targets:
        blocks += [*_measured(analysis, target), *_unmeasured(analysis, target)]
    blocks += [Heading("Memory and assumptions"), *_memory(analysis), *_footnotes(analysis)]
    return Document(title=words.shortened(analysis.name, 60), subject=words.subject(analysis), blocks=blocks)


def _head(analysis: Analysis) -> Iterator[Block]:
    if source := words.dimensions(analysis):
        yield f"dimensions: {source}"
    flop = f"{show(analysis.total_flop, 'FLOP')}, of them {show(analysis.matrix_flop, 'FLOP')} for matrix units"
    size = f"{show(analysis.fused_bytes, 'B')} fused, {show(analysis.unfused_bytes, 'B')} operator by operator"
    yield f"work: {flop}; {size}"
    yield words.products_counted(analysis.policy)
    parameters = "" if analysis.parameter_count is None else f"; {words.count(analysis.parameter_count)} parameters"
    yield Text(words.coverage(analysis) + parameters, "" if analysis.complete else "strong bad")


def _target_cells(analysis: Analysis, target: TargetAnalysis) -> Sequence[str | Cell]:
    floor = "–" if target.launch_floor_s is None else words.least(analysis, target.launch_floor_s, "s")
    verdict, largest = words.fit(analysis, target)
    short, style = {"fits": ("yes", "good"), "does not fit": ("no", "bad")}.get(verdict, (verdict, ""))
    name = words.shortened(target.target, 54)
    parted = name if len(name) <= 16 else name.replace(":", ":\n", 1)  # power modes and partitions stay readable
    return (
        Cell(value=target.target, text=parted + (" *" if target.unverified else ""), hint=target.title),
        Cell(value=target.bound_s, text=words.least(analysis, target.bound_s, "s"), kind="strong"),
        words.least(analysis, target.chained_s, "s"), floor, expected.total(target.prediction),
        Cell(value=target.limiter, kind=target.limiter), Cell(value=verdict, text=short, kind=style), largest,
    )  # fmt: skip


def _remarks(analysis: Analysis) -> Iterator[Text]:
    lines = ["bound: least time of the whole step in any number of kernels, fused or not"]
    if not analysis.complete:
        lines.append("≥: calls without a rule are not in it, so the true bound is at least this")
    for target in analysis.targets:
        if target.proof is not None and target.proof.interval is not None:
            lines.append(f"{target.target}: {words.interval(target.proof.interval)}")
        if target.rewrites:
            lines.append(f"{target.target} {words.simplified(target)}")
        if target.unverified:
            lines.append(f"*: derived or second-hand figures of {target.target}: {', '.join(target.unverified)}")
    return (Text(line, "muted") for line in lines)


def _first_target(analysis: Analysis, target: TargetAnalysis) -> Iterator[Block]:
    total = words.least(analysis, target.unfused_s, "s")
    yield Heading(f"On {words.shortened(target.title, 40)}")
    yield f"sum over operators, inputs cold: {total}; {words.coverage(analysis)}"
    yield from expected.lines_of(analysis, target)
    for kind, parts in (("phase", target.by_phase), ("operator", target.by_operator), ("module", target.by_module)):
        yield _parts(kind, parts)
    if target.opportunities:
        yield Heading("Largest opportunities (at most; gains overlap, do not add them)", 3)
    yield Items(tuple(
        (Span(show(opportunity.gain_s, "s"), "strong"), f" {opportunity.kind}: {opportunity.title} ",
         Span(opportunity.evidence, "muted"),
         *((" ", Span(words.shortened(opportunity.where, 48), "code")) if opportunity.where else ()))
        for opportunity in target.opportunities[:TOP_COUNT]
    ))  # fmt: skip


def _parts(kind: str, parts: Sequence[Share]) -> Table:
    rows: list[Sequence[str | float | Cell]] = []
    for part in parts[:TOP_COUNT]:
        limiter = max(part.limiter_s, key=lambda name: part.limiter_s[name], default="")
        rows.append((
            part.name or "(top level)", part.time_s, part.share_ratio, Cell(value=part.share_ratio, kind=limiter),
            Cell(value=limiter, kind=limiter), part.call_count,
        ))  # fmt: skip
    if rest := parts[TOP_COUNT:]:
        time_s, share_ratio = sum(part.time_s for part in rest), sum(part.share_ratio for part in rest)
        rows.append((f"{len(rest)} more", time_s, share_ratio, share_ratio, "", sum(part.call_count for part in rest)))
    heads = ("#time_s|time", "#share_ratio|share", "share_bar|of all", "limiter", "+#call_count|calls")
    return Table(columns=columns(f"`<by {kind}", *heads), rows=rows, empty="")


def _measured(analysis: Analysis, target: TargetAnalysis) -> Iterator[Block]:
    """Yield the measured calls with expected time and bound, largest gain first; implausible ones are marked."""
    timed = [(row, time) for row, time in zip(analysis.rows, target.times, strict=True) if time.measured_s]
    if not timed:
        return
    timed.sort(key=lambda pair: -((pair[1].measured_s or 0.0) - pair[1].bound_s) * pair[0].call_count)
    yield Heading(f"Measured on {words.shortened(target.title, 40)}, most time to gain first")
    heads = ("#measured_s|measured", "#expected_s|expected", "#bound_s|bound", "#attained", "`one call of")
    rows = [
        (time.measured_s, time.prediction.time_s if time.prediction else None, time.bound_s,
         "implausible" if words.is_implausible(time) else words.percent(words.attained(time) or 0.0), row.label)
        for row, time in timed[:TOP_COUNT]
    ]  # fmt: skip
    yield Table(columns=columns(*heads), rows=rows)
    implausible = sum(words.is_implausible(time) for _, time in timed)
    if implausible:
        wrong = f"{implausible} of {len(timed)} measurements are below their bound: a rule or a timer is wrong"
        yield Text(wrong, "strong bad")
    yield from (words.below_bound(entry) for entry in target.below_bound[:TOP_COUNT])


def _unmeasured(analysis: Analysis, target: TargetAnalysis) -> Iterator[Block]:
    """Yield the cases that gave no time, so that none is taken for one that ran."""
    first, *others = [*words.unmeasured(analysis, target)] or [""]
    if first:
        yield Heading(f"{words.shortened(target.title, 40)}: {first}")
        yield from (Text(f"  {line}") for line in others)


def _memory(analysis: Analysis) -> Iterator[Text]:
    if analysis.memory is None:
        return
    parts = (f"{name} {show(size, 'B')}" for name, size in memory_parts(analysis.memory).values())
    peak = f"{show(analysis.memory.peak_bytes, 'B')} at the peak ({', '.join(parts)})"
    yield Text((Span("Memory: ", "strong"), peak))


def _footnotes(analysis: Analysis) -> Iterator[Block]:
    if analysis.uncovered:
        calls = ((Span(words.shortened(name, 48), "code"), f" ×{count} ") for name, count in analysis.uncovered.items())
        yield Text((Span("Not covered by a rule: ", "strong bad"), *(piece for pair in calls for piece in pair)))
    yield Text((Span("Policy: ", "strong"), " ".join(words.policy(analysis.policy))))
    used = dict.fromkeys(name for target in analysis.targets for name in target.assumptions)
    notes = [f"{name}: {ASSUMPTIONS.get(name, '')}" for name in used]
    notes += [f"capture: {sentence}" for sentence in analysis.capture_assumptions]
    yield Items(tuple(Span(note, "muted") for note in notes))
