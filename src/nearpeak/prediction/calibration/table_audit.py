"""Audit of a measurement table: impossible times, copies, clamped cells, broken monotonicity, noise, units."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.bounds.bound_table import answered_table
from nearpeak.core.answers.audit import Audit, AuditFinding, NoiseFloor
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.below_bound import IMPOSSIBLE, kinds_below
from nearpeak.prediction.calibration.sample_screen import screened_samples
from nearpeak.prediction.calibration.samples import Samples, check_device
from nearpeak.prediction.kernel_model import USUAL

SOFTWARE = ("software", "framework", "version", "kernel", "implementation", "runner")
"""Columns that tell implementations apart."""
CLAMPED_RATIO = 1e-6
"""A measurement this near to a computed roofline or bound is one."""
LEAST_NOISE_RATIO = 0.03
"""Noise taken for granted where a table shows none: repeats of one software differ by 3 to 5 %."""
SLOW_RATIO = 2.0
"""Least time of a slow repeat over the shortest: noise is far less, and no board's clock falls to half under load."""
CURVE_POINTS = 8
"""Points along an axis from which a curve is drawn."""
CURVE_MAD = 6.0
"""Deviations, in median absolute deviations of a curve's points, beyond which a point is off it."""
CURVE_RATIO = 0.3
"""Least deviation of a point that is called off its curve."""


def audit(columns: Mapping[str, Any], samples: Samples, target: Target) -> Audit:
    """Return the findings about a table's samples on `target`.

    Args:
        columns: the table as it was read; the columns of SOFTWARE tell implementations apart.

    Raises:
        SpecError: the table says that it is of another device.

    >>> from nearpeak.prediction.calibration.samples import samples_of
    >>> from nearpeak.targets import target_of
    >>> table = {"op": "gemm", "dtype": "bf16", "m": [8192, 8192], "n": 8192, "k": 8192, "time_ms": [1.6, 0.2]}
    >>> found = audit(table, samples_of(table), target_of("h100_sxm"))
    >>> [(one.row, one.kind) for one in found.findings]
    [(2, 'faster_than_bound')]
    """
    check_device(samples, target)
    labels = _labels(columns, samples)
    against = list(_against_bound(samples, target))
    slow = dict(_slow_repeats(samples, labels, {entry.row for entry in against if entry.kind == IMPOSSIBLE}))
    noise = tuple(_noise(samples, labels, slow))
    floor = max([LEAST_NOISE_RATIO, *(entry.p90_ratio for entry in noise if entry.what == "repeats")])
    findings = [
        AuditFinding(
            row=entry.row,
            kind="set_aside",
            measured_s=None,
            expected_s=None,
            text=f"{entry.column} {entry.text}".strip(),
        )
        for entry in samples.set_aside
    ]
    findings += [
        _finding(samples, i, "slow_repeat", samples.measured_s[k], int(samples.rows[k])) for i, k in slow.items()
    ]
    findings += against
    believed = screened_samples(samples, target, USUAL)
    reported = {entry.row for entry in findings}
    findings += [
        AuditFinding(
            row=entry.row, kind="far_off", measured_s=float(samples.measured_s[samples.rows == entry.row][0]),
            expected_s=None, text=entry.text,
        )
        for entry in believed.samples.set_aside if entry.row not in reported
    ]  # fmt: skip
    findings += [*_repeated(samples, labels), *_along_axes(samples, labels, floor)]
    return Audit(
        row_count=len(samples.rows) + len(samples.set_aside),
        findings=tuple(sorted(findings, key=lambda f: (f.row, f.kind))), noise=noise,
        remarks=tuple(str(entry).removeprefix("calibrate: ") for entry in believed.refused.values()),
    )  # fmt: skip


def _labels(columns: Mapping[str, Any], samples: Samples) -> list[tuple[str, ...]]:
    """Return the software of each sample."""
    names = [name for name in SOFTWARE if name in columns]
    each = [columns[name] for name in names]
    return [
        tuple(str(c if isinstance(c, str) or not hasattr(c, "__len__") else c[row - 1]) for c in each)
        for row in samples.rows.tolist()
    ]


def _against_bound(samples: Samples, target: Target) -> Iterator[AuditFinding]:
    """Yield rows below their bound, rows that are the roofline itself, and rows that have no bound to hold against."""
    bounds = answered_table(samples.table, target, Policy())
    for place, reason in bounds.refused.items():
        yield AuditFinding(
            row=int(samples.rows[place]), kind="no_bound", measured_s=float(samples.measured_s[place]), expected_s=None,
            text=reason,
        )  # fmt: skip
    measured = samples.measured_s
    for place, kind in kinds_below(samples, target, bounds.bound_s):
        yield _finding(samples, place, kind, bounds.bound_s[place])
    computed_s = np.stack([bounds.roofline_s, bounds.bound_s])
    near = np.abs(measured / np.maximum(computed_s, 1e-30) - 1) < CLAMPED_RATIO
    for i in np.flatnonzero(near.any(0)):
        yield _finding(samples, i, "clamped", computed_s[0 if near[0, i] else 1, i])


def _repeated(samples: Samples, labels: Sequence[tuple[str, ...]]) -> Iterator[AuditFinding]:
    """Yield rows that copy an earlier one."""
    seen: dict[tuple[Case, tuple[str, ...], float], int] = {}
    for i, (case, label, time) in enumerate(zip(samples.cases, labels, samples.measured_s.tolist(), strict=True)):
        first = seen.setdefault((case, label, time), i)
        if first != i:
            yield _finding(samples, i, "repeated", time, int(samples.rows[first]))


def _slow_repeats(
    samples: Samples, labels: Sequence[tuple[str, ...]], impossible: Collection[int]
) -> Iterator[tuple[int, int]]:
    """Yield the places of repeats of one software that took far longer than the shortest, and the shortest's place.

    Args:
        impossible: numbers of impossibly fast rows, against which no repeat is slow.
    """
    places: dict[tuple[Case, tuple[str, ...]], list[int]] = defaultdict(list)
    for i, key in enumerate(zip(samples.cases, labels, strict=True)):
        if int(samples.rows[i]) not in impossible:
            places[key].append(i)
    times = samples.measured_s.tolist()
    for repeats in places.values():
        best = min(repeats, key=times.__getitem__)
        yield from ((i, best) for i in repeats if times[i] > SLOW_RATIO * times[best])


def _along_axes(samples: Samples, labels: Sequence[tuple[str, ...]], noise: float) -> Iterator[AuditFinding]:
    """Yield rows that break what holds along an axis, all else the same."""
    lines: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for i, (case, label) in enumerate(zip(samples.cases, labels, strict=True)):
        plain = (case.op, case.phase, case.dtypes, case.attributes, label)
        for position, (name, extent) in enumerate(case.axes):
            rest = (*case.axes[:position], *case.axes[position + 1 :])
            lines[(*plain, name, rest)].append((extent, i))
    reported: set[tuple[int, str]] = set()
    for line in lines.values():
        points = sorted(dict(line).items())  # the last of repeated measurements
        for finding in (*_slower(samples, points, noise), *_off_curve(samples, points)):
            if (finding.row, finding.kind) not in reported:
                reported.add((finding.row, finding.kind))
                yield finding


def _slower(samples: Samples, points: Sequence[tuple[int, int]], noise: float) -> Iterator[AuditFinding]:
    """Yield points that are faster than the slowest smaller one by more than twice the noise."""
    slowest: int | None = None
    for _, i in points:
        time = samples.measured_s[i]
        if slowest is not None and time < samples.measured_s[slowest] * (1 - 2 * noise):
            yield _finding(samples, i, "faster_when_larger", samples.measured_s[slowest], int(samples.rows[slowest]))
        if slowest is None or time > samples.measured_s[slowest]:
            slowest = i


def _off_curve(samples: Samples, points: Sequence[tuple[int, int]]) -> Iterator[AuditFinding]:
    """Yield inner points far from the straight line between their neighbours in logarithms."""
    if len(points) < CURVE_POINTS:
        return
    extents = np.log([extent for extent, _ in points])
    rows = [i for _, i in points]
    times = np.log(samples.measured_s[rows])
    share = (extents[1:-1] - extents[:-2]) / (extents[2:] - extents[:-2])
    between = times[:-2] + share * (times[2:] - times[:-2])
    off = times[1:-1] - between
    spread = float(np.median(np.abs(off - np.median(off))))
    for j in np.flatnonzero(np.abs(off) > max(CURVE_MAD * spread, float(np.log1p(CURVE_RATIO)))):
        yield _finding(samples, rows[j + 1], "off_curve", float(np.exp(between[j])))


def _noise(samples: Samples, labels: Sequence[tuple[str, ...]], slow: Collection[int]) -> Iterator[NoiseFloor]:
    """Yield the spread of repeats of one software, and that of the best times of different software.

    The same time to the last digit is a copy, which says nothing about noise. Slow repeats are findings: as noise, one
    would hide what else is wrong with the table.
    """
    times: dict[Case, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for i, (case, label, time) in enumerate(zip(samples.cases, labels, samples.measured_s.tolist(), strict=True)):
        if i not in slow:
            times[case][label].append(time)
    repeats = [times_s for by_label in times.values() for times_s in by_label.values() if len(set(times_s)) > 1]
    across = [[min(times_s) for times_s in by_label.values()] for by_label in times.values() if len(by_label) > 1]
    for what, groups in (("repeats", repeats), ("software", across)):
        if groups:
            ratios = np.array([max(times_s) / min(times_s) - 1 for times_s in groups])
            yield NoiseFloor(
                what=what, pair_count=len(ratios), median_ratio=float(np.median(ratios)),
                p90_ratio=float(np.quantile(ratios, 0.9)),
            )  # fmt: skip


def _finding(samples: Samples, i: Any, kind: str, expected: Any, other: int | None = None) -> AuditFinding:
    return AuditFinding(
        row=int(samples.rows[i]), kind=kind, measured_s=float(samples.measured_s[i]), expected_s=float(expected),
        other_row=other,
    )  # fmt: skip
