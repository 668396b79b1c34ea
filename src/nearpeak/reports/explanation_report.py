"""Why two predictions differ: their parts side by side, and the figures of the devices where these differ."""

import json
from collections.abc import Mapping

from nearpeak.core.answers.prediction import Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.reports.figure_text import hung
from nearpeak.reports.part_names import PART_WORDS
from nearpeak.units import show

LIBRARY = "library"
"""Part that was fitted to what the form misses."""
LEAST_SHARE = 0.005
"""Parts that differ by less than this share of the whole difference are summed into one line in text."""


def parts_of(first: Prediction, second: Prediction) -> dict[str, tuple[float, float]]:
    """Return the time of every part in both predictions, the largest difference first; their sums are the times."""
    one, two = first.waterfall_s, second.waterfall_s
    names = dict.fromkeys((*one, *two))
    parts = {name: (one.get(name, 0.0), two.get(name, 0.0)) for name in names}
    return dict(sorted(parts.items(), key=lambda item: -abs(item[1][1] - item[1][0])))


def facts_of(first: Target, second: Target) -> dict[str, tuple[float, float, str]]:
    """Return the figures in which two devices differ, each with its unit."""
    figures = {
        "multiprocessors": (first.sm_count, second.sm_count, ""),
        "memory bandwidth": (first.dram.bandwidth_bytes_per_s, second.dram.bandwidth_bytes_per_s, "B/s"),
        "last cache": (first.l2.capacity_bytes, second.l2.capacity_bytes, "B"),
        "clock": (first.clock_hz or None, second.clock_hz or None, "Hz"),
        "power limit": (first.power_w, second.power_w, "W"),
    }
    for unit in sorted(set(first.peaks) & set(second.peaks)):
        figures[f"{unit} rate"] = (first.peaks[unit].flop_per_s, second.peaks[unit].flop_per_s, "FLOP/s")
    return {
        name: (float(one), float(two), unit)
        for name, (one, two, unit) in figures.items()
        if one is not None and two is not None and one != two
    }


def to_json(cases: tuple[Case, Case], targets: tuple[Target, Target], found: tuple[Prediction, Prediction]) -> str:
    """Return the explanation as one JSON line."""
    return json.dumps(
        {
            "cases": [case.record() for case in cases], "targets": [target.name for target in targets],
            "predicted_s": [one.time_s for one in found], "difference_s": found[1].time_s - found[0].time_s,
            "parts_s": {name: list(pair) for name, pair in parts_of(*found).items()},
            "device_figures": {name: list(pair[:2]) for name, pair in facts_of(*targets).items()},
            "calibrations": [one.calibration.name for one in found],
            "distance_counts": [one.distance_count for one in found],
        }
    )  # fmt: skip


def to_terminal(labels: tuple[str, str], targets: tuple[Target, Target], found: tuple[Prediction, Prediction]) -> str:
    """Return the explanation as text."""
    first, second = found
    lines = [f"A  {labels[0]} on {targets[0].name}", f"B  {labels[1]} on {targets[1].name}"]
    ratio, difference = second.time_s / first.time_s, second.time_s - first.time_s
    lines.append(
        f"B takes {ratio:.3g} times as long: {show(first.time_s, 's')} against {show(second.time_s, 's')}, "
        f"{_signed(difference)}"
    )
    if targets[0] != targets[1] and not (first.high_s < second.low_s or second.high_s < first.low_s):
        lines.append("their 90 % intervals overlap: the difference may be less than what predictions miss")
    lines += _turned(first, second)
    parts = parts_of(first, second)
    lines += ["", f"  {'part':16}{'A':>13}{'B':>13}{'B - A':>13}", *_part_lines(parts, difference)]
    words = [f"  {name}: {PART_WORDS[name]}" for name in _telling(parts, difference) if name in PART_WORDS]
    lines += ["", *words] if words else []
    facts = facts_of(*targets)
    if facts:
        lines += ["", f"  {'device':20}{'A':>14}{'B':>14}{'B / A':>8}"]
        lines += [f"  {n:20}{show(a, u):>14}{show(b, u):>14}{b / a:>8.3g}" for n, (a, b, u) in facts.items()]
    if first.calibration.name != second.calibration.name:
        lines += ["", f"  scalars of A: {first.calibration.name}; of B: {second.calibration.name}"]
    return "\n".join(hung(lines))


def _turned(first: Prediction, second: Prediction) -> list[str]:
    """Return a warning where only the correction makes the one that takes longer take less, or the reverse."""
    one, two = (found.time_s - found.waterfall_s.get(LIBRARY, 0.0) for found in (first, second))
    if (two - one) * (second.time_s - first.time_s) >= 0:
        return []
    return [
        f"without the part {LIBRARY} B would take {two / one:.3g} times as long: which of them takes longer is told by "
        "measurements of like cases, not by the form, and is less sure than either time"
    ]


def _telling(parts: Mapping[str, tuple[float, float]], difference: float) -> list[str]:
    """Return the parts that make up the difference, each by a share of it that is worth a line."""
    return [name for name, (one, two) in parts.items() if abs(two - one) > LEAST_SHARE * abs(difference)]


def _part_lines(parts: Mapping[str, tuple[float, float]], difference: float) -> list[str]:
    lines, rest, telling = [], [0.0, 0.0, 0], _telling(parts, difference)
    for name, (one, two) in parts.items():
        if name in telling:
            lines.append(f"  {name:16}{show(one, 's'):>13}{show(two, 's'):>13}{_signed(two - one):>13}")
        else:
            rest = [rest[0] + one, rest[1] + two, rest[2] + 1]
    if rest[2]:
        name = f"{rest[2]} alike"
        lines.append(f"  {name:16}{show(rest[0], 's'):>13}{show(rest[1], 's'):>13}{_signed(rest[1] - rest[0]):>13}")
    return lines


def _signed(time_s: float) -> str:
    return f"{'+' if time_s >= 0 else '-'}{show(abs(time_s), 's')}"
