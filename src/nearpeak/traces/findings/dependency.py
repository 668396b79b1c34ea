"""Late starts of work that was launched in time: gaps at events and between kernels."""

from collections.abc import Iterator
from statistics import quantiles

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.finding_report import Abstained, Change, TraceFinding
from nearpeak.core.traces.timeline import Idle
from nearpeak.traces.executed.queue_replay import begun_ns
from nearpeak.traces.finding_rule import Rule
from nearpeak.traces.finding_scene import Scene, state_if
from nearpeak.traces.step_terms import idle_name
from nearpeak.units import one_or_several

ID = "idle.dependency"
LEAST_GAP_NS = 1_000
"""Gap between kernels of one stream whose queue is full, where the trace shows too few of its own."""
_FEW = 12
_QUEUE = 0.5
"""Part of the idle time that must be in the queue."""


def look(scene: Scene) -> Iterator[TraceFinding | Abstained]:
    """Let work begin as soon after its inputs as work usually does that follows on its own stream."""
    timeline = scene.executed.timeline
    if timeline.idle_by_cause_ns.get(Idle.QUEUE, 0) < _QUEUE * timeline.idle_ns:
        return
    gaps = _gaps(scene)
    following = [gap for gap, follows in gaps.values() if follows]  # a quarter of these have the usual gap at most
    usual = LEAST_GAP_NS if len(following) < _FEW else max(LEAST_GAP_NS, int(quantiles(following, n=4)[0]))
    late = {place: gap for place, (gap, _) in gaps.items() if gap > usual}
    if not late:
        return
    places = sorted(late)
    joined = [place for place in places if scene.items[place].after]
    changes = [Change(place, lag_ns=scene.items[place].lag_ns - (gap - usual)) for place, gap in late.items()]
    closed = [Change(place, lag_ns=scene.items[place].lag_ns - gap) for place, (gap, _) in gaps.items()]
    steps, spent_s = scene.executed.step_count, sum(late.values()) * 1e-9 / scene.executed.step_count
    graphs = any(item.kind == "graph" for item in scene.items)
    where = "after events of other streams" if 2 * len(joined) > len(places) else "after the previous kernel"
    yield from scene.finding(
        ID,
        f"{one_or_several(len(places) / steps, 'kernel or copy of a step starts', 'kernels or copies of a step start')}"
        f" {spent_s * steps / len(places) * 1e6:.1f} µs late {where},"
        " although launched in time",
        changes,
        high_s=scene.gain_s(closed),
        evidence=[
            scene.evidence("late starts per step", len(places) / steps, "", places),
            scene.evidence("of them after an event of another stream", len(joined) / steps, "", joined),
            scene.evidence("gaps per step", spent_s, "s"),
            scene.evidence("usual gap after a kernel of the same stream", usual * 1e-9, "s"),
            scene.evidence(
                "idle time in the queue", timeline.idle_by_cause_ns.get(Idle.QUEUE, 0) / max(1, timeline.idle_ns), ""
            ),
        ],
        counter=[
            ("a graph holds the work already", state_if(graphs)),
            ("other processes use the device meanwhile", "not observable"),
        ],
        falsifier="put the chain on one stream, or capture it in a graph: the gaps should fall to the usual one",
    )


def _gaps(scene: Scene) -> dict[int, tuple[int, bool]]:
    """Return by item what passes from the end of all work before to its start, where its call was early enough.

    Beside it: whether the work before was on the same stream, and no event stood between.
    """
    gaps: dict[int, tuple[int, bool]] = {}
    ended, lane = 0, NOTHING
    for place, begun in enumerate(begun_ns(scene.items, scene.executed.latency_ns)):
        if begun is None:
            continue
        item, gap = scene.items[place], begun.start_ns - max(ended, begun.called_ns)
        if ended and begun.called_ns <= ended and 0 < gap <= max(0, item.lag_ns):
            gaps[place] = gap, item.lane == lane and not item.after
        ended, lane = max(ended, begun.end_ns), item.lane
    return gaps


RULE = Rule(id=ID, look=look, judges=(idle_name(Idle.QUEUE),), needs=("host", "links", "work"))
