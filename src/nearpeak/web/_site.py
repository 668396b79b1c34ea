"""A store with what the pages need beside it: how links are spelled, what is remembered, who may write."""

import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from nearpeak.store import Store
from nearpeak.web._view import Link

REMEMBERED_S = 15.0
"""How long weights and the like are remembered where nothing new came in."""
SHARED_S, MOST_SHARED = 2.0, 200
"""How long a page is given to others who ask for it without having signed in; pages that are kept for that."""
MOST_REMEMBERED = 1000
"""Things that are remembered at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a site is shown."""

    is_static: bool = False
    """Whether it becomes files: no queries, no actions, no clock."""
    reports: Path | None = None
    """Folder of reports that are shown beside the store."""
    is_private: bool = False
    """Whether reading needs a token."""
    session_token: str = ""
    """Text of a token that holds as long as the server runs; empty for none."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Path of each page, with its fields in braces."""


class _Shared:
    """A page that several may ask for at once."""

    __slots__ = ("found", "lock", "until_s")

    def __init__(self) -> None:
        self.lock, self.until_s = threading.Lock(), 0.0
        self.found: Any = None


class Site:
    """What pages are built from."""

    def __init__(self, store: Store, setting: Setting) -> None:
        """Keep the store and how it is shown."""
        self.store, self.setting = store, setting
        self._memory: dict[str, tuple[Any, float, Any]] = {}
        self._making: set[str] = set()
        self._shared: dict[tuple[str, tuple[tuple[str, str], ...]], _Shared] = {}
        self._lock = threading.RLock()

    @property
    def now_ns(self) -> int | None:
        """The time; none for files, which must be the same whenever they are written."""
        return None if self.setting.is_static else time.time_ns()

    def remembered(self, name: str, make: Callable[[], Any], mark: Any = None, *, is_lazy: bool = False) -> Any:
        """Return what `make` returns, or what it returned a short while ago where `mark` is still the same.

        Args:
            is_lazy: nobody waits for what is out of date: the old one, at most REMEMBERED_S old when it was asked for
                last, is returned while a new one is made.
        """
        known = self._memory.get(name)
        if known and (is_lazy or known[0] == mark) and time.monotonic() < known[1]:
            return known[2]
        if is_lazy and known:
            if name not in self._making:
                self._making.add(name)
                threading.Thread(target=self._made, args=(name, make, mark), daemon=True).start()
            return known[2]
        with self._lock:  # one makes it, the others wait for it
            known = self._memory.get(name)
            if known and known[0] == mark and time.monotonic() < known[1]:
                return known[2]
            return self._made(name, make, mark)

    def _made(self, name: str, make: Callable[[], Any], mark: Any) -> Any:
        try:
            found = make()
            if len(self._memory) > MOST_REMEMBERED:
                self._memory.clear()
            self._memory[name] = (mark, time.monotonic() + REMEMBERED_S, found)
        finally:
            self._making.discard(name)
        return found

    def shared(self, path: str, query: tuple[tuple[str, str], ...], make: Callable[[], Any]) -> Any:
        """Return what `make` returns for an address, or what it returned less than SHARED_S ago."""
        with self._lock:
            while len(self._shared) > MOST_SHARED:
                self._shared.pop(next(iter(self._shared)))
            entry = self._shared.setdefault((path, query), _Shared())
        with entry.lock:
            if time.monotonic() >= entry.until_s:
                entry.found = make()
                entry.until_s = time.monotonic() + SHARED_S
            return entry.found

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
    """Return a name as it stands in addresses: letters that are safe everywhere, and a digest.

    >>> key_of("gemm")
    'gemm-93af1ae0'
    """
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", name).strip("-.")[:40] or "name"
    return f"{plain}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def case_key(case: str) -> str:
    """Return a case as it stands in addresses: its digest, or that of the name of a foreign benchmark."""
    if re.fullmatch(r"[0-9a-f]{64}", case):
        return case[:24]
    return "x" + hashlib.sha256(case.encode("utf-8", "replace")).hexdigest()[:23]
