"""Gate verdict: applies every rule to each series that it selects, and derives one exit code."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from nearpeak.core.history.gate import (  # fmt: skip
    FAIL,
    INCONCLUSIVE,
    PASS,
    GateLine,
    GatePolicy,
    GateResult,
    GateRule,
    GateSubject,
)
from nearpeak.core.runs.estimate import estimate_of
from nearpeak.core.runs.measurement import FAILURES
from nearpeak.core.runs.paired_rounds import INCONCLUSIVE as UNDECIDED
from nearpeak.core.runs.paired_rounds import REGRESSION, Judgement
from nearpeak.errors import INCONCLUSIVE_CODE, INCORRECT_CODE, SLOWER_CODE, UNAVAILABLE_CODE
from nearpeak.gate.persistence import HistoryJudgement
from nearpeak.units import counted, show

_ORDER = (UNAVAILABLE_CODE, INCORRECT_CODE, SLOWER_CODE, INCONCLUSIVE_CODE, 0)
"""Exit codes, the one that wins first."""
Judged = Mapping[tuple[str, str], HistoryJudgement]
"""Judgements by name of rule and of series."""
TOLD_CLOCK_RATIO = 0.005
"""Smaller clock differences are not reported."""


def decided(policy: GatePolicy, subjects: Sequence[GateSubject], judged: Judged, revision: str) -> GateResult:
    """Return the result of `policy` for `subjects`.

    Args:
        judged: for each rule that compares revisions, the judgement of each series that has a baseline.
    """
    lines = [line for rule in policy.rules for line in _lines(rule, subjects, judged)]
    lines.sort(key=lambda row: (_ORDER.index(row.exit_code), row.verdict == PASS, row.rule, row.series))
    code = lines[0].exit_code if lines else INCONCLUSIVE_CODE
    verdict = PASS if code == 0 else INCONCLUSIVE if code in (INCONCLUSIVE_CODE, UNAVAILABLE_CODE) else FAIL
    return GateResult(policy=policy, revision=revision, verdict=verdict, exit_code=code, lines=tuple(lines))


def selects(rule: GateRule, subject: GateSubject) -> bool:
    """Say whether `rule` judges `subject`."""
    fields = subject.fields
    wanted = all(fnmatchcase(fields.get(name, ""), pattern) for name, pattern in rule.select.items())
    return wanted and not any(fnmatchcase(fields.get(name, ""), pattern) for name, pattern in rule.leave_out.items())


def _lines(rule: GateRule, subjects: Sequence[GateSubject], judged: Judged) -> list[GateLine]:
    """Return a line for each series; a rule that selects none is inconclusive, as it checks nothing."""
    chosen = [subject for subject in subjects if selects(rule, subject)]
    if not chosen:
        nothing = GateSubject(series="", fields={}, times_s=())
        return [
            _undecided(rule, nothing, "it selects no series of this revision; measure one, or change its selectors")
        ]
    return [_line(rule, subject, judged.get((rule.name, subject.series))) for subject in chosen]


def _line(rule: GateRule, subject: GateSubject, judgement: HistoryJudgement | None) -> GateLine:
    if subject.outcome in ("incorrect", "infra"):
        code = INCORRECT_CODE if subject.outcome == "incorrect" else UNAVAILABLE_CODE
        reason = "its result is wrong" if subject.outcome == "incorrect" else "the device was lost or not to be had"
        return _gate_line(rule, subject, FAIL if code == INCORRECT_CODE else INCONCLUSIVE, reason, code=code)
    if subject.outcome in FAILURES:
        return _gate_line(rule, subject, FAIL, f"it {FAILURES[subject.outcome]} at this revision")
    if not subject.times_s:
        return _undecided(rule, subject, f"there is no time to judge: {subject.outcome or 'not measured'}")
    if rule.baseline == "bound":
        return _against_bound(rule, subject)
    if rule.baseline == "prediction":
        return _against_prediction(rule, subject)
    return _against_history(rule, subject, judgement)


def _against_history(rule: GateRule, subject: GateSubject, history: HistoryJudgement | None) -> GateLine:
    """Fail on a confirmed regression; a regression in a single run is a suspect, and is undecided."""
    if history is None:
        return _undecided(
            rule, subject, f"no baseline: no time at {baseline_of(rule)}, or too few launches to tell its noise"
        )
    judgement = history.judgement
    low, centre, high = (
        f"{ratio - 1:+.1%}" for ratio in (judgement.low_ratio, judgement.time_ratio, judgement.high_ratio)
    )
    text = f"{centre} time against {baseline_of(rule)}{_compared(history)}"
    text += f" ({low} to {high}; detectable {judgement.detectable_ratio:.1%}){_clock(history)}"
    if history.confirmation is not None:
        text += f"; {history.confirmation.text}"
    if judgement.verdict == UNDECIDED or (judgement.verdict == REGRESSION and not history.fails):
        return _undecided(rule, subject, text, judgement)
    return _gate_line(rule, subject, FAIL if history.fails else PASS, text, judgement)


def _compared(history: HistoryJudgement) -> str:
    """Return which revisions the baseline really is: series that were not measured at each have others."""
    shas = [sha[:10] for sha in history.revisions if sha]
    if not shas:
        return ""
    text = f" {shas[0]}" if len(shas) == 1 else f", {shas[0]} to {shas[-1]}"
    count = "" if len(shas) == 1 or len(shas) == history.wanted_count else f", {counted(len(shas), 'revision')} of it"
    return f"{text}{count}{f'; {history.strayed[:10]} strays' if history.strayed else ''}"


def _clock(judgement: HistoryJudgement) -> str:
    """Return the part of a line on the clock."""
    if judgement.clock_ratio is None or abs(judgement.clock_ratio - 1) < TOLD_CLOCK_RATIO:
        return ""
    moved = f"clock {judgement.clock_ratio - 1:+.1%}, {judgement.plain.time_ratio - 1:+.1%} time with it"
    if judgement.share_known:
        return f"; at equal clocks: {moved}"
    return f"; {moved}, and how much of the clock shows in the time is not known: measure again at the usual clock"


def _against_bound(rule: GateRule, subject: GateSubject) -> GateLine:
    """Pass where even the upper end of the time's interval reaches the share, fail where not even the lower does."""
    if subject.bound_s is None:
        return _undecided(rule, subject, f"there is no bound of it on {subject.fields.get('target') or 'its device'}")
    time, least = estimate_of(subject.times_s), rule.least_ratio or 0.0
    if time.high_s < subject.bound_s:
        reason = f"{show(time.centre_s, 's')} is below its bound of {show(subject.bound_s, 's')}; find out why first"
        return _undecided(rule, subject, reason)
    text = f"{subject.bound_s / time.centre_s:.1%} of the speed of light, at least {least:.0%} wanted"
    return _within(rule, subject, (time.low_s, time.high_s), subject.bound_s / least, text)


def _against_prediction(rule: GateRule, subject: GateSubject) -> GateLine:
    if subject.predicted_s is None:
        return _undecided(rule, subject, "there is no prediction of it")
    time = estimate_of(subject.times_s)
    longer = time.centre_s / subject.predicted_s - 1
    text = f"{longer:+.1%} against its prediction, at most {rule.tolerance_ratio:+.0%} wanted"
    limit_s = subject.predicted_s * (1 + rule.tolerance_ratio)
    return _within(rule, subject, (time.low_s, time.high_s), limit_s, text)


def _within(rule: GateRule, subject: GateSubject, ends_s: tuple[float, float], limit_s: float, text: str) -> GateLine:
    low_s, high_s = ends_s
    if high_s <= limit_s:
        return _gate_line(rule, subject, PASS, text)
    if low_s > limit_s:
        return _gate_line(rule, subject, FAIL, text)
    return _undecided(rule, subject, f"{text}; {show(low_s, 's')} to {show(high_s, 's')} spans {show(limit_s, 's')}")


def _undecided(rule: GateRule, subject: GateSubject, text: str, judgement: Judgement | None = None) -> GateLine:
    """Return the line of an undecided rule; the policy chooses its exit code."""
    code = {"stop": INCONCLUSIVE_CODE, "pass": 0, "fail": SLOWER_CODE}[rule.inconclusive]
    return _gate_line(rule, subject, INCONCLUSIVE, text, judgement, code=code)


def _gate_line(
    rule: GateRule, subject: GateSubject, verdict: str, text: str, judgement: Judgement | None = None, *,
    code: int | None = None,
) -> GateLine:  # fmt: skip
    exit_code = {PASS: 0, FAIL: SLOWER_CODE}.get(verdict, 0) if code is None else code
    return GateLine(
        rule=rule.name, series=subject.series, verdict=verdict, exit_code=exit_code, text=text, judgement=judgement
    )


def baseline_of(rule: GateRule) -> str:
    """Return a description of a rule's baseline.

    >>> baseline_of(GateRule(name="r", baseline="rolling", window_count=5))
    'the 5 revisions before'
    """
    words = {"previous": "the revision before", "tag": f"{rule.tag}", "bound": "the bound", "prediction": "prediction"}
    return words.get(rule.baseline, f"the {rule.window_count} revisions before")
