"""Causes of waiting streams, and of missing concurrency between two streams."""

from collections.abc import Iterable, Sequence

from nearpeak.core.answers.simulation import HOLDS, Overlap, Run, Span
from nearpeak.simulation.machine_units import PS_PER_S
from nearpeak.units import show

_TAKEN = ("rank", "blocks", "threads", "registers", "shared", "cluster", "engine", "turn", "evicted")
"""Reasons that other streams cause."""


def reasons(name: str, run: Run) -> tuple[str, ...]:
    """Return the causes of late starts of a stream with the lost time, the longest first."""
    waited: dict[str, int] = {}
    for span in run.spans:
        if span.queue == name:
            for why, lost in span.held_ps.items():
                text = _text(why, span, run)
                waited[text] = waited.get(text, 0) + lost
    order = sorted(waited, key=lambda text: -waited[text])
    return tuple(f"{text} ({show(waited[text] / PS_PER_S, 's')})" for text in order)


def _text(why: str, span: Span, run: Run) -> str:
    """Return a reason in words, with the streams whose work ran meanwhile."""
    if why not in _TAKEN:
        return HOLDS[why]
    last = span.end_ps if why == "evicted" else span.start_ps
    names = sorted({
        rival.queue for rival in run.spans
        if rival.queue != span.queue and rival.start_ps < last and rival.end_ps > span.ready_ps
    })  # fmt: skip
    if not names:
        return f"{HOLDS[why]}: its own stream was behind"
    return f"{HOLDS[why]}: {'blocks' if why not in ('engine', 'turn', 'evicted') else 'work'} of {', '.join(names)} ran"


def overlaps(run: Run, names: Sequence[str], *, by_turns: bool = False) -> tuple[Overlap, ...]:
    """Return for each two streams how long both had work running, and what kept them from more.

    Args:
        by_turns: whether one of them runs at a time, while the state of the other is saved.
    """
    times = {name: _joined(span for span in run.spans if span.queue == name) for name in names}
    return tuple(
        _overlap(run, first, second, times[first], times[second], by_turns=by_turns)
        for place, first in enumerate(names) for second in names[place + 1 :]
    )  # fmt: skip


Times = list[tuple[int, int]]


def _joined(spans: Iterable[Span]) -> Times:
    """Return when any of several spans ran, in order."""
    joined: Times = []
    for start, end in sorted((span.start_ps, span.end_ps) for span in spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _overlap(run: Run, first: str, second: str, first_times: Times, second_times: Times, *, by_turns: bool) -> Overlap:
    both = i = j = 0
    while i < len(first_times) and j < len(second_times):
        both += max(min(first_times[i][1], second_times[j][1]) - max(first_times[i][0], second_times[j][0]), 0)
        if first_times[i][1] <= second_times[j][1]:
            i += 1
        else:
            j += 1
    most = min(sum(end - start for start, end in first_times), sum(end - start for start, end in second_times))
    return Overlap(
        first=first, second=second, both_s=0.0 if by_turns else both / PS_PER_S, most_s=most / PS_PER_S,
        reason=HOLDS["turn"] if by_turns else "" if both > 0.9 * most else _reason(run, first, second, most - both),
    )  # fmt: skip


def _reason(run: Run, first: str, second: str, apart_ps: int) -> str:
    """Return the main cause of missing overlap of two streams, if waiting explains half of it."""
    lost: dict[str, int] = {}
    for span in run.spans:
        if span.queue in (first, second):
            for why, time in span.held_ps.items():
                lost[why] = lost.get(why, 0) + time
    if sum(lost.values()) > 0.5 * apart_ps:
        return HOLDS[max(lost, key=lambda why: lost[why])]
    return "they were not there at the same time: one had ended when the other arrived"
