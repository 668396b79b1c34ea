"""The device report: what is measured, in which order and time; what was taken so far can be kept at any moment."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from benchmarks.device import cases, sections, timer
from benchmarks.device.sections import BOUNDED, Known, tells_nothing
from nearpeak.api.measured_analysis import measure
from nearpeak.base.isolation import Ending, call_isolated
from nearpeak.core.runs.measurement import Measurement, Timing
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import label_of

SCHEMA_VERSION = 2
MOST_STOPS = 5
"""Cases that may stop a runner before any gave a row: then it is the runner's fault, and that of no case."""
MOST_TRIES = 3
"""Directed cases of an operator that are tried until one can tell a right result from a constant."""
SECONDS_S = 540.0
"""Time after which nothing new is begun, and within which what is under way has to end."""
LIMIT_S, LEAST_LIMIT_S = 60.0, 10.0
"""Time after which a case is given up, and the least that one which was begun is left."""
KEPT_EVERY_S = 10.0
"""Time after which what was measured since is kept, as the machine may be taken away."""
SHARES = {"roofs": 0.28, "launch": 0.3, "families": 0.56, "energy": 0.62, "every operator": 1.0}
"""Share of the whole time at which each part ends; what an earlier part leaves is a later one's."""
Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], object]


def device_report(
    runner: str, size: str = "full", operators: tuple[str, ...] = (), seconds: float = SECONDS_S, say: Say = print,
    keep: Keep = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Return the report of the device that `runner` runs on, as plain data.

    Args:
        size: `full` or `small`.
        operators: those whose results are checked; all by default.
        seconds: time after which cases are left out, and named.
        say: told what is under way.
        keep: given the report as far as it is, every few seconds once something is measured.
    """
    taken = Taken(runner=runner, size=size)
    clock = _Deadline(time.monotonic(), seconds, say)
    clock.keep = lambda: keep(_composed(taken, clock, part.faults))
    part = _Parts(say, clock)
    wanted = cases.roof_cases(size)
    large = [one for name, one in wanted.items() if name != "launch"]
    cold, hot = _timing(size, "cold"), _timing(size, "hot")
    taken.timer = _timer(runner, part)
    part("roofs", lambda: _measured(large, runner, cold, clock, taken.roofs))
    part("launch", lambda: _measured([wanted["launch"]], runner, hot, clock, taken.roofs))
    part("families", lambda: _measured(cases.family_cases(size), runner, cold, clock, taken.families))
    load = [wanted["product bf16"]]
    part("energy", lambda: _measured(load, runner, _long(size), clock, taken.energy, telemetry_hz=100.0))
    part("every operator", lambda: _checked(runner, operators, clock, taken))
    return _composed(taken, clock, part.faults, finished=True)


@dataclass(slots=True, kw_only=True)
class Taken:
    """What was measured so far; each list grows while its part is under way."""

    runner: str
    """What runs the cases."""
    size: str
    """Of which size they are."""
    timer: dict[str, Any] | None = None
    """What the clock says; none where it could not be read."""
    roofs: list[Measurement] = field(default_factory=list)
    """Cases that come near to roofs, and the launch."""
    families: list[Measurement] = field(default_factory=list)
    """Cases of each family of predictions."""
    energy: list[Measurement] = field(default_factory=list)
    """The lasting load beside the sensors."""
    known: list[Known] = field(default_factory=list)
    """Each operator with its case."""
    operators: list[Measurement] = field(default_factory=list)
    """What became of these cases."""

    @property
    def every(self) -> list[Measurement]:
        """All measurements."""
        return [*self.roofs, *self.families, *self.energy, *self.operators]


def _composed(taken: Taken, clock: "_Deadline", said: list[str], *, finished: bool = False) -> dict[str, Any]:
    """Return the report of what was taken; a section that raises is a fault, and the others stand."""
    table = _Tables()
    timed = [one for one in (*taken.roofs, *taken.families, *taken.operators) if one.outcome in BOUNDED]
    none = {"timed_count": len(timed), "bounded_count": 0, "below": [], "cases": [], "nearest_ratio": None}
    wanted, last = cases.roof_cases(taken.size), {one.case: one for one in taken.operators}
    found: dict[str, Any] = {
        "timer": taken.timer,
        "roofs": table("roofs", lambda: list(sections.roofs(wanted, taken.roofs)), []),
        "bounds": table("bounds", lambda: sections.bounds(timed), none),
        "predictions": table("predictions", lambda: sections.predictions([*taken.roofs, *taken.families]), []),
        "operators": table("operators", lambda: list(sections.operators(taken.known, list(last.values()))), []),
        "energy": table("energy", lambda: sections.energy(taken.energy), {"meters": [], "note": "unreadable"}),
    }
    environment = next((one.environment for one in taken.every if one.environment), None)
    clocked = timer.faults(taken.timer) if taken.timer else []
    wrong = sections.faults(taken.every, found["bounds"]["below"])
    return {
        "schema": SCHEMA_VERSION, "runner": taken.runner, "size": taken.size, "finished": finished,
        "date": datetime.now(tz=UTC).date().isoformat(), "took_s": clock.spent_s(),
        "target": next((one.target for one in taken.every if one.samples_s), ""),
        "environment": environment.record() if environment else None, "sections": found,
        "not_run": list(clock.left_out), "faults": [*said, *clock.faults, *table.faults, *clocked, *wrong],
    }  # fmt: skip


Made = TypeVar("Made")


class _Tables:
    """Sections one after the other: one that raises is a fault, and gives what it is called with."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def __call__(self, name: str, make: Callable[[], Made], otherwise: Made) -> Made:
        """Return what `make` gives, or `otherwise` where it raises."""
        try:
            return make()
        except Exception as error:  # whatever it is, the report says so
            self.faults.append(_said(f"table of {name}", error))
            return otherwise


class _Parts:
    """Parts of the measuring one after the other: one that raises is a fault, and the others go on."""

    def __init__(self, say: Say, clock: "_Deadline") -> None:
        self._say, self._clock = say, clock
        self.faults: list[str] = []

    def __call__(self, name: str, measured: Callable[[], None]) -> None:
        """Measure in the part's share of the time."""
        self._say(name)
        self._clock.share_ratio = SHARES[name]
        try:
            measured()
        except Exception as error:  # whatever it is, the report says so
            self.faults.append(_said(name, error))
        self._clock.keep()


def _said(where: str, error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{where}: {type(error).__name__}: {lines[0][:300]}"


def _checked(runner: str, operators: tuple[str, ...], clock: "_Deadline", taken: Taken) -> None:
    """Measure each operator's case; one that tells nothing makes way for the next one."""
    timing = Timing(cache="hot", budget_s=0.05, recorded=False)
    taken.known[:] = cases.operator_cases(operators)
    wanted = tuple(name for name, _, _ in taken.known)
    for place in range(MOST_TRIES):
        rows = {row[0]: row for row in cases.operator_cases(wanted, place)} if wanted else {}
        taken.known[:] = [rows.get(row[0], row) for row in taken.known]
        small, found = [one for _, one, _ in rows.values() if one is not None], list[Measurement]()
        _measured(small, runner, timing, clock, taken.operators, found)
        nothing = {one.case.op for one in found if tells_nothing(one)}
        wanted = tuple(name for name in rows if name in nothing)


class _Deadline:
    """When nothing new is begun, what was left out for it, and which cases could not even be a row."""

    def __init__(self, begun_s: float, seconds: float, say: Say) -> None:
        self._begun_s, self._seconds, self.say = begun_s, seconds, say
        self._kept_s = begun_s
        self.share_ratio = 1.0
        self.left_out: list[str] = []
        self.faults: list[str] = []
        self.keep: Callable[[], object] = lambda: None

    def spent_s(self) -> float:
        """Return the time since the beginning."""
        return time.monotonic() - self._begun_s

    def left_s(self) -> float:
        """Return how much of its time the part that is under way has left."""
        return self.share_ratio * self._seconds - self.spent_s()

    def admits(self, one: Case) -> bool:
        """Say whether there is time for a case; one that there is none for is noted."""
        if self.left_s() > 0:
            return True
        self.left_out.append(label_of(one))
        return False

    def limited(self, timing: Timing) -> Timing:
        """Return the timing of a case that ends with its part."""
        return replace(timing, limit_s=min(LIMIT_S, max(LEAST_LIMIT_S, self.left_s())))

    def kept(self) -> None:
        """Keep what was measured, where that is some time ago."""
        if time.monotonic() - self._kept_s >= KEPT_EVERY_S:
            self.keep()
            self._kept_s = time.monotonic()


def _timing(size: str, cache: str) -> Timing:
    return Timing(cache=cache, validate=False, budget_s=0.1 if size == "small" else 0.5)


def _long(size: str) -> Timing:
    """Return the timing of a load that lasts: a power meter needs a hundred of its periods."""
    return Timing(cache="hot", validate=False, budget_s=0.5 if size == "small" else 10.0, precision_ratio=0.0)


def _measured(
    wanted: Iterable[Case], runner: str, timing: Timing, clock: _Deadline, *into: list[Measurement],
    telemetry_hz: float | None = None,
) -> None:  # fmt: skip
    """Add the measurements that there was time for; cases are asked for one at a time, so that time can run out."""
    gave_a_row = False
    for case in wanted:
        if not clock.admits(case):
            continue
        try:
            for one in measure(case, runner, clock.limited(timing), telemetry_hz=telemetry_hz):
                clock.say(f"  {label_of(case)}: {one.outcome.value}")
                for rows in into:
                    rows.append(one)
                gave_a_row = True
        except Exception as error:  # a case that stops the runner is a fault, and the next one is asked for
            clock.faults.append(_said(label_of(case), error))
            if not gave_a_row and len(clock.faults) > MOST_STOPS:
                raise
        clock.kept()


def _timer(runner: str, part: _Parts) -> dict[str, Any] | None:
    """Return what the clock says, from a process of its own; none where that failed.

    Raises:
        NearpeakError: the runner cannot run here.
    """
    ending = call_isolated(
        "benchmarks.device.timer:facts", {"runner": runner}, timeout_s=LIMIT_S, memory_bytes=None, preload=("torch",)
    )
    if ending.verdict == "error":
        raise NearpeakError(f"device report: runner {runner}: its clock could not be read: {ending.value}")
    if ending.verdict != "result":
        part.faults.append(f"timer: {_ended(ending)}")
        return None
    found: dict[str, Any] = ending.value
    return found


def _ended(ending: Ending) -> str:
    """Return how the process that read the clock ended."""
    if ending.verdict == "timeout":
        return f"it did not end within {LIMIT_S:g} s"
    last = ending.output.strip().splitlines()[-1:]
    return ": ".join([f"it {ending.verdict}", str(ending.value)[:300], *last])
