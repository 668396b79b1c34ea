"""Function calls in a child process of their own, forked from a server that has imported the slow packages."""

import atexit
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearpeak.base.isolation.child_watch import MOST_ANSWER_BYTES, Watch
from nearpeak.base.isolation.message_frame import NONCE_BYTES, Answer, receive, send
from nearpeak.base.isolation.process_tree import (
    descendants,
    end_all,
    is_stopped,
    marked,
    marked_environment,
    new_mark,
)

_START = "import sys; from nearpeak.base.isolation.fork_server import serve; serve(sys.argv[1:])"
_START_S = 600.0
"""Time within which a server has imported its packages."""
_END_S, _PATIENCE_S = 10.0, 0.5
"""Time within which a server has ended a child and all that it started; within which it answers, unless stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a child process ended."""

    verdict: str
    """`result`, `error` (a NearpeakError), `raised` (any other), `died`, `memory` (ended as it took too much) or
    `timeout`."""
    value: Any
    """The result as JSON holds it; name and message of the error; the exit code, negative for a signal; of a timeout
    and of too much memory, the bytes that it had added to its memory, where that is known."""
    output: str = ""
    """Tail of its output."""

    @property
    def signal_name(self) -> str:
        """Name of the signal that ended the child, empty when none did."""
        ended = self.verdict == "died" and isinstance(self.value, int) and self.value < 0
        return signal.Signals(-self.value).name if ended else ""


def call_isolated(
    function: str,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float,
    memory_bytes: int | None,
    preload: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    inherits: bool = True,
) -> Ending:
    """Return how a call of `function` ended in a child process of its own.

    The child inherits no file but the pipes of its answer and its output. When the call is over, it is ended with
    everything that it started, whatever group or session that moved to. The server runs nothing but its preloads, so
    that every child starts from the same clean state; time and memory are watched from this process, as a child may
    stop or end the server.

    Args:
        function: `module:function`.
        arguments: keyword arguments; like the result they cross a pipe as JSON, in which tuples are lists.
        timeout_s: limit of wall time, the server's start excluded.
        memory_bytes: address space that the child may add to what it starts with, and memory that it may take
            together with all that it starts; none for no limit.
        preload: modules that the server imports before it forks; `module:function` is then called as well.
        variables: environment variables of the server, e.g. how many threads libraries start.
        inherits: whether the server also has those of this process.

    >>> call_isolated("math:sqrt_", {}, timeout_s=60, memory_bytes=None).verdict
    'raised'
    """
    request = {
        "function": function, "arguments": dict(arguments), "memory_bytes": memory_bytes, "path": list(sys.path),
        "folder": _folder(),
    }  # fmt: skip
    server = _server(tuple(preload), tuple(sorted((variables or {}).items())), inherits)
    return server.ask(request, float(timeout_s))


def _folder() -> str:
    """Return the working folder; empty where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


class _Server:
    """One process with the slow packages loaded, which forks a child per request."""

    def __init__(self, preload: tuple[str, ...], variables: tuple[tuple[str, str], ...], inherits: bool) -> None:
        self._lock, self._mark = threading.Lock(), new_mark()
        self._own: frozenset[int] | None = None
        # A socket, not pipes: a pipe can be opened again through /proc by any process of the same user.
        self._connection, end = socket.socketpair()
        environment = {**(os.environ if inherits else {}), **dict(variables)}
        with end:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *preload], env=marked_environment(environment, self._mark),
                stdin=end.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        send(self._connection, sys.path)
        atexit.register(self.stop)

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> Ending:
        """Return how the request ended."""
        with self._lock, _pipe() as result, _pipe() as output:
            kills, watch, nonce = memory_kills(), None, secrets.token_bytes(NONCE_BYTES)
            try:
                self._begin({**request, "nonce": nonce.hex()}, result, output)
                watch = Watch(
                    server=self._process.pid, own=self._own or frozenset(), connection=self._connection,
                    result=result[0], output=output[0],
                    deadline_s=time.monotonic() + timeout_s, memory_bytes=request["memory_bytes"],
                    answer=Answer(nonce, MOST_ANSWER_BYTES),
                )  # fmt: skip
                verdict, value = watch.verdict()
                self._finish(watch)
            except (EOFError, OSError):
                self.stop(watch)
                verdict, value = "died", self._process.returncode
            except BaseException:  # interrupted: the child must not go on
                self.stop(watch)
                raise
        if verdict == "died" and value == -signal.SIGKILL and memory_kills() > kills:
            verdict = "memory"
        return Ending(verdict=verdict, value=value, output=watch.printed.text() if watch else "")

    def _begin(self, request: Mapping[str, Any], result: list[int], output: list[int]) -> None:
        """Send the request once the server is ready, with the ends of the pipes that the child writes to."""
        if self._own is None:
            self._connection.settimeout(_START_S)
            self._own = frozenset(receive(self._connection)[0]["own"])
            self._connection.settimeout(_PATIENCE_S)
        ends = (result.pop(), output.pop())
        try:
            send(self._connection, request, ends)
        finally:
            for end in ends:
                os.close(end)

    def _finish(self, watch: Watch) -> None:
        """Have the server end the child and all that it started; without it where it does not answer."""
        until_s = time.monotonic() + _END_S
        watch.end_group()
        try:
            send(self._connection, {"end": True})
            while not self._has_ended_all():
                if time.monotonic() > until_s or is_stopped(self._process.pid):
                    self.stop(watch)
                    return
        except (EOFError, OSError):
            self.stop(watch)

    def _has_ended_all(self) -> bool:
        """Return whether the server says so; it may first say that the child has started, or how it ended."""
        try:
            return "left_count" in receive(self._connection)[0]
        except TimeoutError:
            return False

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def stop(self, watch: Watch | None = None) -> None:
        """End the server, its child, if any, and all that this started."""
        if watch:
            watch.end_group()
        processes = [*descendants(self._process.pid), *(watch.seen.values() if watch else ())]
        self._process.kill()
        self._process.wait()
        self._connection.close()
        if processes or watch:
            end_all(lambda: {*processes, *marked(self._mark)})


@contextlib.contextmanager
def _pipe() -> Iterator[list[int]]:
    """Yield the ends of a pipe; those that are still in the list afterwards are closed."""
    ends = list(os.pipe())
    try:
        yield ends
    finally:
        for end in ends:
            os.close(end)


def memory_kills() -> int:
    """Return how many processes Linux has killed for their memory since boot, 0 where it does not count them."""
    try:
        words = Path("/proc/vmstat").read_text(encoding="ascii").split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0


_Key = tuple[tuple[str, ...], tuple[tuple[str, str], ...], bool]
_SERVERS: dict[_Key, _Server] = {}
"""Running servers by their start arguments: starting one takes seconds, so they outlive the call."""
_STARTING = threading.Lock()


def _server(preload: tuple[str, ...], variables: tuple[tuple[str, str], ...], inherits: bool) -> _Server:
    """Return the running server, started again if it has ended; others go on, whichever thread asks."""
    key = (preload, variables, inherits)
    with _STARTING:
        server = _SERVERS.get(key)
        if server is None or not server.alive():
            server = _SERVERS[key] = _Server(preload, variables, inherits)
        return server
