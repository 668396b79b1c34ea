"""Function calls in a child process of their own, forked from a server that has imported the slow packages."""

import atexit
import json
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_START = "import sys; from nearpeak.base.isolation.fork_server import serve; serve(sys.argv[1:])"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a child process ended."""

    verdict: str
    """`result`, `error` (a NearpeakError), `raised` (any other), `died`, `memory` (ended as it took too much) or
    `timeout`."""
    value: Any
    """The result as JSON holds it; name and message of the error; the exit code, negative for a signal; of a timeout,
    the bytes that it had added to its memory, where that is known."""
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

    The child has its own process group, which is killed when the call is over, and its output is swallowed. The
    server runs nothing but its preloads, so that every child starts from the same clean state.

    Args:
        function: `module:function`.
        arguments: keyword arguments; like the result they cross a pipe as JSON, in which tuples are lists.
        timeout_s: limit of wall time, the server's start excluded.
        memory_bytes: address space that the child may add to what it starts with; none for no limit.
        preload: modules that the server imports before it forks; `module:function` is then called as well.
        variables: environment variables of the server, e.g. how many threads libraries start.
        inherits: whether the server also has those of this process.

    >>> call_isolated("math:sqrt_", {}, timeout_s=60, memory_bytes=None).verdict
    'raised'
    """
    request = (function, dict(arguments), float(timeout_s), memory_bytes, list(sys.path))
    server = _server(tuple(preload), tuple(sorted((variables or {}).items())), inherits)
    return server.ask(request)


class _Server:
    """One process with the slow packages loaded, which forks a child per request."""

    def __init__(self, preload: tuple[str, ...], variables: tuple[tuple[str, str], ...], inherits: bool) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, *preload], env={**(os.environ if inherits else {}), **dict(variables)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        send(self._process.stdin, sys.path)
        atexit.register(self.stop)

    def ask(self, request: object) -> Ending:
        """Return how the request ended."""
        with self._lock:
            try:
                send(self._process.stdin, request)
                verdict, output = json.loads(receive(self._process.stdout))
                value = json.loads(receive(self._process.stdout))
            except (EOFError, OSError):
                self.stop()
                return Ending(verdict="died", value=self._process.returncode)
            except BaseException:  # interrupted: the child must not go on
                self.stop()
                raise
        return Ending(verdict=verdict, value=value, output=output)

    def alive(self) -> bool:
        """Return whether the process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the server; its child, if any, dies with it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


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


def send(pipe: Any, value: object) -> None:
    """Write one message: the length of its JSON text, then the text; bytes are such a text already."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    pipe.write(struct.pack(">Q", len(data)) + data)
    pipe.flush()


def receive(pipe: Any) -> bytes:
    """Return the next message; the end of the pipe is an EOFError."""
    header = pipe.read(8)
    if len(header) < 8:
        raise EOFError
    (length,) = struct.unpack(">Q", header)
    data: bytes = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return data
