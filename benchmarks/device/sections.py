"""The sections of a device report, each from what was measured: roofs, bounds, predictions, operators, energy."""

import statistics
from collections.abc import Iterator
from math import exp, log
from typing import Any

from nearpeak.api.measured_analysis import bound_s, known_target, least_s
from nearpeak.core.runs.energy import energies_of
from nearpeak.core.runs.measurement import TIMED, Measurement, Outcome
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.ops import label_of, work_of
from nearpeak.targets import target_of

BOUNDED = TIMED | {Outcome.BELOW_BOUND, Outcome.THROTTLED}
"""Outcomes whose best sample is held against the bound: a clock that fell makes no sample shorter."""
NO_FAULT = TIMED | {Outcome.THROTTLED, Outcome.UNSUPPORTED}
"""Outcomes that are no faults of nearpeak, of the device or of its software; a refusal stands with its reason."""
Known = tuple[str, Case | None, str]
"""An operator, the case that it is checked with, and why there is none."""


def roofs(wanted: dict[str, Case], measured: list[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield each roof: rate of the best sample beside the datasheet's, and beside the rate that the bound permits."""
    taken = {one.case: one for one in measured}
    for name, one in wanted.items():
        found = taken.get(one)
        row: dict[str, Any] = {"roof": name, "case": label_of(one), "outcome": "not run", "note": ""}
        if found is not None:
            row |= {"outcome": found.outcome.value, "note": found.note}
        if found is not None and found.samples_s:
            row |= _launch(found) if name == "launch" else _rate(found, name)
        yield row


def _launch(found: Measurement) -> dict[str, Any]:
    """Return the time of a call that does next to nothing, beside the floor that the device file states."""
    device = known_target(found.target)
    return {"unit": "s", "rate": found.best_s, "stated_rate": device.launch_floor_s if device else None}


def _rate(found: Measurement, name: str) -> dict[str, Any]:
    of_flop, work, device = name.startswith("product"), work_of(found.case), known_target(found.target)
    amount = sum(work.flop.values()) if of_flop else work.read_bytes + work.write_bytes
    bounded_s, stated = bound_s(found.case, device), _stated(device, name.partition(" ")[2] if of_flop else "")
    return {
        "unit": "FLOP/s" if of_flop else "B/s", "best_s": found.best_s, "rate": amount / found.best_s,
        "stated_rate": stated, "attained_ratio": amount / found.best_s / stated if stated else None,
        "bound_s": bounded_s, "bound_ratio": bounded_s / found.best_s if bounded_s else None,
    }  # fmt: skip


def _stated(device: Target | None, name: str) -> float | None:
    """Return the datasheet's rate of products in a format, on matrix units where it has any; of memory without one."""
    if device is None:
        return None
    if not name:
        return device.dram.bandwidth_bytes_per_s
    units = (f"tensor.{name}", f"vector.{name}")
    return next((device.peaks[unit].flop_per_s for unit in units if unit in device.peaks), None)


def bounds(timed: list[Measurement]) -> dict[str, Any]:
    """Return every timed case beside its bound, the nearest first, and those that were faster than it."""
    known = [(one, least_s(one, known_target(one.target))) for one in timed]
    rows = [
        {"case": label_of(one.case), "best_s": one.best_s, "bound_s": floor_s, "bound_ratio": floor_s / one.best_s,
         "cache": one.method.cache if one.method else "", "outcome": one.outcome.value}
        for one, floor_s in known if floor_s is not None
    ]  # fmt: skip
    below = [
        {"case": label_of(one.case), "best_s": one.best_s, "bound_s": floor_s}
        for one, floor_s in known
        if floor_s is not None and one.best_s + one.timer_s < floor_s
    ]
    rows.sort(key=lambda row: -row["bound_ratio"])
    return {
        "timed_count": len(timed), "bounded_count": len(rows), "below": below, "cases": rows,
        "nearest_ratio": rows[0]["bound_ratio"] if rows else None,
    }  # fmt: skip


def predictions(measured: list[Measurement]) -> list[dict[str, Any]]:
    """Return for each family how far predictions are from the median samples, and what they could not be held against.

    A device whose clock fell is not the one that was predicted: its cases are listed, and count for no error.
    """
    from nearpeak.prediction.model_choice import model_for

    rows: dict[str, dict[str, Any]] = {}
    for one in (found for found in measured if found.samples_s):
        family = getattr(model_for(one.case), "name", one.case.op)
        row = rows.setdefault(family, {"family": family, "cases": [], "uncovered": []})
        beside, why = _predicted(one)
        if beside is None:
            row["uncovered"].append(f"{label_of(one.case)}: {why}")
        else:
            row["cases"].append(beside)
    for row in rows.values():
        logs = [abs(log(one["predicted_s"] / one["measured_s"])) for one in row["cases"]]
        row["median_error_ratio"] = exp(statistics.median(logs)) - 1 if logs else None
        row["within_ratio"] = sum(one["within_interval"] for one in row["cases"]) / len(logs) if logs else None
    return list(rows.values())


def _predicted(one: Measurement) -> tuple[dict[str, Any] | None, str]:
    """Return the prediction beside the median sample, or why it stands beside none."""
    from nearpeak.prediction.case_prediction import predict_case

    if one.outcome not in TIMED:
        return None, f"{one.outcome.value}: {one.note}"
    try:
        found = predict_case(one.case, target_of(one.target))
    except NearpeakError as error:
        return None, str(error)
    centre_s = one.estimate().centre_s
    return {
        "case": label_of(one.case), "measured_s": centre_s, "predicted_s": found.time_s,
        "within_interval": found.low_s <= centre_s <= found.high_s,
    }, ""  # fmt: skip


def operators(known: list[Known], measured: list[Measurement]) -> Iterator[dict[str, Any]]:
    """Yield for each operator what the contract on results said."""
    taken = {one.case: one for one in measured}
    for name, one, why in known:
        found = taken.get(one) if one is not None else None
        if found is None:
            yield {"operator": name, "case": label_of(one) if one else "", "status": "NOT_RUN", "note": why}
            continue
        status = found.validation.status if found.validation is not None else found.outcome.value.upper()
        again = found.validation.command if found.validation is not None and status != "PASS" else ""
        yield {"operator": name, "case": label_of(found.case), "status": status, "outcome": found.outcome.value,
               "note": found.note, "again": again}  # fmt: skip


def energy(measured: list[Measurement]) -> dict[str, Any]:
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


def tells_nothing(found: Measurement) -> bool:
    """Say whether the case could not tell a right result from a constant."""
    return found.validation is not None and found.validation.status == "DEGENERATE_CASE"


def faults(measured: list[Measurement], below: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what went wrong: whatever is neither a time nor a refusal, and each case faster than its bound."""
    for one in measured:
        if one.outcome not in NO_FAULT and not tells_nothing(one):
            yield f"{label_of(one.case)}: {one.outcome.value}: {one.note}"
    for row in below:
        yield f"{row['case']}: its best sample of {row['best_s']:.4g} s is below its bound of {row['bound_s']:.4g} s"
