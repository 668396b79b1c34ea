"""The sections of a device report, each from what was measured; what could not be stands there with its reason."""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from math import exp, log
from typing import Any, TypeVar

from benchmarks.device import cases, timer
from nearpeak.core.case import Case
from nearpeak.core.energy import energies_of
from nearpeak.core.measurement import TIMED, Measurement, Outcome, Timing
from nearpeak.errors import NearpeakError
from nearpeak.isolation import call_isolated
from nearpeak.measuring import bound_s, known_target, least_s, measure
from nearpeak.ops import label_of, work_of
from nearpeak.targets import target_of

SCHEMA_VERSION = 1
MOST_STOPS = 5
"""Cases that may stop a runner before any gave a row: then it is the runner's fault, and that of no case."""
MOST_TRIES = 3
"""Directed cases of an operator that are tried until one can tell a right result from a constant."""
SECONDS_S = 540.0
"""Time after which nothing new is begun, and within which what is under way has to end."""
LIMIT_S, LEAST_LIMIT_S = 60.0, 10.0
"""Time after which a case is given up, and the least that one which was begun is left."""
SHARES = {"roofs": 0.2, "launch": 0.2, "families": 0.4, "energy": 0.45, "every operator": 1.0}
"""Share of the whole time at which each part ends; what an earlier part leaves is a later one's."""
WRONG = frozenset({Outcome.INCORRECT, Outcome.CRASH, Outcome.SUSPECT_FAST, Outcome.BELOW_BOUND, Outcome.TIMEOUT})
"""Outcomes that are faults of nearpeak, of the device or of its software; the others only say what is not there."""
BOUNDED = TIMED | {Outcome.BELOW_BOUND, Outcome.THROTTLED}
"""Outcomes whose best sample is held against the bound: a clock that fell makes no sample shorter."""
Say = Callable[[str], None]


def device_report(
    runner: str, size: str = "full", operators: tuple[str, ...] = (), seconds: float = SECONDS_S, say: Say = print
) -> dict[str, Any]:
    """Return the report of the device that `runner` runs on, as plain data.

    Args:
        size: `full` or `small`.
        operators: those whose results are checked; all by default.
        seconds: time after which cases are left out, and named.
        say: told what is under way.
    """
    begun_s = time.monotonic()
    clock = _Deadline(begun_s, seconds, say)
    part = _Parts(say, clock)
    wanted = cases.roof_cases(size)
    large = [one for name, one in wanted.items() if name != "launch"]
    cold, hot = _timing(size, "cold"), _timing(size, "hot")
    sections: dict[str, Any] = {"timer": _timer(runner, part)}
    roofs = part("roofs", lambda: _measured(large, runner, cold, clock), [])
    roofs += part("launch", lambda: _measured([wanted["launch"]], runner, hot, clock), [])
    families = part("families", lambda: _measured(cases.family_cases(size), runner, cold, clock), [])
    load = [wanted["product bf16"]]
    energy = part("energy", lambda: _measured(load, runner, _long(size), clock, telemetry_hz=100.0), [])
    known, operator_rows = part("every operator", lambda: _checked(runner, operators, clock), ([], []))
    timed = [one for one in (*roofs, *families, *operator_rows) if one.outcome in BOUNDED]
    none = {"timed_count": len(timed), "bounded_count": 0, "below": [], "nearest_ratio": None}
    sections |= {
        "roofs": part("table of roofs", lambda: list(_roofs(wanted, roofs)), []),
        "bounds": part("bounds", lambda: _bounds(timed), none),
        "predictions": part("predictions", lambda: _predictions([*roofs, *families]), []),
        "operators": part("table of operators", lambda: list(_operators(known, operator_rows)), []),
        "energy": part("meters", lambda: _energy(energy), {"meters": [], "note": "its values could not be read"}),
    }
    every = [*roofs, *families, *energy, *operator_rows]
    environment = next((one.environment for one in every if one.environment), None)
    clocked = timer.faults(sections["timer"]) if sections["timer"] else []
    return {
        "schema": SCHEMA_VERSION, "runner": runner, "size": size, "date": datetime.now(tz=UTC).date().isoformat(),
        "target": next((one.target for one in every if one.samples_s), ""), "took_s": time.monotonic() - begun_s,
        "environment": environment.record() if environment else None, "sections": sections,
        "not_run": clock.left_out, "faults": [*part.faults, *clock.faults, *clocked, *_faults(every, sections)],
    }  # fmt: skip


Made = TypeVar("Made")


class _Parts:
    """Parts of the report one after the other: one that raises is a fault, and the others go on."""

    def __init__(self, say: Say, clock: "_Deadline") -> None:
        self._say, self._clock = say, clock
        self.faults: list[str] = []

    def __call__(self, name: str, make: Callable[[], Made], otherwise: Made) -> Made:
        """Return what `make` gives, or `otherwise` where it raises."""
        self._say(name)
        self._clock.share_ratio = SHARES.get(name, 1.0)
        try:
            return make()
        except Exception as error:  # whatever it is, the report says so
            self.faults.append(_said(name, error))
            return otherwise


def _said(where: str, error: Exception) -> str:
    lines = str(error).splitlines() or [""]
    return f"{where}: {type(error).__name__}: {lines[0][:300]}"


def _checked(
    runner: str, operators: tuple[str, ...], clock: "_Deadline"
) -> tuple[list[tuple[str, Case | None, str]], list[Measurement]]:
    """Return each operator's case and what became of it; a case that tells nothing makes way for the next one."""
    timing = Timing(cache="hot", budget_s=0.05)
    known = {row[0]: row for row in cases.operator_cases(operators)}
    found: dict[str, Measurement] = {}
    wanted = tuple(known)
    for place in range(MOST_TRIES):
        rows = {name: row for name, *row in cases.operator_cases(wanted, place)} if wanted else {}
        known |= {name: (name, *row) for name, row in rows.items()}
        small = [one for one, _ in rows.values() if one is not None]
        found |= {one.case.op: one for one in _measured(small, runner, timing, clock)}
        wanted = tuple(name for name in rows if name in found and _tells_nothing(found[name]))
    return list(known.values()), list(found.values())


def _tells_nothing(found: Measurement) -> bool:
    return found.validation is not None and found.validation.status == "DEGENERATE_CASE"


class _Deadline:
    """When nothing new is begun, what was left out for it, and which cases could not even be a row."""

    def __init__(self, begun_s: float, seconds: float, say: Say) -> None:
        self._begun_s, self._seconds, self.say = begun_s, seconds, say
        self.share_ratio = 1.0
        self.left_out: list[str] = []
        self.faults: list[str] = []

    def left_s(self) -> float:
        """Return how much of its time the part that is under way has left."""
        return self._begun_s + self.share_ratio * self._seconds - time.monotonic()

    def admits(self, one: Case) -> bool:
        """Say whether there is time for a case; one that there is none for is noted."""
        if self.left_s() > 0:
            return True
        self.left_out.append(label_of(one))
        return False

    def limited(self, timing: Timing) -> Timing:
        """Return the timing of a case that ends with its part."""
        return replace(timing, limit_s=min(LIMIT_S, max(LEAST_LIMIT_S, self.left_s())))


def _timing(size: str, cache: str) -> Timing:
    return Timing(cache=cache, validate=False, budget_s=0.1 if size == "small" else 0.5)


def _long(size: str) -> Timing:
    """Return the timing of a load that lasts: a power meter needs a hundred of its periods."""
    return Timing(cache="hot", validate=False, budget_s=0.5 if size == "small" else 10.0, precision_ratio=0.0)


def _measured(
    wanted: Iterable[Case], runner: str, timing: Timing, clock: _Deadline, telemetry_hz: float | None = None
) -> list[Measurement]:
    """Return the measurements that there was time for; cases are asked for one at a time, so that time can run out."""
    found: list[Measurement] = []
    for case in wanted:
        if not clock.admits(case):
            continue
        try:
            for one in measure(case, runner, clock.limited(timing), telemetry_hz=telemetry_hz):
                clock.say(f"  {label_of(case)}: {one.outcome.value}")
                found.append(one)
        except Exception as error:  # a case that stops the runner is a fault, and the next one is asked for
            clock.faults.append(_said(label_of(case), error))
            if not found and len(clock.faults) > MOST_STOPS:
                raise
    return found


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
        part.faults.append(f"timer: it {ending.verdict}: {str(ending.value)[:300]}")
        return None
    found: dict[str, Any] = ending.value
    return found


def _roofs(wanted: dict[str, Case], measured: list[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield each roof: rate of the best sample beside the rate that the bound permits."""
    taken = {one.case: one for one in measured}
    for name, one in wanted.items():
        found = taken.get(one)
        row: dict[str, Any] = {"roof": name, "case": label_of(one), "outcome": "not run", "note": ""}
        if found is not None:
            row |= {"outcome": found.outcome.value, "note": found.note}
        if found is not None and found.samples_s:
            row |= _launch(found) if name == "launch" else _rate(found, of_flop=name.startswith("product"))
        yield row


def _launch(found: Measurement) -> dict[str, Any]:
    """Return the time of a call that does next to nothing, beside the floor that the device file states."""
    device = known_target(found.target)
    return {"unit": "s", "rate": found.best_s, "stated_rate": device.launch_floor_s if device else None}


def _rate(found: Measurement, *, of_flop: bool) -> dict[str, Any]:
    work = work_of(found.case)
    amount = sum(work.flop.values()) if of_flop else work.read_bytes + work.write_bytes
    bounded_s = bound_s(found.case, known_target(found.target))
    return {
        "unit": "FLOP/s" if of_flop else "B/s", "best_s": found.best_s, "rate": amount / found.best_s,
        "bound_s": bounded_s, "stated_rate": amount / bounded_s if bounded_s else None,
        "attained_ratio": bounded_s / found.best_s if bounded_s else None,
    }  # fmt: skip


def _bounds(timed: list[Measurement]) -> dict[str, Any]:
    """Return how many cases have a bound, and those that were faster than it."""
    known = [(one, least_s(one, known_target(one.target))) for one in timed]
    bounded = [(one, floor_s) for one, floor_s in known if floor_s is not None]
    below = [
        {"case": label_of(one.case), "best_s": one.best_s, "bound_s": floor_s}
        for one, floor_s in bounded
        if one.best_s + one.timer_s < floor_s
    ]
    nearest = max((floor_s / one.best_s for one, floor_s in bounded), default=None)
    return {"timed_count": len(timed), "bounded_count": len(bounded), "below": below, "nearest_ratio": nearest}


def _predictions(measured: list[Measurement]) -> list[dict[str, Any]]:
    """Return for each family how far predictions are from the median samples."""
    from nearpeak.predict.prediction import form_for, predict_case

    rows: dict[str, dict[str, Any]] = {}
    for one in measured:
        if one.outcome not in TIMED:
            continue
        family = getattr(form_for(one.case), "name", one.case.op)
        row = rows.setdefault(family, {"family": family, "cases": [], "uncovered": []})
        try:
            found = predict_case(one.case, target_of(one.target))
        except NearpeakError as error:
            row["uncovered"].append(f"{label_of(one.case)}: {error}")
            continue
        centre_s = one.estimate().centre_s
        row["cases"].append(
            {"case": label_of(one.case), "measured_s": centre_s, "predicted_s": found.time_s,
             "within_interval": found.low_s <= centre_s <= found.high_s}
        )  # fmt: skip
    for row in rows.values():
        logs = [abs(log(one["predicted_s"] / one["measured_s"])) for one in row["cases"]]
        row["median_error_ratio"] = exp(statistics.median(logs)) - 1 if logs else None
        row["within_ratio"] = sum(one["within_interval"] for one in row["cases"]) / len(logs) if logs else None
    return list(rows.values())


def _operators(
    known: list[tuple[str, Case | None, str]], measured: list[Measurement]
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield for each operator what the contract on results said."""
    taken = {one.case: one for one in measured}
    for name, one, why in known:
        found = taken.get(one) if one is not None else None
        if found is None:
            yield {"operator": name, "case": label_of(one) if one else "", "status": "NOT_RUN", "note": why}
            continue
        status = found.validation.status if found.validation is not None else found.outcome.value.upper()
        yield {"operator": name, "case": label_of(found.case), "status": status, "outcome": found.outcome.value,
               "note": found.note}  # fmt: skip


def _energy(measured: list[Measurement]) -> dict[str, Any]:
    """Return what each meter said of one lasting load, with the sampler's own share of a core."""
    telemetry = measured[0].telemetry if measured else None
    if telemetry is None:
        return {"meters": [], "note": "the load was not run"}
    meters = [
        {"domain": one.domain, "method": one.method, "channel": one.channel, "low_j": one.low_j, "high_j": one.high_j,
         "covered_s": one.covered_s, "warnings": list(one.warnings)}
        for one in energies_of(telemetry, "samples")
    ]  # fmt: skip
    by_domain: dict[str, dict[str, float]] = {}
    for one in energies_of(telemetry, "samples"):
        by_domain.setdefault(one.domain, {}).setdefault(one.method, one.energy_j)
    ratios = {name: both["counter"] / both["integral"] for name, both in by_domain.items() if len(both) == 2}
    return {
        "case": label_of(measured[0].case), "meters": meters, "counter_to_integral_ratio": ratios,
        "unavailable": [list(pair) for pair in telemetry.unavailable],
        "sampler_cpu_ratio": telemetry.cpu_s / telemetry.window_s, "missed_count": telemetry.missed_count,
        "tick_count": telemetry.tick_count, "held_by": [list(names) for _, names in telemetry.flags("samples")],
        "note": telemetry.note,
    }  # fmt: skip


def _faults(measured: list[Measurement], sections: dict[str, Any]) -> Iterator[str]:
    for one in measured:
        if one.outcome in WRONG and not _tells_nothing(one):
            yield f"{label_of(one.case)}: {one.outcome.value}: {one.note}"
    for row in sections["bounds"]["below"]:
        yield f"{row['case']}: its best sample of {row['best_s']:.4g} s is below its bound of {row['bound_s']:.4g} s"
