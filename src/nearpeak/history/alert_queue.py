"""In-memory priority queue of alerts that returns the top entries of tens of thousands without re-ranking all."""

import math
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.core.history.alert import CLOSED, STATUSES
from nearpeak.errors import SpecError
from nearpeak.store import Store
from nearpeak.store.page_queries import in_parts
from nearpeak.store.rows.list_rows import AlertEffects, AlertKey

SORTS = ("gap", "age", "owner")
"""Orders: the largest gap first, the oldest first, by assignee."""
SHOWN = ("open", "closed", "all", *STATUSES)
"""Filters of the queue by state."""
LOOKED_BACK = 64
"""Newest events whose alerts are read anew each time: PostgreSQL may show an event after one with a greater number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertFilter:
    """Filter and order of a queue request."""

    shown: str = "open"
    """`open`, `closed`, `all`, or a state."""
    sort: str = "gap"
    """`gap`, `age` or `owner`."""
    words: tuple[str, ...] = ()
    """Words that title, first bad commit or assignee must contain, case-insensitive."""
    owner: str = ""
    """Assignee of the alert or owner of one of its series; empty for all."""
    at_ns: int | None = None
    """Time at which snoozed ones are left out; none where they are not."""

    def __post_init__(self) -> None:
        """Refuse what is not known."""
        for name, value, known in (("shown", self.shown, SHOWN), ("sort", self.sort, SORTS)):
            if value not in known:
                raise SpecError(f"{name} {value!r}: is not known; there are {', '.join(known)}")


class Standing(NamedTuple):
    """Sort keys of an alert."""

    gap_s: float
    """Seconds by which its cases got longer, added up; 0 where that is not known."""
    worst_ratio: float
    """Logarithm of its largest change; −1 without changes."""
    owners: tuple[str, ...]
    """Owners of its series."""


NOTHING = Standing(gap_s=0.0, worst_ratio=-1.0, owners=())
"""Standing of an alert without changes."""


@dataclass(frozen=True, kw_only=True)
class Columns:
    """All alerts of a store at one moment."""

    keys: Mapping[int, AlertKey]
    """Alerts by number."""
    standings: Mapping[int, Standing]
    """Sort keys of the alerts that have changes."""

    def wanted(self, request: AlertFilter) -> list[int]:
        """Return the alerts that are wanted, in order."""
        places: npt.NDArray[np.int64] = getattr(self, f"_by_{request.sort}")
        fits = np.ones(len(places), dtype=bool)
        if request.shown != "all":
            states = [CLOSED, frozenset(STATUSES) - CLOSED][request.shown == "open"]
            states = states if request.shown in ("open", "closed") else frozenset({request.shown})
            fits &= np.isin(self._states, [STATUSES.index(state) for state in states])
        if request.at_ns is not None:
            fits &= self._snoozed_ns <= request.at_ns
        for word in request.words:
            lowered = word.lower()
            fits &= np.fromiter((lowered in text for text in self._texts), bool, len(places))
        if request.owner:
            fits &= np.isin(self._ids, self._owned(request.owner))
        return list(self._ids[places[fits[places]]].tolist())

    @cached_property
    def _by_gap(self) -> npt.NDArray[np.int64]:
        return np.lexsort((self._ids, -self._worst, -self._gaps_s))

    @cached_property
    def _by_age(self) -> npt.NDArray[np.int64]:
        return np.lexsort((self._ids, np.array([key.created_ns for key in self.keys.values()], dtype=np.int64)))

    @cached_property
    def _by_owner(self) -> npt.NDArray[np.int64]:
        names = [key.assignee for key in self.keys.values()]
        rank = {name: place for place, name in enumerate(sorted(set(names), key=lambda name: (not name, name)))}
        ranks = np.array([rank[name] for name in names], dtype=np.int64)
        return np.lexsort((self._ids, -self._worst, -self._gaps_s, ranks))

    def _owned(self, owner: str) -> list[int]:
        mine = {alert for alert, key in self.keys.items() if key.assignee == owner}
        return [*mine, *(alert for alert, standing in self.standings.items() if owner in standing.owners)]

    @cached_property
    def _ids(self) -> npt.NDArray[np.int64]:
        return np.fromiter(self.keys, np.int64, len(self.keys))

    @cached_property
    def _states(self) -> npt.NDArray[np.int64]:
        known = {status: place for place, status in enumerate(STATUSES)}
        return np.fromiter((known[key.status] for key in self.keys.values()), np.int64, len(self.keys))

    @cached_property
    def _snoozed_ns(self) -> npt.NDArray[np.int64]:
        return np.fromiter((key.snoozed_until_ns or 0 for key in self.keys.values()), np.int64, len(self.keys))

    @cached_property
    def _texts(self) -> list[str]:
        return [f"{key.title}\n{key.rev_hi}\n{key.assignee}".lower() for key in self.keys.values()]

    @cached_property
    def _gaps_s(self) -> npt.NDArray[np.float64]:
        return np.array([self.standings.get(alert, NOTHING).gap_s for alert in self.keys], dtype=np.float64)

    @cached_property
    def _worst(self) -> npt.NDArray[np.float64]:
        return np.array([self.standings.get(alert, NOTHING).worst_ratio for alert in self.keys], dtype=np.float64)


class Queue:
    """The alerts of a store; what happens to one of them shows at once, newer values of series when it is made anew."""

    def __init__(self, store: Store) -> None:
        """Read all alerts, and what each weighs."""
        self._store, self._lock = store, threading.Lock()
        self._event = store.browsing.newest_event()  # before the rest: what comes in meanwhile is read again
        keys = {key.id: key for key in store.browsing.alert_keys()}
        self._now = Columns(keys=keys, standings=standings_of(store.browsing.alert_effects()))

    def wanted(self, request: AlertFilter) -> list[int]:
        """Return the alerts that are wanted now, in order."""
        with self._lock:
            self._now = self._brought_up(self._now)
            now = self._now
        return now.wanted(request)

    def _brought_up(self, old: Columns) -> Columns:
        look = self._store.browsing
        before, self._event = self._event, look.newest_event()
        read = look.alert_keys(since_event=max(0, before - LOOKED_BACK))
        changed = {key.id: key for key in read if old.keys.get(key.id) != key}
        if not changed:
            return old
        new = [key for key in changed if key not in old.keys]
        standings = dict(old.standings)
        for part in in_parts(new):
            standings |= standings_of(look.alert_effects(part))
        return Columns(keys={**old.keys, **changed}, standings=standings)


def standings_of(rows: AlertEffects) -> dict[int, Standing]:
    """Return the sort keys of each alert.

    >>> rows = AlertEffects(alerts=(1, 1), series=(7, 8), effect_ratios=(math.log(1.25), -0.5),
    ...                     known={7: (5e-6, "kernels"), 8: (None, "")})
    >>> found = standings_of(rows)[1]
    >>> round(found.gap_s * 1e6, 9), found.worst_ratio, found.owners
    (1.0, 0.5, ('kernels',))
    """
    gaps_s: dict[int, float] = defaultdict(float)
    worst: dict[int, float] = defaultdict(float)
    owners: dict[int, set[str]] = defaultdict(set)
    for alert, series, effect in zip(rows.alerts, rows.series, rows.effect_ratios, strict=True):
        value, owner = rows.known[series]
        if value is not None:
            gaps_s[alert] += max(0.0, -value * math.expm1(-effect))
        worst[alert] = max(worst[alert], abs(effect))
        if owner:
            owners[alert].add(owner)
    return {
        number: Standing(gap_s=gaps_s.get(number, 0.0), worst_ratio=ratio, owners=tuple(sorted(owners.get(number, ()))))
        for number, ratio in worst.items()
    }


def place_in(order: Sequence[int], alert: int) -> tuple[int | None, int | None]:
    """Return the alerts before and after one in an order.

    >>> place_in([5, 3, 9], 3), place_in([5, 3, 9], 9), place_in([5], 1)
    ((5, 9), (3, None), (None, None))
    """
    if alert not in order:
        return None, None
    place = order.index(alert)
    return order[place - 1] if place else None, order[place + 1] if place + 1 < len(order) else None
