"""Shared context of the finding rules: steps, gains by replay, wording of findings and abstentions."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from statistics import median

from nearpeak.core.traces.executed_run import NOTHING, Executed, ExecutedOperator, QueueItem
from nearpeak.core.traces.finding_report import Abstained, Change, Counter, Evidence, TraceFinding
from nearpeak.core.traces.timeline import HOST_CAUSES
from nearpeak.traces.executed.queue_replay import lead_ns, merged, replayed_ns

LEAST_RATIO = 0.05
"""Part of a step that a finding must gain."""
_SHOWN = 8
"""Events named as evidence."""
_SINGLE = 0.3
"""Part of the window in one call from which on it is a first use, not a step."""
_REPLAY_RATIO = 0.2
"""How far the replay may be from what was seen."""
_HALVINGS = 12
"""Halvings of the interval in which the part of host times lies that the profiler did not add."""
_REMEDY_RATIO = 0.01
"""Part of a step below which a remedy is not worth a line."""
DEVICE_SAVED = "device time saved"
"""Part of a gain."""
_TERMS = {
    "device": DEVICE_SAVED, "host": "host time saved",
    "starts": "start delays on free streams saved",
}  # fmt: skip
_HIDDEN = "of that, hidden behind the host or other streams"
_WAITING = "waiting of one queue for the other, saved with it"
_WINDOW = (
    (" of a step", " of the window"), (" in a step", " in the window"), (" of each step", " of the window"),
    (" in each step", " in the window"), (" per step", " in the window"), (" in every step", " throughout"),
)  # fmt: skip


class Scene:
    """The steps of a trace, with the queries and wording that finding rules share."""

    def __init__(self, executed: Executed) -> None:
        """Replay the steps as recorded."""
        self.executed = executed
        self.items, self.host_ratio = unrecorded(executed)
        self.base_ns = replayed_ns(self.items, executed.latency_ns)

    @property
    def recorded_step_s(self) -> float:
        """Return the mean length of a step as it was recorded."""
        return self.executed.window_ns * 1e-9 / self.executed.step_count

    @property
    def step_s(self) -> float:
        """Return the mean length of a step; without the profiler where that was measured and is shorter."""
        return min(self.recorded_step_s, self.executed.unprofiled_step_s or self.recorded_step_s)

    def gain_s(self, changes: Iterable[Change], on_top_of: Iterable[Change] = ()) -> float:
        """Return the gain of the changes per step, on top of other changes."""
        before = tuple(on_top_of)
        base = replayed_ns(self.items, self.executed.latency_ns, merged(before, self.items)) if before else self.base_ns
        after = replayed_ns(self.items, self.executed.latency_ns, merged((*before, *changes), self.items))
        return max(0, base - after) * 1e-9 / self.executed.step_count

    def operator(self, item: QueueItem) -> ExecutedOperator | None:
        """Return the operator of an item; none where none is known."""
        return None if item.operator == NOTHING else self.executed.operators[item.operator]

    def family(self, item: QueueItem) -> str:
        """Return what the kernel of an item computes; empty for everything else."""
        return "" if item.kernel == NOTHING else self.executed.kernels[item.kernel].family

    def unit(self, item: QueueItem) -> str:
        """Return the unit on which the kernel of an item forms products."""
        return "" if item.kernel == NOTHING else self.executed.kernels[item.kernel].unit

    def where(self, test: Callable[[QueueItem], bool]) -> list[int]:
        """Return the places of the items that pass `test`."""
        return [index for index, item in enumerate(self.items) if test(item)]

    def device_s(self, places: Iterable[int]) -> float:
        """Return the device time of items in a step."""
        return sum(self.items[place].device_ns for place in places) * 1e-9 / self.executed.step_count

    def dropped(self, places: Iterable[int]) -> tuple[Change, ...]:
        """Return the changes that remove items; host time with a known cause stays.

        Where an operator keeps other kernels, the host time before its first one stays too, but for what a further
        launch of that operator costs.
        """
        gone = set(places)
        return tuple(
            Change(
                place, before_ns=self._host_left(place, gone), call_ns=0, device_ns=0,
                lag_ns=min(0, self.items[place].lag_ns), waits=NOTHING,
            )
            for place in sorted(gone)
        )  # fmt: skip

    def _host_left(self, place: int, gone: set[int]) -> int:
        """Return the host time before a call that stays where its work goes."""
        item = self.items[place]
        named = sum(part for _, part in item.parts)
        if item.operator == NOTHING or self._goes_on(place - 1, item):
            return named
        end = place + 1
        while self._goes_on(end, item):
            end += 1
        if gone.issuperset(range(place, end)):
            return named
        further = median(self.items[other].before_ns for other in range(place + 1, end))
        return max(named, item.before_ns - min(item.before_ns, int(further)))

    def _goes_on(self, place: int, item: QueueItem) -> bool:
        """Say whether there is an item at a place that belongs to the operator of another."""
        if not 0 <= place < len(self.items):
            return False
        other = self.items[place]
        return other.operator == item.operator and other.step == item.step

    def without_part(self, name: str) -> tuple[Change, ...]:
        """Return the changes that remove the host time of a known cause."""
        return tuple(
            Change(place, before_ns=item.before_ns - sum(part for cause, part in item.parts if cause == name))
            for place, item in enumerate(self.items)
            if any(cause == name for cause, _ in item.parts)
        )

    @cached_property
    def framework(self) -> str:
        """Return the framework whose operators or kernels occur; empty where unknown."""
        names = [source.name for source in self.executed.operators] + [source.name for source in self.executed.kernels]
        return "pytorch" if any(name.startswith("aten::") or "at::native" in name for name in names) else ""

    def advice(self, general: str, pytorch: str) -> str:
        """Return the advice, with that for PyTorch where the trace shows its operators."""
        return f"{general}; in PyTorch: {pytorch}" if self.framework == "pytorch" else general

    def part_s(self, name: str) -> float:
        """Return the host time per step of a known cause."""
        return (
            sum(part for item in self.items for cause, part in item.parts if cause == name)
            * 1e-9
            / self.executed.step_count
        )

    def idle_ratio(self) -> float:
        """Return the idle part of the window, less what the profiler added where that is known."""
        busy_s = self.executed.timeline.busy_ns * 1e-9 / self.executed.step_count
        return max(0.0, 1 - busy_s / self.step_s) if self.step_s else 0.0

    def host_wait_ratio(self) -> float:
        """Return the part of the idle time in which the device waited for its host."""
        timeline = self.executed.timeline
        waits = sum(timeline.idle_by_cause_ns.get(cause, 0) for cause in HOST_CAUSES)
        return waits / max(1, timeline.idle_ns)

    @cached_property
    def usual_ratio(self) -> float:
        """Return the usual ratio of measured to expected time in this trace; 1 where few operators are known.

        What rules of their own explain is left out: products off the matrix units and products with odd extents.
        """
        known: list[tuple[float, int]] = []
        for operator in self.executed.operators:
            units = {kernel.unit for kernel in self.executed.kernels if kernel.name in operator.kernels}
            odd = operator.padded_s is not None or (operator.family in ("gemm", "conv") and "vector" in units)
            if operator.predicted_s and operator.measured_s > 5e-6 and not odd:
                known.append((operator.measured_s / operator.predicted_s, operator.device_ns))
        if len(known) < 3:
            return 1.0
        return min(1.6, max(0.7, median(ratio for ratio, _ in known)))

    @cached_property
    def unblocked(self) -> tuple[Change, ...]:
        """Return the changes after which no call waits for the device."""
        return tuple(
            Change(place, waits=NOTHING, call_ns=min(item.call_ns, 3_000))
            for place, item in enumerate(self.items)
            if item.waits != NOTHING and not self.ends_step(place)
        )

    def ends_step(self, place: int) -> bool:
        """Say whether an item is the last of its step: a wait there ends the step anyway."""
        step = self.items[place].step
        later = (item for item in self.items[place + 1 :] if item.step == step)
        return not any(item.event != NOTHING for item in later)

    def refused(self) -> str:
        """Return why the trace allows no conclusion; empty where it allows one."""
        missing, items = self.executed.missing, self.items
        longest = max((max(item.before_ns, item.call_ns) for item in items), default=0)
        if "steps" in missing and self.idle_ratio() > 0.5 and longest > _SINGLE * self.executed.window_ns:
            return "one call takes most of the window, as first uses do, and no steady step was recorded"
        lead = lead_ns(items)
        window = self.executed.window_ns
        recorded = self.base_ns if self.host_ratio == 1 else replayed_ns(self.executed.items, self.executed.latency_ns)
        if abs(recorded - lead - window) > _REPLAY_RATIO * window + 10_000:
            return "the recorded calls do not explain the times of host and device"
        return ""

    def abstention(self, identifier: str, *needs: str) -> Abstained | None:
        """Return the abstention of a rule whose evidence the trace lacks; none where it has all."""
        reasons = [self.executed.missing[need] for need in needs if need in self.executed.missing]
        return Abstained(id=identifier, reason="; ".join(reasons)) if reasons else None

    @property
    def more_steps(self) -> str:
        """Return how to see more steps than were looked into."""
        recorded, seen = len(self.executed.step_ns), self.executed.step_count
        if recorded > seen:
            return f"{recorded} were recorded, and more than {seen} of them take too long to replay"
        return "record more steps"

    def worth(self, gain_s: float) -> bool:
        """Say whether a gain is large enough to report."""
        return gain_s >= LEAST_RATIO * self.step_s

    def evidence(self, what: str, value: float, unit: str, places: Sequence[int] = ()) -> Evidence:
        """Return a figure with the first events behind it."""
        rows = [
            self.items[place].event if self.items[place].event != NOTHING else self.items[place].call
            for place in places
        ]
        return Evidence(what=what, value=value, unit=unit, events=tuple(row for row in rows if row != NOTHING)[:_SHOWN])

    def finding(
        self, identifier: str, claim: str, changes: Iterable[Change], *, evidence: Sequence[Evidence], falsifier: str,
        counter: Sequence[tuple[str, str]] = (), key: str = "", high_s: float | None = None, scope: str = "global",
        gain_s: float | None = None, remedies: Sequence[tuple[str, float]] = (), remedy_of: str = "",
    ) -> list[TraceFinding]:  # fmt: skip
        """Return the finding, alone in a list, if it gains enough; else nothing.

        The low end is what half of the changes gain, the high end `high_s`, or the time that they concern.
        """
        all_changes = merged(tuple(changes), self.items)
        gain = self.gain_s(all_changes) if gain_s is None else gain_s
        if not self.worth(gain):
            return []
        gain = min(gain, self.step_s)
        low = min(gain, self.gain_s(all_changes[::2]))
        high = max(gain, min(self.step_s, gain * 1.1 if high_s is None else high_s))
        states = tuple(Counter(what=what, state=state) for what, state in counter)
        return [
            TraceFinding(
                id=identifier, key=key, claim=self.phrased(claim), evidence=tuple(evidence), counter=states,
                gain_s=gain, gain_low_s=low, gain_high_s=high, scope=scope, method="replay", falsifier=falsifier,
                changes=all_changes, remedies=tuple(row for row in remedies if row[1] >= _REMEDY_RATIO * self.step_s),
                terms=self.terms(all_changes, gain), remedy_of=remedy_of,
            )
        ]  # fmt: skip

    def terms(self, changes: Iterable[Change], gain_s: float) -> tuple[tuple[str, float], ...]:
        """Return the terms of a gain: the time removed from each queue, and the time that another queue hides."""
        sums = {"device": 0, "host": 0, "starts": 0}
        for change in changes:
            item = self.items[change.item]
            sums["device"] += _less(item.device_ns, change.device_ns)
            sums["host"] += _less(item.before_ns, change.before_ns) + _less(item.call_ns, change.call_ns)
            sums["starts"] += _less(item.lag_ns, change.lag_ns)
        parts = [(_TERMS[name], time * 1e-9 / self.executed.step_count) for name, time in sums.items() if time]
        rest = gain_s - sum(time for _, time in parts)
        if abs(rest) >= 0.5e-9:
            parts.append((_HIDDEN if rest < 0 else _WAITING, rest))
        return tuple(parts)

    def phrased(self, claim: str) -> str:
        """Return a claim about steps, or about the window where no steps are marked."""
        if self.executed.steps_found:
            return claim
        for of_steps, of_window in _WINDOW:
            claim = claim.replace(of_steps, of_window)
        return claim


def unrecorded(executed: Executed) -> tuple[tuple[QueueItem, ...], float]:
    """Return the items with host times scaled to those without the profiler, and the scale.

    All host times shrink alike until a step takes what it takes without the profiler. Where the device alone takes
    longer, the recorded ones stand, and the part is 0.
    """
    plain_s, items = executed.unprofiled_step_s, executed.items
    if plain_s is None or plain_s * executed.step_count >= executed.window_ns * 1e-9:
        return items, 1.0
    wanted = plain_s * executed.step_count * 1e9 + lead_ns(items)
    if replayed_ns(_scaled(items, 0.0), executed.latency_ns) > wanted:
        return items, 0.0
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        longer = replayed_ns(_scaled(items, middle), executed.latency_ns) > wanted
        low, high = (low, middle) if longer else (middle, high)
    return _scaled(items, low), low


def _scaled(items: Iterable[QueueItem], ratio: float) -> tuple[QueueItem, ...]:
    return tuple(
        item._replace(
            before_ns=int(item.before_ns * ratio), call_ns=int(item.call_ns * ratio),
            parts=tuple((name, int(time * ratio)) for name, time in item.parts),
        )
        for item in items
    )  # fmt: skip


def _less(before: int, after: int | None) -> int:
    return 0 if after is None else before - after


def state_if(condition: bool) -> str:
    """Return the state of counter-evidence."""
    return "found" if condition else "not found"
