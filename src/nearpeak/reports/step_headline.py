"""Opening sentences of a step report: expected time per item, distance from the bound, and the best remedy."""

from collections.abc import Mapping

from nearpeak.core.answers.analysis import Analysis, Opportunity, TargetAnalysis
from nearpeak.core.answers.execution_time import GAP_CAUSES, HOST
from nearpeak.core.answers.items import Items, items_of, whole_of
from nearpeak.core.answers.time_limit import NO, OPEN, YES, LimitVerdict, TimeLimit
from nearpeak.judgement.step_answer import (
    Expected,
    execution_of,
    expected_of,
    keeps_limit,
    largest_cause,
    proposals_of,
    unpredicted_of,
)
from nearpeak.reports import brief_text as text
from nearpeak.reports import figure_text as words
from nearpeak.units import counted

_NEAR_RATIO = 1.1
"""Times up to this multiple of the limit have no gap worth a sentence."""
_SAME_RATIO = 1.01
"""Ratio of times below which two targets are equally fast."""
_MOST_NAMED = 2
"""Equally fast targets that are named; of more their number is."""
_BRIEF_CAUSES: Mapping[str, str] = {
    HOST: "the host, which submits {count}{each}",
    "launch": "starting {count}",
}


def headline(analysis: Analysis, target: TargetAnalysis) -> str:
    """Return the answer of a target in one or two sentences."""
    items, expected = items_of(analysis), expected_of(analysis, target)
    sign = "" if analysis.complete else "≥ "
    limit = f"limit {sign}{text.brief(items.item_s(target.bound_s), 's')}"
    is_list = analysis.step == "sweep"
    each = "for all cases" if is_list else _each(items)
    if expected is None:
        rate = f", {_rate(items, target.bound_s, 'at most ')}" if target.bound_s and not is_list else ""
        time = f"At least {text.brief(items.item_s(target.bound_s), 's')} {each}"
        return f"{time}{rate}; no call can be predicted on {words.clean(target.target)}."
    ends = text.ends(items.item_s(expected.low_s), items.item_s(expected.high_s), items.item_s(expected.time_s), "s")
    mode = f", {analysis.execution}" if execution_of(analysis, target) else ""
    more = "≥ " if target.prediction is not None and target.prediction.unpredicted else ""
    time = f"{more}{text.brief(items.item_s(expected.time_s), 's')} {each} ({ends}{mode})"
    whole = whole_of(analysis)
    step = f", {more}{text.brief(expected.time_s, 's')} {whole}" if whole else ""
    rate = "" if is_list else f", {_rate(items, expected.time_s)}"
    return f"{time}{step}{rate}; {limit}. {_gap(analysis, target, expected)}".rstrip()


def winner(analysis: Analysis) -> str:
    """Return which target is the fastest and by how much, before its headline; empty for one.

    None is where no target holds the step, or where times leave out different calls.

    Args:
        analysis: with its targets from the fastest on.
    """
    if len(analysis.targets) < 2:
        return ""
    first, name = analysis.targets[0], words.shortened(analysis.targets[0].target, 54)
    best = expected_of(analysis, first)
    if first.fit.fits is False:
        return f"No target's memory holds it; {name}, if it did: "
    others = {target.target: target for target in analysis.targets if target.target != first.target}
    rivals = [
        (target, expected) for target in others.values()
        if target.fit.fits is not False and (expected := expected_of(analysis, target)) is not None
    ]  # fmt: skip
    if best is None or not rivals:
        return f"{name}: "
    apart = [unpredicted_of(target) != unpredicted_of(first) for target, _ in rivals]
    if apart[0] or any(known and time.time_s < best.time_s for known, (_, time) in zip(apart, rivals, strict=True)):
        return f"{name}: "
    alike = [target for target, time in rivals if time.time_s < _SAME_RATIO * best.time_s or not best.time_s]
    if not alike:
        other = words.shortened(rivals[0][0].target, 54)
        return f"{name} is the fastest, {words.times(rivals[0][1].time_s / best.time_s)} as fast as {other}: "
    named = " and ".join(words.shortened(target.target, 54) for target in alike)
    return f"{name}, as fast as {named if len(alike) <= _MOST_NAMED else f'{len(alike)} others'}: "


def _each(items: Items) -> str:
    """Return what a time is for."""
    each = text.with_article(items.noun)
    return f"{each} in each of {items.count:,} sequences" if items.is_one_each and items.count > 1 else each


def _rate(items: Items, time_s: float, before: str = "") -> str:
    """Return items per second."""
    return f"{before}{text.figure_of_three(items.per_s(time_s))} {items.noun}s/s"


def _gap(analysis: Analysis, target: TargetAnalysis, expected: Expected) -> str:
    """Return the largest cause of the gap with the first of the proposals."""
    gap_s = expected.time_s - target.bound_s
    if expected.time_s <= _NEAR_RATIO * target.bound_s:
        return "Nothing much is left to gain."
    cause = largest_cause(expected)
    share = min(expected.gap_s[cause] / gap_s, 1.0)
    kernels, each = counted(expected.kernel_count, "kernel"), " one by one" if expected.kernel_count > 1 else ""
    named = _BRIEF_CAUSES.get(cause, GAP_CAUSES.get(cause, cause)).format(count=kernels, each=each)
    proposals = proposals_of(analysis, target)
    if not proposals:
        return f"{100 * share:.0f} % of the gap: {named}."
    after_s = items_of(analysis).item_s(proposals[0].after_s or 0.0)
    return f"{100 * share:.0f} % of the gap: {named}. {proposals[0].title}: about {text.brief(after_s, 's')}."


def batch_sentence(analysis: Analysis, change: Opportunity, limit: TimeLimit | None = None) -> str:
    """Return what a larger batch does to throughput and to the time that each user waits, and whether a limit holds.

    Args:
        change: a larger batch.
        limit: a time or rate to be kept.
    """
    items, before_s = items_of(analysis), change.before_s or 0.0
    rates = (items.per_s(before_s), items.per_s(change.after_s or 0.0))
    rate = f"{' → '.join(text.figure_of_three(rate) for rate in rates)} {items.noun}s/s"
    waiting = f"{'a token of each sequence' if items.is_one_each else 'each step'} takes "
    waiting += " → ".join(text.brief(time_s, "s") for time_s in (before_s, change.step_s))
    batch = f"batch {(analysis.batch_count or 1) * change.item_ratio:,.0f}"
    if limit is not None and not keeps_limit(analysis, change, limit):
        return f"Not within {words.clean(limit.text)}: {batch}, {rate}, as {waiting}."
    return f"For throughput: {batch}, {rate}; {waiting}."


def verdict_sentence(verdict: LimitVerdict, where: str) -> str:
    """Return the answer to `--within` in a sentence.

    >>> from nearpeak.core.answers.time_limit import TimeLimit
    >>> limit = TimeLimit(text="20 ms", noun="step", value_s=0.02, is_rate=False)
    >>> verdict = LimitVerdict(limit=limit, allowed_s=0.02, expected_s=0.01, low_s=0.009, high_s=0.03, bound_s=0.005)
    >>> verdict_sentence(verdict, "h100_sxm")
    'Within 20 ms on h100_sxm: yes, 2× as fast as needed; the 90 % interval ends at 1.5× the time allowed, measure it.'
    """
    begin = f"Within {verdict.limit.text} on {where}: "
    if verdict.bound_s > verdict.allowed_s:
        return f"{begin}no, whatever the software: the limit of the device is {_factor(verdict.bound_s, verdict)}."
    if verdict.answer == OPEN or verdict.expected_s is None or verdict.low_s is None or verdict.high_s is None:
        return f"{begin}not known: nothing is predicted, and the device could at {_factor(verdict.bound_s, verdict)}."
    if verdict.answer == YES:
        doubt = f"; the 90 % interval ends at {_factor(verdict.high_s, verdict)}, measure it"
        ratio = words.times(verdict.allowed_s / verdict.expected_s)
        return f"{begin}yes, {ratio} as fast as needed{doubt if verdict.high_s > verdict.allowed_s else ''}."
    hope = f"; the 90 % interval begins at {_factor(verdict.low_s, verdict)}, measure it"
    return (
        f"{begin}{NO}, expected {_factor(verdict.expected_s, verdict)}, the device's limit is "
        f"{_factor(verdict.bound_s, verdict)}{hope if verdict.low_s <= verdict.allowed_s else ''}."
    )


def _factor(time_s: float, verdict: LimitVerdict) -> str:
    return f"{words.times(time_s / verdict.allowed_s)} the time allowed"
