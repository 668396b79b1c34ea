"""Headline of a trace: the time of a step, the largest cause, and what to do; the short answer of a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.traces.finding_report import TraceReport
from nearpeak.reports.document import WHY, Block, Details, Document, Table, Text
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.units import counted, show

MOST_LINES = 25
"""Lines of the short answer in a terminal of 80 columns."""
_ACTIONS, _PARTS, _NOTES, _OPERATORS = 3, 5, 3, 4
"""What the short answer shows of each at most."""


def headline_of(report: TraceReport) -> str:
    """Return the answer in one sentence or two: what a step takes, the largest cause, what could be told."""
    return f"{_time(report.executed)}. {report.verdict[:1].upper()}{report.verdict[1:]}"


def _time(executed: Executed) -> str:
    """Return the time of a step with its range over the steps, and how much of it the device works."""
    busy = f"the device busy {executed.timeline.busy_ns / max(1, executed.window_ns):.0%} of it"
    time = show(executed.mean_step_s, "s")
    if not executed.states_times:
        return f"{time} of work, placed end to end, as the file states no times"
    if not executed.steps_found:
        return f"{time} in the window, in which no steps are marked, {busy}"
    least_ns, most_ns = min(executed.step_ns), max(executed.step_ns)
    low, high = show(least_ns * 1e-9, "s"), show(most_ns * 1e-9, "s")
    by_marks = "" if least_ns <= executed.mean_step_s * 1e9 <= most_ns else " by their marks"  # work may end after them
    spread = f" ({low}{f' to {high}' if low != high else ''}{by_marks})" if low != high or low != time else ""
    return f"{time} a step{spread} over {counted(len(executed.step_ns), 'step')}, {busy}"


def _actions(report: TraceReport) -> Iterator[str]:
    """Yield what to do and what a step would take then, largest gain first."""
    what = "a step" if report.executed.steps_found else "for the window"
    for finding in report.findings:
        if finding.gain_s <= 0 or finding.remedy_of:
            continue
        share = finding.gain_s / report.step_s if report.step_s else 0.0
        least = show(max(0.0, report.step_s - finding.gain_s), "s")
        yield f"{finding.action} → {least} {what}, {show(finding.gain_s, 's')} less ({share:.0%}; {finding.id})"


def brief_of(report: TraceReport, document: Document) -> Document:
    """Return the short answer, behind which the whole document is folded away.

    Args:
        document: the whole report.
    """
    executed = report.executed
    operators = next(
        (block for block in document.blocks if isinstance(block, Table) and block.columns[0].name == "operator"), None
    )
    actions = [*_actions(report)][:_ACTIONS]
    required: list[Block] = [f"do this: {action}" if len(actions) == 1 else f"{number}. {action}"
                             for number, action in enumerate(actions, start=1)]  # fmt: skip
    optional: list[Block] = [_shares(report), *_notes(executed.notes), str(document.blocks[0])]
    if report.abstentions:
        count = counted(len({abstention.id for abstention in report.abstentions}), "kind")
        optional.append(Text(f"undecided: {count} of findings lack evidence; --why says what to record", "muted"))
    if operators is not None:
        optional.append(replace(operators, brief_count=_OPERATORS, rest="times are of a call; all with --why"))
    folded = Details(WHY, tuple(document.blocks))
    return replace(document, blocks=[*_within(document, required, optional, folded), folded])


def _shares(report: TraceReport) -> str:
    """Return the largest parts of a step in one sentence."""
    whole = "a step" if report.executed.steps_found else "the window"
    shown = [f"{term.name} {term.share_ratio:.0%}" for term in report.terms[:_PARTS] if term.share_ratio >= 0.005]
    return f"where {whole} goes: {', '.join(shown)}" if shown else ""


def _notes(notes: Sequence[str]) -> Iterator[Block]:
    yield from (Text(note, "muted") for note in notes[:_NOTES])
    if len(notes) > _NOTES:
        yield Text(f"{len(notes) - _NOTES} more notes with --why", "muted")


def _within(
    document: Document, required: Sequence[Block], optional: Sequence[Block], folded: Block
) -> list[Block]:  # fmt: skip
    """Return the blocks that the short answer has room for: what is required, then what fits in turn."""
    blocks = list(required)
    for block in optional:
        whole = to_terminal(replace(document, blocks=[*blocks, block, folded]))
        if whole.count("\n") <= MOST_LINES:
            blocks.append(block)
    return blocks
