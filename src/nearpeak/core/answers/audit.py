"""Findings of a measurement-table audit: implausible rows, and the noise floor of repeated measurements."""

from collections.abc import Mapping
from dataclasses import dataclass

KINDS = {
    "faster_than_bound": "faster than anything can be; where the data fit in the last cache, even from there",
    "other_algorithm": "faster than classical algorithms can be, not than Winograd's or FFT, by which libraries run it",
    "hot": "faster than the bound, but its data fit in the last cache: repeated runs found them there",
    "set_aside": "no positive time, or no case: a missing axis, an unknown format, a cell that is no number",
    "no_bound": "not held against a bound: there is no rule for it, or no figure of the device",
    "repeated": "same case, software and time as an earlier row: a copy, not another measurement",
    "slow_repeat": "more than twice the shortest time of the same case and software: disturbed, or of another case",
    "clamped": "exactly the plain roofline or the bound: rewritten, not measured",
    "faster_when_larger": "faster by more than the noise than a case that is smaller in one axis and else the same",
    "far_off": "over 30 times off what is expected, unlike the other rows of its kind: another unit or case",
    "off_curve": "far off the power law through its neighbours along one axis",
}
"""Kinds of findings and what they mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFinding:
    """One row of a table with what is wrong with it."""

    row: int
    """Number of the row, 1 for the first below the header."""
    kind: str
    """One of KINDS."""
    measured_s: float | None
    """Its time; none where it has no usable one."""
    expected_s: float | None
    """The time that it is held against: bound, roofline, the shortest repeat, the smaller case, or the curve."""
    other_row: int | None = None
    """The row that it is compared with, where there is one."""
    text: str = ""
    """More, where the kind does not say it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFloor:
    """Spread of the times of one case."""

    what: str
    """Difference between the rows: `repeats` of one software, or `software`."""
    pair_count: int
    """Cases measured more than once."""
    median_ratio: float
    """Median of (longest - shortest) / shortest."""
    p90_ratio: float
    """90th percentile of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Findings of one table on one device."""

    row_count: int
    """Rows of the table."""
    findings: tuple[AuditFinding, ...]
    """Findings in the order of rows."""
    noise: tuple[NoiseFloor, ...]
    """Noise floors that the table itself shows, less rows that are called slow repeats."""
    remarks: tuple[str, ...] = ()
    """Faults of whole kinds of cases: all times far from the expected ones, as in another unit."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Rows by kind, kinds without rows left out."""
        kinds = [finding.kind for finding in self.findings]
        return {kind: kinds.count(kind) for kind in KINDS if kind in kinds}
