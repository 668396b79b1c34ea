"""The site over a store: link spelling, caches and write permission for the pages."""

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NearpeakError, NotFoundError
from nearpeak.reports.document import Link
from nearpeak.store import Store
from nearpeak.store.rows.list_rows import AlertRow

REMEMBERED_S, OLDEST_S = 15.0, 60.0
"""How long weights and the like are remembered where nothing new came in; the oldest that is shown while new ones are
made."""
SHARED_S, MOST_SHARED = 2.0, 200
"""Lifetime in seconds of cached pages for anonymous visitors, and their largest number."""
MOST_REMEMBERED = 1000
"""Things that are remembered at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Display options of a site."""

    is_static: bool = False
    """Whether it becomes files: no queries, no actions, no clock."""
    reports: Path | None = None
    """Folder of reports that are shown with the store."""
    is_private: bool = False
    """Whether reading needs a token."""
    own_uid: int | None = None
    """User of this host who alone reads without a token; none for everybody who reaches the port."""
    run_token: str = ""
    """Text of a token that holds as long as the server runs; empty for none."""
    run_scope: str = "submit"
    """What that token allows."""
    repository: Path | None = None
    """Git repository whose commits the farm may search; it lies at the same path on the farm's hosts."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Path of each page, with its fields in braces."""


class _Held:
    """Something that is remembered; several may ask for it at once, and one makes it."""

    __slots__ = ("found", "is_made", "is_making", "lock", "mark", "until_s")

    def __init__(self) -> None:
        self.lock, self.until_s, self.is_made, self.is_making = threading.RLock(), 0.0, False, False
        self.found: Any = None
        self.mark: Any = None

    def make(self, make: Callable[[], Any], mark: Any, held_s: float) -> Any:
        """Make it, and return it."""
        asked_s = time.monotonic()
        try:
            self.found, self.mark, self.is_made = make(), mark, True
            self.until_s = asked_s + held_s
        finally:
            self.is_making = False
        return self.found

    def make_aside(self, make: Callable[[], Any], mark: Any) -> None:
        """Compute it in the background; on failure, the next waiting request raises the error."""
        with suppress(NearpeakError):
            self.make(make, mark, REMEMBERED_S)


class Site:
    """Data and caches from which pages are built."""

    def __init__(self, store: Store, setting: Setting) -> None:
        """Keep the store and how it is shown."""
        self.store, self.setting = store, setting
        self._memory: dict[object, _Held] = {}
        self._pages: dict[object, _Held] = {}
        self._lock = threading.Lock()
        self.is_compiled = threading.Event()
        self.is_compiled.set()

    @property
    def now_ns(self) -> int | None:
        """The time; none for files, which must be the same whenever they are written."""
        return None if self.setting.is_static else time.time_ns()

    def remembered(self, name: str, make: Callable[[], Any], mark: Any = None, *, is_lazy: bool = False) -> Any:
        """Return what `make` returns, or what it returned a short while ago where `mark` is still the same.

        Args:
            is_lazy: nobody waits for what is a little out of date: what is less than OLDEST_S old, or what has the same
                mark still, is returned while a new one is made. Files wait for everything, and make it once.
        """
        held = self._entry(self._memory, name, MOST_REMEMBERED)
        left_s = held.until_s - time.monotonic()
        is_same = held.is_made and held.mark == mark
        if is_same and (left_s > 0 or self.setting.is_static):
            return held.found
        if is_lazy and held.is_made and not self.setting.is_static:
            if left_s > 0:
                return held.found
            if left_s > REMEMBERED_S - OLDEST_S or (is_same and mark is not None):
                old = held.found
                self._make_aside(held, make, mark)
                return old
        with held.lock:  # one makes it, the others wait for it
            if held.is_made and held.mark == mark and time.monotonic() < held.until_s:
                return held.found
            return held.make(make, mark, REMEMBERED_S)

    def _make_aside(self, held: _Held, make: Callable[[], Any], mark: Any) -> None:
        with self._lock:
            is_first, held.is_making = not held.is_making, True
        if is_first:
            threading.Thread(target=held.make_aside, args=(make, mark), daemon=True).start()

    def _entry(self, memory: dict[object, _Held], key: object, most: int) -> _Held:
        """Return the cached value of a key; a full cache drops its oldest entry."""
        with self._lock:
            while len(memory) >= most and key not in memory:
                del memory[next(iter(memory))]
            return memory.setdefault(key, _Held())

    def shared_now(self, path: str, query: tuple[tuple[str, str], ...]) -> Any:
        """Return what `shared` has made for an address less than SHARED_S ago; none where it would make it."""
        held = self._pages.get((path, query))
        return held.found if held is not None and time.monotonic() < held.until_s else None

    def shared(self, path: str, query: tuple[tuple[str, str], ...], make: Callable[[], Any]) -> Any:
        """Return what `make` returns for an address, or what it returned less than SHARED_S ago."""
        held = self._entry(self._pages, (path, query), MOST_SHARED)
        with held.lock:
            if time.monotonic() < held.until_s:
                return held.found
            return held.make(make, None, SHARED_S)

    def href(self, link: Link, base: str = "") -> str:
        """Return the address of a link; empty where files cannot answer what it asks.

        Args:
            base: for files, the way from the folder of the page up to that of the site.
        """
        path = self.setting.paths[link.page]
        for name, value in link.path.items():
            path = path.replace(f"{{{name}}}", quote(str(value), safe=""))
        query = {name: value for name, value in link.query.items() if value not in ("", None)}
        if self.setting.is_static:
            return "" if query else base + file_of(path)
        return path + (f"?{urlencode(query)}" if query else "")


def file_of(path: str) -> str:
    """Return the file of a path within the folder of the site.

    >>> file_of("/"), file_of("/series/3")
    ('index.html', 'series/3.html')
    """
    return "index.html" if path == "/" else f"{path[1:]}.html"


def key_of(name: str) -> str:
    """Return a name as used in addresses: letters that are safe everywhere, and a digest.

    >>> key_of("gemm")
    'gemm-16188283'
    """
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:40] or "name"
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def case_key(case: str) -> str:
    """Return a case as used in addresses: its digest, or that of the name of a foreign benchmark."""
    if re.fullmatch(r"[0-9a-f]{64}", case):
        return case[:24]
    return "x" + hashlib.sha256(case.encode("utf-8", "replace")).hexdigest()[:23]


def alert_of(store: Store, number: int) -> AlertRow:
    """Return an alert; refuses an unknown number."""
    rows = store.browsing.alerts([number])
    if not rows:
        raise NotFoundError(f"alert {number}: is not in the store")
    return rows[0]


def series_of(store: Store, number: int) -> Series:
    """Return a series; refuses an unknown number."""
    rows = store.browsing.series_by_id([number])
    if not rows:
        raise NotFoundError(f"series {number}: is not in the store")
    return rows[0]


def series_of_case(store: Store, key: str) -> Sequence[Series]:
    """Return the series of a case by its key in addresses; refuses an unknown key."""
    digest = next((row[0] for row in store.browsing.cases() if case_key(row[0]) == key), None)
    if digest is None:
        raise NotFoundError(f"case {key[:40]}: is not in the store")
    return store.browsing.series((), {"case": digest}, limit=500).rows
