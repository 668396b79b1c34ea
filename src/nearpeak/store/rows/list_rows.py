"""Rows of the dashboard's lists: alerts, their changes, measurements of a run, devices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some rows of a longer list."""

    rows: tuple[Any, ...]
    """The rows."""
    total_count: int
    """Rows of the whole list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRow:
    """An alert as lists show it."""

    id: int
    """Identity within the store."""
    title: str
    """One line."""
    status: str
    """State."""
    rev_lo: str
    """Last good commit."""
    rev_hi: str
    """First bad one."""
    assignee: str
    """Who looks after it."""
    priority: int
    """Smaller is more urgent."""
    created_ns: int
    """When it was opened."""
    due_ns: int | None
    """When it should be done."""
    snoozed_until_ns: int | None
    """Until when nobody is to be bothered."""
    tracker_url: str
    """Issue that it is followed in."""


class AlertKey(NamedTuple):
    """What alerts are ordered, found and left out by: thousands of them are looked at for one page."""

    id: int
    """Identity within the store."""
    created_ns: int
    """When it was opened."""
    assignee: str
    """Who looks after it."""
    snoozed_until_ns: int | None
    """Until when nobody is to be bothered."""
    status: str
    """State."""
    title: str
    """One line."""
    rev_hi: str
    """First bad commit."""


class AlertEffects(NamedTuple):
    """The changes of alerts, by alert and change, as columns."""

    alerts: tuple[int, ...]
    """Alert of each change."""
    series: tuple[int, ...]
    """Series of each change."""
    effect_ratios: tuple[float, ...]
    """Logarithm of new over old level."""
    known: Mapping[int, tuple[float | None, str]]
    """Newest value and owner of each series; no value where it is no time, where more is better, or where there is
    none."""


class MemberRow(NamedTuple):
    """A change of an alert, with what it takes to weigh it: all of a store are looked at together."""

    alert_id: int
    """Alert."""
    series: int
    """Series that changed."""
    role: str
    """`primary`, `downstream` or `related`."""
    effect_ratio: float
    """Logarithm of new over old level."""
    value: float | None
    """Newest value of the series, in the metric's unit."""
    unit: str
    """Unit of the metric."""
    direction: str
    """Better direction: `lower` or `higher`."""
    owner: str
    """Who looks after the series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A measurement as the page of its run shows it."""

    series: int
    """Series."""
    label: str
    """Case in one line."""
    testbed: str
    """What took it."""
    metric: str
    """What was measured."""
    unit: str
    """Unit of the figures."""
    launch: int
    """Number of the launch."""
    sample_count: int
    """Samples."""
    outcome: str
    """How it ended."""
    note: str
    """What is to be known of it."""
    value: float | None
    """Median; none where it failed, as below."""
    low_value: float | None
    """Lower end of its 95 % interval."""
    high_value: float | None
    """Upper end."""
    clock_hz: float | None
    """Mean clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A unit that ran something."""

    name: str
    """Model."""
    vendor: str
    """Who makes it."""
    architecture: str
    """`sm_90` and the like."""
    host: str
    """Machine."""
    uuid: str
    """Identity of the unit."""
    run_count: int
    """Runs on it."""
    last_ns: int
    """When the newest began."""
