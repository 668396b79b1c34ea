"""Separate worker queues for slow and quick requests of the dashboard, so that slow ones do not delay quick ones."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from nearpeak.web.request_guard import RefusedError

PAGES, EXPORTS, READS, WRITES, BODIES, UPLOADS = "pages", "exports", "reads", "writes", "bodies", "uploads"
_AT_ONCE = {PAGES: 3, EXPORTS: 1, READS: 2, WRITES: 2, BODIES: 6, UPLOADS: 1}
"""Requests of a kind that are worked on at once: they share one interpreter, so that more would all be late."""
_WAITING = {PAGES: 200, EXPORTS: 8, READS: 100, WRITES: 100, BODIES: 50, UPLOADS: 6}
"""Requests of a kind that may wait. Large bodies are read at their turn (BODIES), and held until the next (UPLOADS)."""
T = TypeVar("T")


class Queues:
    """The queues of a server."""

    def __init__(self) -> None:
        """Begin without anybody waiting."""
        self._turns = {kind: asyncio.Semaphore(count) for kind, count in _AT_ONCE.items()}
        self._waiting_count = Counter[str]()

    @asynccontextmanager
    async def turn(self, kind: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it within the block.

        Raises:
            RefusedError: too many wait already; says with status 503 to come again.
        """
        turns = self._turns[kind]
        if turns.locked() and self._waiting_count[kind] >= _WAITING[kind]:
            raise RefusedError(503, "too many requests of this kind at once; come again in a second")
        self._waiting_count[kind] += 1
        try:
            await turns.acquire()
        finally:
            self._waiting_count[kind] -= 1
        try:
            yield
        finally:
            turns.release()

    async def run(self, kind: str, work: Callable[..., T], *values: object) -> T:
        """Return what a function returns, called on a thread of its own at its turn."""
        async with self.turn(kind):
            return await run_in_threadpool(work, *values)
