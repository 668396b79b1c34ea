"""Document of an analysis: bounds on all targets, time breakdown on the first, and provenance of the bounds."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.analysis import Analysis, Share, TargetAnalysis
from nearpeak.core.answers.bound import ASSUMPTIONS
from nearpeak.core.answers.execution_time import GAP_CAUSES, MODES
from nearpeak.core.answers.time_limit import NO, OPEN, TimeLimit
from nearpeak.judgement.step_answer import every_proposal, execution_of, fastest_first, limit_verdict
from nearpeak.reports import expected_time_text as expected
from nearpeak.reports import figure_text as words
from nearpeak.reports.analysis_answer import answer_blocks
from nearpeak.reports.bar_geometry import memory_parts
from nearpeak.reports.document import WHY, Block, Cell, Details, Document, Heading, Items, Span, Table, Text, columns
from nearpeak.reports.step_headline import headline, verdict_sentence, winner
from nearpeak.units import counted, show

HOST_NOTE = (
    "Host costs of eager calls are ranges of public profiles: 3 to 8 µs of framework for each call and view, 1 to 3 µs "
    "of library and 2 to 5 µs of driver for each kernel; of no particular host, so the interval is wide."
)
"""What eager times rest on."""
_EACH_VERDICT = 2
"""Targets up to which each has a sentence of its own on a limit."""

TOP_COUNT = 8
"""Operators, modules, opportunities and measured calls shown of a target."""


def document_of(analysis: Analysis, limit: TimeLimit | None = None) -> Document:
    """Return the analysis as a document: the answer within 25 lines of 80 columns, and folded what it rests on.

    Args:
        limit: a time or rate to be kept, which is answered on every target.
    """
    name, subject = words.shortened(analysis.name, 60), words.subject(analysis)
    if not analysis.targets:
        return Document(
            title=name, subject=subject, lead="No target is given.", blocks=[Details(WHY, tuple(_rest(analysis)))]
        )
    analysis = fastest_first(analysis)
    first = analysis.targets[0]
    is_one = len(analysis.targets) == 1
    place = f" on {words.shortened(first.title, 40)}" if is_one else ""
    lead = f"{winner(analysis)}{headline(analysis, first)}"
    verdicts = [Text(text, "strong") for text in verdict_lines(analysis, limit)] if limit is not None else []
    measured = [block for target in analysis.targets
                for block in (*_measured(analysis, target), *_unmeasured(analysis, target))]  # fmt: skip
    blocks: list[Block] = [*verdicts, *answer_blocks(analysis, limit), *measured, Details(WHY, tuple(_rest(analysis)))]
    return Document(title=name, subject=f"{subject}{place}", lead=lead, blocks=blocks)


def verdict_lines(analysis: Analysis, limit: TimeLimit) -> Iterator[str]:
    """Yield whether the step keeps a limit: a sentence for each of two targets, one for all of more."""
    verdicts = [(limit_verdict(analysis, target, limit), target.target) for target in analysis.targets]
    if len(verdicts) <= _EACH_VERDICT:
        for (verdict, name), target in zip(verdicts, analysis.targets, strict=True):
            faster = [execution.mode for execution in target.executions if execution.time_s <= verdict.allowed_s]
            hint = f" Expected to be met with --execution {faster[0]}." if faster and verdict.answer == NO else ""
            yield verdict_sentence(verdict, words.clean(name)) + hint
        return
    by_answer: dict[str, list[str]] = {}
    for verdict, name in verdicts:
        by_answer.setdefault(verdict.answer, []).append(words.clean(name))
    parts = [
        f"{answer if answer != OPEN else 'not known'} on {', '.join(names)}" for answer, names in by_answer.items()
    ]
    yield f"Within {words.clean(limit.text)}: {'; '.join(parts)}."


def _rest(analysis: Analysis) -> Iterator[Block]:
    """Yield what the answer rests on: bounds on all targets, the parts of the first, memory, assumptions, policy."""
    expected_head = "#graph" if any(target.executions for target in analysis.targets) else "#expected\nper op"
    heads = columns("~target", "#bound", "#1 kernel\nper op", "#launch\nfloor", expected_head, "limiter", "fits",
                    "#most\nbatch")  # fmt: skip
    yield Table(columns=heads, rows=[_target_cells(analysis, target) for target in analysis.targets], empty="no target")
    yield from _head(analysis)
    yield from _remarks(analysis)
    yield from _modes(analysis)
    for target in analysis.targets[:1]:
        yield from _first_target(analysis, target)
    yield Heading("Memory and assumptions")
    yield from _memory(analysis)
    yield from _footnotes(analysis)


def _modes(analysis: Analysis) -> Iterator[Block]:
    """Yield what the execution modes mean, and the gap of the first target in the one of the headline."""
    execution = execution_of(analysis, analysis.targets[0]) if analysis.targets else None
    if execution is None:
        return
    yield Heading("Execution modes")
    yield Items(tuple(f"{mode}: {text}" for mode, text in MODES.items()))
    yield HOST_NOTE
    least_s = expected.LEAST_SHARE * execution.time_s
    rows = [("limit of the step", analysis.targets[0].bound_s, analysis.targets[0].bound_s / execution.time_s)]
    causes = sorted(execution.gap_s, key=lambda cause: -execution.gap_s[cause])
    rows += [(GAP_CAUSES.get(cause, cause), execution.gap_s[cause], execution.gap_s[cause] / execution.time_s)
             for cause in causes if abs(execution.gap_s[cause]) >= least_s]  # fmt: skip
    small = [gap_s for gap_s in execution.gap_s.values() if 0 < abs(gap_s) < least_s]
    rows += [(f"{counted(len(small), 'smaller cause')}", sum(small), sum(small) / execution.time_s)] if small else []
    rows.append((f"expected, {execution.mode}", execution.time_s, 1.0))
    yield Table(columns=columns("~part of the time", "#time_s|time", "#share_ratio|share"), rows=rows)


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
    yield f"sum over operators, inputs cold: {total}"
    yield from expected.lines_of(analysis, target)
    for kind, parts in (("phase", target.by_phase), ("operator", target.by_operator), ("module", target.by_module)):
        if len(parts) > 1:  # one part is the step
            yield _parts(kind, parts)
    yield from (
        Text((f"{change.title}: {change.evidence}", *(
            (" ", Span(words.shortened(change.where, 48), "code")) if change.where else ()
        )), "muted")
        for change in every_proposal(analysis, target)
    )  # fmt: skip


def _parts(kind: str, parts: Sequence[Share]) -> Table:
    rows: list[Sequence[str | float | Cell]] = []
    shown = [part for part in parts[:TOP_COUNT] if part.share_ratio >= expected.LEAST_SHARE] or parts[:1]
    for part in shown:
        limiter = max(part.limiter_s, key=lambda name: part.limiter_s[name], default="")
        rows.append((
            part.name or "(top level)", part.time_s, part.share_ratio, Cell(value=part.share_ratio, kind=limiter),
            Cell(value=limiter, kind=limiter), part.call_count,
        ))  # fmt: skip
    if rest := parts[len(shown) :]:
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
