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


class Site:
    """What pages are built from."""

    def __init__(self, store: Store, setting: Setting) -> None:
        """Keep the store and how it is shown."""
        self.store, self.setting = store, setting
        self._memory: dict[str, tuple[Any, float, Any]] = {}
        self._lock = threading.Lock()

    @property
    def now_ns(self) -> int | None:
        """The time; none for files, which must be the same whenever they are written."""
        return None if self.setting.is_static else time.time_ns()

    def remembered(self, name: str, make: Callable[[], Any], mark: Any = None) -> Any:
        """Return what `make` returns, or what it returned a short while ago where `mark` is still the same."""
        known = self._memory.get(name)
        if known and known[0] == mark and time.monotonic() < known[1]:
            return known[2]
        with self._lock:  # one makes it, the others wait for it
            known = self._memory.get(name)
            if known and known[0] == mark and time.monotonic() < known[1]:
                return known[2]
            found = make()
            if len(self._memory) > 5000:
                self._memory.clear()
            self._memory[name] = (mark, time.monotonic() + REMEMBERED_S, found)
        return found

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
