"""Report of telemetry: energy with its bound, mean and extremes of each channel, and unknowns."""

import math
from collections.abc import Iterator, Sequence

from nearpeak.core.runs.energy import Energy, energies_of, increments, preferred
from nearpeak.core.runs.telemetry import Channel, Series, Telemetry
from nearpeak.reports.document import Block, Document, Table, columns
from nearpeak.units import show

_UNITS = {"celsius": ("°C", 1.0), "ratio": ("%", 100.0), "count": ("", 1.0)}


def in_brief(telemetry: Telemetry) -> str:
    """Return energy and power of the samples in some words."""
    phase = "samples" if any(name == "samples" for name, _, _ in telemetry.spans) else ""
    energy = preferred(energies_of(telemetry, phase))
    if not energy:
        return telemetry.note or "no power meter"
    held = [name for _, names in telemetry.flags(phase) for name in names if name != "idle"]
    return ", ".join([*map(_energy, energy), *([f"clock held by {', '.join(held)}"] if held else [])])


def _energy(energy: Energy) -> str:
    if energy.few:
        count = f"{energy.sample_count} value{'' if energy.sample_count == 1 else 's'}"
        low, high = f"{max(0.0, energy.low_j):.4g}", f"{energy.high_j:.4g}"
        return f"{energy.domain} {low if low == high else f'{low} to {high}'} J ({count})"
    return f"{energy.domain} {energy.energy_j:.4g} ± {energy.error_j:.2g} J, {energy.mean_w:.4g} W"


def telemetry_document(telemetry: Telemetry) -> Document:
    """Return energies with their error, each channel in brief, the phases, and what is unknown with its reason."""
    head = f"{telemetry.window_s:.6g} s"
    if telemetry.rate_hz:
        head += f", {telemetry.tick_count} rounds at {telemetry.rate_hz:g} Hz, {telemetry.late_count} late, "
        head += f"{telemetry.missed_count} left out, sampler {telemetry.cpu_s / max(telemetry.window_s, 1e-9):.2%} CPU"
    blocks: list[Block] = [line for energy in energies_of(telemetry) for line in _energy_lines(energy)]
    readings = [(series.channel.name, _summary(series, telemetry)) for series in telemetry.series()]
    readings += [(name, f"not available: {why}") for name, why in telemetry.unavailable]
    if readings:
        blocks.append(Table(columns=columns("`channel", "~readings"), rows=readings))
    phases = [
        (name, (end_ns - begin_ns) / 1e9, ", ".join(map(_energy, energies)))
        for name, begin_ns, end_ns in telemetry.spans
        if len(telemetry.spans) > 1 and (energies := preferred(energies_of(telemetry, name)))
    ]
    if phases:
        blocks.append(Table(columns=columns("phase", "#time_s|time", "~energy"), rows=phases))
    return Document(title=head, blocks=[*blocks, telemetry.note])


def _energy_lines(energy: Energy) -> Iterator[str]:
    parts = ", ".join(f"{name} {value:.3g}" for name, value in energy.parts_j.items() if value)
    low, high = f"{energy.low_j:.6g}", f"{energy.high_j:.6g}"
    few = f"{low} J" if low == high else f"between {low} and {high} J"
    value = few if energy.few else f"{energy.energy_j:.7g} ± {energy.error_j:.4g} J"
    power = f"{energy.mean_w:.5g} W over {energy.covered_s:.6g} s"
    text = f"{energy.domain} by {energy.method} of {energy.channel}: {value}, {power}"
    yield text + (f" (error: {parts} J)" if parts else "")
    if energy.unstated:
        yield f"  not in the bound, as no source states it: {', '.join(energy.unstated)}"
    if energy.event_count:
        yield "  " + ", ".join(f"{name.replace('_', ' ')}: {count}" for name, count in energy.event_count.items())
    for warning in energy.warnings:
        yield f"  warning: {warning}"


def _summary(series: Series, telemetry: Telemetry) -> str:
    channel = series.channel
    if channel.status:
        return f"unknown: {channel.status}"
    values = series.within(telemetry.begin_ns / 1e9, telemetry.end_ns / 1e9)
    if not values:
        return "no reading in the window"
    if channel.kind == "flags":
        union = 0
        for value in values:
            union |= int(value)
        return ", ".join(channel.decoded(union)) or "none"
    if channel.kind == "counter":
        return _growth(values, channel)
    mean = math.fsum(values) / len(values)
    low, high = (_shown(value, channel.unit) for value in (min(values), max(values)))
    return f"{_shown(mean, channel.unit)} on average, {low} to {high}"


def _growth(values: Sequence[float], channel: Channel) -> str:
    """Return how much a counter grew; decreases do not count, and a wrap or a reset is reported.

    >>> _growth((90.0, 5.0, 7.0), Channel(name="gpu.energy", unit="J", kind="counter", meaning=""))
    'grew by 2 J, besides what 1 reset hides'
    """
    steps, counts = increments([(float(place), value) for place, value in enumerate(values)], channel.rollover)
    text = f"grew by {_shown(math.fsum(filter(None, steps)), channel.unit)}"
    resets = counts.get("reset", 0)
    return f"{text}, besides what {resets} reset{'s hide' if resets > 1 else ' hides'}" if resets else text


def _shown(value: float, unit: str) -> str:
    """Return a value with its unit.

    >>> _shown(0.5, "ratio"), _shown(41.5, "celsius"), _shown(1.2e9, "Hz"), _shown(3, "count")
    ('50 %', '41.5 °C', '1.2 GHz', '3')
    """
    if unit in _UNITS:
        sign, factor = _UNITS[unit]
        return f"{value * factor:.4g} {sign}".rstrip()
    return show(value, unit) if value >= 0 else f"{value:.4g} {unit}"
