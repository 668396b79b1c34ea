"""JSON form of telemetry, with the energies that are derived from it."""

import math
from collections.abc import Mapping
from typing import Any

from nearpeak.core.records.converter import Converter
from nearpeak.core.records.record_codec import Codec, Schema, Shape, defaulted
from nearpeak.core.runs.energy import Energy, energies_of, preferred
from nearpeak.core.runs.telemetry import Channel, Stream, Telemetry

RECORDING = Schema(
    kind="telemetry", version=1, title="a recording of sensors", advice="nearpeak telemetry --out writes one",
    version_key="schema",
)  # fmt: skip
_READINGS = Codec(
    types={
        float: Converter(
            lambda value: None if math.isnan(value) else value, lambda raw: math.nan if raw is None else float(raw)
        )
    }
)
TELEMETRY_CODEC = Codec(
    shapes={
        Channel: Shape(brief=defaulted(Channel)),
        Energy: Shape(omitted={"left_j": math.nan, "right_j": math.nan}),
        Stream: Shape(fields={"values": _READINGS.converter(tuple[tuple[float, ...], ...])}),
    }
)
"""`energy` is derived, and is not read again; a reading that failed is null."""


def telemetry_record(telemetry: Telemetry) -> dict[str, Any]:
    """Return it as plain data, with the derived energies."""
    energies = [energy_record(energy) for energy in energies_of(telemetry, phase_of(telemetry))]
    return {**TELEMETRY_CODEC.plain(telemetry), "energy": energies}


def telemetry_of(record: Mapping[str, Any], where: str) -> Telemetry:
    """Return the telemetry of plain data.

    Raises:
        SpecError: the record does not fit.
    """
    telemetry: Telemetry = TELEMETRY_CODEC.value(record, Telemetry, where)
    return telemetry


TELEMETRY = Converter(telemetry_record, TELEMETRY_CODEC.converter(Telemetry).read)
"""Telemetry within other records."""


def phase_of(telemetry: Telemetry) -> str:
    """Return the phase whose energy is reported: `samples` if there is one, else empty."""
    return "samples" if any(name == "samples" for name, _, _ in telemetry.spans) else ""


def energy_record(energy: Energy) -> dict[str, Any]:
    """Return an energy as plain data; with too few values only its bounds are stated."""
    energy_j = None if energy.few else energy.energy_j
    return {**TELEMETRY_CODEC.plain(energy), "energy_j": energy_j, "low_j": energy.low_j, "high_j": energy.high_j}


def energy_by_domain(telemetry: Telemetry | None) -> dict[str, list[float]] | None:
    """Return least and greatest energy of the samples by domain; none without telemetry or meter."""
    if telemetry is None:
        return None
    energies = preferred(energies_of(telemetry, phase_of(telemetry)))
    return {energy.domain: [energy.low_j, energy.high_j] for energy in energies} or None
