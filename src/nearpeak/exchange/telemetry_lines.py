"""Telemetry as plain data and back, and what is derived from it for other tools."""

import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from nearpeak.core.energy import Energy, energies_of, preferred
from nearpeak.core.telemetry import Channel, Stream, Telemetry
from nearpeak.errors import SpecError

_PLAIN = (
    "begin_ns", "end_ns", "wall_ns", "rate_hz", "tick_count", "late_count", "missed_count", "latest_s", "cpu_s", "note",
)  # fmt: skip


def telemetry_record(telemetry: Telemetry) -> dict[str, Any]:
    """Return it as plain data; `energy` is derived, and is not read again."""
    record: dict[str, Any] = {name: getattr(telemetry, name) for name in _PLAIN}
    record["spans"] = [list(span) for span in telemetry.spans]
    record["unavailable"] = [list(pair) for pair in telemetry.unavailable]
    record["streams"] = [
        {
            "source": one.source, "channels": [channel_record(channel) for channel in one.channels],
            "before_ns": list(one.before_ns), "after_ns": list(one.after_ns),
            "values": [[None if math.isnan(value) else value for value in column] for column in one.values],
        }
        for one in telemetry.streams
    ]  # fmt: skip
    record["energy"] = [energy_record(one) for one in energies_of(telemetry, phase_of(telemetry))]
    return record


def telemetry_of(record: Mapping[str, Any], where: str) -> Telemetry:
    """Return the telemetry of plain data.

    Raises:
        SpecError: it is none.
    """
    try:
        streams = tuple(
            Stream(
                source=one["source"], channels=tuple(channel_of(dict(channel)) for channel in one["channels"]),
                before_ns=tuple(one["before_ns"]), after_ns=tuple(one["after_ns"]),
                values=tuple(tuple(math.nan if v is None else float(v) for v in column) for column in one["values"]),
            )
            for one in record["streams"]
        )  # fmt: skip
        return Telemetry(
            streams=streams, spans=tuple((str(n), int(a), int(b)) for n, a, b in record["spans"]),
            unavailable=tuple((str(n), str(why)) for n, why in record["unavailable"]),
            **{name: record[name] for name in _PLAIN},
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{where}: no telemetry: {type(error).__name__} {error}") from None


def phase_of(telemetry: Telemetry) -> str:
    """Return the phase whose energy is asked for: that of the samples, where there is one."""
    return "samples" if any(name == "samples" for name, _, _ in telemetry.spans) else ""


def energy_record(one: Energy) -> dict[str, Any]:
    """Return an energy as plain data: a bound alone where there are too few values for more."""
    return {
        "domain": one.domain, "source": one.source, "channel": one.channel, "method": one.method,
        "energy_j": None if one.few else one.energy_j, "low_j": one.low_j, "high_j": one.high_j,
        "parts_j": dict(one.parts_j), "covered_s": one.covered_s, "window_s": one.window_s,
        "sample_count": one.sample_count, "event_count": dict(one.event_count), "unstated": list(one.unstated),
        "warnings": list(one.warnings),
    }  # fmt: skip


def energy_by_domain(telemetry: Telemetry | None) -> dict[str, list[float]] | None:
    """Return least and greatest energy of the samples by domain; none without telemetry or meter."""
    if telemetry is None:
        return None
    found = preferred(energies_of(telemetry, phase_of(telemetry)))
    return {one.domain: [one.low_j, one.high_j] for one in found} or None


def channel_record(channel: Channel) -> dict[str, Any]:
    """Return a channel as plain data."""
    unsaid = {one.name: one.default for one in fields(Channel)}
    return {name: value for name, value in asdict(channel).items() if value != unsaid[name]}


def channel_of(record: dict[str, Any]) -> Channel:
    """Return the channel of plain data."""
    bits = tuple((str(name), int(bit)) for name, bit in record.get("bits", ()))
    return Channel(**{**record, "bits": bits})
