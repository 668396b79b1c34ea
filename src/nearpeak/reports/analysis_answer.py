"""The short answer on a step: expected time by execution mode on each target, where it goes, and what to try."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.analysis import Analysis, Opportunity, TargetAnalysis
from nearpeak.core.answers.execution_time import MODES
from nearpeak.core.answers.items import Items as StepItems
from nearpeak.core.answers.items import items_of
from nearpeak.core.answers.time_limit import TimeLimit
from nearpeak.judgement.step_answer import energy_of, expected_of, larger_batch, proposals_of
from nearpeak.reports import brief_text as text
from nearpeak.reports import figure_text as words
from nearpeak.reports.document import Block, Cell, Table, Text, columns
from nearpeak.reports.step_headline import batch_sentence

SHOWN_TARGETS, SHOWN_OPPORTUNITIES, SHOWN_OPERATORS = 5, 3, 4
"""Rows of each kind in the short answer; with several targets fewer opportunities fit."""
_WITH_ENERGY, _WITH_FIT = 17, 26
"""Longest names of targets beside which 80 columns have room for energy, and for whether the step fits."""
_WITH_OPERATORS = 3
"""Most targets beside which the operators of the first have room."""
_LINES = 8
"""Lines for targets and opportunities together, two for each opportunity."""


def answer_blocks(analysis: Analysis, limit: TimeLimit | None = None) -> Iterator[Block]:
    """Yield the tables of the short answer.

    Args:
        limit: a time or rate to be kept.
    """
    first, items = analysis.targets[0], items_of(analysis)
    yield _targets(analysis, items)
    if len(analysis.targets) <= _WITH_OPERATORS and (line := _operators(analysis, first)):
        yield Text(line)
    if first.prediction is not None and "+" in first.target and "; " in first.prediction.holds_for:
        yield Text(f"Power: {first.prediction.holds_for.partition('; ')[2]}.")  # which the edit leaves as it is
    if warning := _missing(analysis, first):
        yield Text(warning, "strong bad")
    room = max(1, (_LINES - min(len(analysis.targets), SHOWN_TARGETS)) // 2)
    if proposals := proposals_of(analysis, first):
        yield _opportunities(proposals, items, min(room, SHOWN_OPPORTUNITIES))
    if (batch := larger_batch(first)) is not None:
        yield Text(batch_sentence(analysis, batch, limit))


def _targets(analysis: Analysis, items: StepItems) -> Table:
    """Return limit and expected times per item on each target; the mode of the headline is marked."""
    has_modes = any(target.executions for target in analysis.targets)
    modes = list(MODES) if has_modes else []
    heads = [f"#{mode}{' *' if mode == analysis.execution else ''}" for mode in modes] or ["#expected"]
    energy = ["#energy"] if any(energy_of(analysis, target) is not None for target in analysis.targets) else []
    each = "target" if items.noun == "step" else f"each {items.noun} on"
    longest = max((len(words.clean(target.target)) for target in analysis.targets), default=0)
    energy = [f"{'+' if longest > _WITH_ENERGY else ''}{name}" for name in energy]  # names are never broken or cut
    fits = "+fits" if longest > _WITH_FIT else "fits"
    return Table(
        columns=columns(f"target|{each}", "#limit", *heads, f"#{items.noun}s/s", *energy, fits),
        rows=[_cells(analysis, target, items, modes, bool(energy)) for target in analysis.targets],
        brief_count=SHOWN_TARGETS, rest=f"… and {len(analysis.targets) - SHOWN_TARGETS} more targets with --why",
    )  # fmt: skip


def _cells(
    analysis: Analysis, target: TargetAnalysis, items: StepItems, modes: Sequence[str], has_energy: bool
) -> Sequence[str | Cell]:
    sign = "" if analysis.complete else "≥ "
    by_mode = {execution.mode: execution.time_s for execution in target.executions}
    expected = expected_of(analysis, target)
    partly = "≥ " if target.prediction is not None and target.prediction.unpredicted else ""
    times = [by_mode.get(mode) for mode in modes] or [expected.time_s if expected else None]
    shown = ["–" if time_s is None else partly + text.brief(items.item_s(time_s), "s") for time_s in times]
    if modes and not target.executions and expected is not None:  # a processor without a host of its own
        shown = [text.brief(items.item_s(expected.time_s), "s"), *["–"] * (len(modes) - 1)]
    rate = "–" if expected is None or not expected.time_s else text.figure_of_three(items.per_s(expected.time_s))
    joule = energy_of(analysis, target)
    energy = ["–" if joule is None else text.brief(joule / items.count, "J")] if has_energy else []
    verdict, style = {True: ("yes", "good"), False: ("no", "bad"), None: ("?", "")}[target.fit.fits]
    return (
        Cell(value=target.target, text=words.clean(target.target), hint=target.title),
        sign + text.brief(items.item_s(target.bound_s), "s"), *shown, rate, *energy,
        Cell(value=target.fit.fits, text="–" if analysis.memory is None else verdict, kind=style),
    )  # fmt: skip


def _operators(analysis: Analysis, target: TargetAnalysis) -> str:
    """Return the operators that take most of the kernels' time."""
    step = target.prediction
    if step is None or not step.time_s:
        return ""
    times: dict[str, float] = {}
    for row, time in zip(analysis.rows, target.times, strict=True):
        if time.prediction is not None:
            times[row.case.op] = times.get(row.case.op, 0.0) + time.prediction.time_s * row.call_count
    order = sorted(times, key=lambda name: -times[name])
    parts = [f"{name} {text.whole_percent(times[name] / step.time_s)}" for name in order[:SHOWN_OPERATORS]]
    return f"Kernels one by one: {', '.join(parts)}; the limit is set by {words.limiter(target.limiter)}."


def _missing(analysis: Analysis, target: TargetAnalysis) -> str:
    """Return what the answer does not hold; empty where it holds everything."""
    lacking = analysis.call_count - analysis.covered_count
    unpredicted = sum(target.prediction.unpredicted.values()) if target.prediction is not None else 0
    parts = [f"{words.count(lacking)} of {words.count(analysis.call_count)} calls have no rule"] if lacking else []
    parts += [f"{words.count(unpredicted)} have no expected time"] if unpredicted else []
    return f"Not in it (≥): {', '.join(parts)}." if parts else ""


def _opportunities(opportunities: Sequence[Opportunity], items: StepItems, most: int) -> Table:
    """Return what to try: expected time of an item before and after, and the command or line of code."""

    def each(time_s: float | None) -> str:
        return text.brief(items.item_s(time_s or 0.0), "s")

    rows = [
        (f"{each(change.before_s)} → {each(change.after_s)}", text.whole_percent(-change.gain_s / change.before_s),
         change.title, change.action)
        for change in opportunities if change.before_s
    ]  # fmt: skip
    rest = f"… and {len(opportunities) - most} more with --why"
    heads = (f"expected {text.with_article(items.noun)}", "#change", "~what to try (gains overlap)", ">action")
    return Table(columns=columns(*heads), rows=rows, brief_count=most, rest=rest)
