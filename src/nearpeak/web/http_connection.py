"""HTTP connections with deadlines: whoever sends or reads too slowly, or holds too many open, keeps nobody waiting."""

import asyncio
import gc
import logging
import resource
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from nearpeak.base.peer_user import peer_uid
from nearpeak.web.prometheus_metrics import CROWDED, LATE, MALFORMED, STALLED, Traffic
from nearpeak.web.request_guard import PEER, Guarded

HEAD_S = 10.0
"""Longest time for the head of a request to arrive; also for a connection that says nothing."""
BODY_BYTES_PER_S = 16 * 1024
"""Least rate at which a body arrives, after the time of a head."""
STALLED_S = 15.0
"""Longest time for which a client may read nothing of its answer."""
IDLE_S = 15
"""How long a connection stays open between two requests."""
OPEN_COUNT, MOST_OPEN_COUNT = 400, 8000
"""Connections above which the one is closed that has waited longest for its client: after RUSH_S; at once."""
RUSH_S = 2.0
"""How long a connection may wait for its client while there are more than OPEN_COUNT."""
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_QUIET = logging.getLogger("nearpeak.web")
"""What clients do wrong is counted (`/metrics`), not logged: a log that everybody can fill hides what matters."""
_QUIET.setLevel(logging.ERROR)


class Connection(H11Protocol):
    """One connection, which is given up when its client is too slow."""

    _reading: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def __init__(self, *, traffic: Traffic, **options: Any) -> None:
        """Keep where to count what is given up."""
        super().__init__(**options)
        self._traffic, self._received_count = traffic, 0
        self.begun_s = 0.0
        """When the request began that is arriving, by the loop's clock."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; close others where there are too many."""
        super().connection_made(transport)
        self.logger = _QUIET
        here, peer = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
        self.app_state = {**self.app_state, PEER: peer_uid(peer[:2], here[:2]) if here and peer else None}
        self._begin()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._end()
        self._resume()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what arrives; the time of a request runs from its first byte."""
        if self._reading is None:
            self._begin()
        self._received_count += len(data)
        super().data_received(data)
        if self._is_whole():
            self._end()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(STALLED_S, self._abort)

    def resume_writing(self) -> None:
        """End that."""
        super().resume_writing()
        self._resume()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP; a client that is gone already is not answered."""
        self._traffic.give_up(MALFORMED)
        if self._is_answering():  # a request before this one, on the same connection
            self.cycle.disconnected = True
        with suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self._close()

    def is_waiting(self) -> bool:
        """Say whether it is the client's turn: to send the rest of a request, or to read an answer."""
        return not self._is_whole() or self.flow.write_paused

    def give_up(self, reason: str, answer: bytes) -> None:
        """Close the connection, with an answer where none has begun."""
        self._traffic.give_up(reason)
        self._end()
        if not self._is_answering() or not self.cycle.response_started:
            self.transport.write(answer)
        self._close()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that asks for nothing more."""
        super().timeout_keep_alive_handler()
        self._close()

    def _close(self) -> None:
        """Close the connection; what the client does not read is thrown away after a while."""
        self.transport.close()
        self.loop.call_later(0.0 if self.flow.write_paused else HEAD_S, self.transport.abort)

    def _is_answering(self) -> bool:
        return not getattr(self.cycle, "response_complete", True)  # none before the first request

    def _is_whole(self) -> bool:
        return self._is_answering() and not self.cycle.more_body

    def _begin(self) -> None:
        self.begun_s, self._received_count = self.loop.time(), 0
        self._reading = self.loop.call_later(HEAD_S, self._check)

    def _end(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def _resume(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _check(self) -> None:
        self._reading = None
        body_s = self._received_count / BODY_BYTES_PER_S if self._is_answering() else 0.0
        left_s = self.begun_s + HEAD_S + body_s - self.loop.time()
        if self.flow.read_paused:  # it is we who do not read
            left_s = max(left_s, 1.0)
        if left_s > 0:
            self._reading = self.loop.call_later(left_s, self._check)
        else:
            self.give_up(LATE, _LATE if self._received_count else b"")

    def _make_room(self) -> None:
        count = len(self.connections)
        if count <= OPEN_COUNT:
            return
        others: Iterable[Any] = self.connections
        waiting = [other for other in others if other.is_waiting() and not other.transport.is_closing()]
        oldest = min(waiting, key=lambda other: other.begun_s)
        if oldest.begun_s < self.loop.time() - RUSH_S or count > MOST_OPEN_COUNT:
            oldest.give_up(CROWDED, _FULL)

    def _abort(self) -> None:
        self._traffic.give_up(STALLED)
        self.transport.abort()


def server_of(app: Guarded) -> uvicorn.Server:
    """Return a server of the dashboard whose connections have deadlines."""
    http: Any = partial(Connection, traffic=app.traffic)
    return uvicorn.Server(
        uvicorn.Config(
            app, http=http, ws="none", log_level="error", access_log=False, server_header=False, lifespan="off",
            timeout_keep_alive=IDLE_S, h11_max_incomplete_event_size=64 * 1024, timeout_graceful_shutdown=5,
        )
    )  # fmt: skip


def prepare_process() -> None:
    """Let this process have as many connections as it may, pause rarely, and log no mistakes of clients."""
    sys.setswitchinterval(0.001)  # the thread that answers waits that long for each one that builds a page
    gc.set_threshold(20_000, 20, 50)  # requests make few cycles, and a search for them stops all of them
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if most > soft:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
