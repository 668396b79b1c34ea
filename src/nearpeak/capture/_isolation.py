"""Runs captures in child processes: a model's code may print, hang, crash or eat memory without harm to the caller."""

import atexit
import io
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nearpeak import errors
from nearpeak.core.workload import Workload
from nearpeak.errors import CaptureError, NearpeakError

TIMEOUT_S = 300.0
MEMORY_BYTES = 8 << 30
PRELOAD = ("torch",)

_START = "import sys; from nearpeak.capture._isolation_server import serve; serve(sys.argv[1:])"


def run_isolated(
    function: str,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
    preload: Sequence[str] = PRELOAD,
) -> Any:
    """Return what `function` returns in a child process of its own.

    A server process imports the slow packages once and forks a child per call. The child has its own process
    group, which is killed when the call is over, and whose output is swallowed.

    Args:
        function: `module:function`.
        arguments: keyword arguments; like the result they cross a pipe as pickles.
        timeout_s: limit of wall time, the server's start excluded.
        memory_bytes: address space that the child may add to what it starts with.
        preload: modules that the server imports before it forks.

    Raises:
        CaptureError: the child ran out of time or memory, or ended without an answer.
        NearpeakError: what the function itself raised.
    """
    subject = next((str(arguments[key]) for key in ("path", "name_or_config", "name") if key in arguments), function)
    request = (function, dict(arguments), float(timeout_s), int(memory_bytes), list(sys.path), subject)
    verdict, payload, output = _server(tuple(preload)).ask(request)
    if verdict == "result":
        return _loads(payload)
    if verdict == "error":
        kind, message = _loads(payload)
        raise getattr(errors, kind, CaptureError)(message)
    raise CaptureError(_ending(subject, verdict, payload, output, timeout_s, memory_bytes))


def capture_many(
    paths: Iterable[Path],
    *,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
    **options: Any,
) -> Iterator[tuple[Path, Workload | NearpeakError]]:
    """Yield each problem file with its workload, or with the error that it met, as soon as it is known."""
    for path in paths:
        arguments = {"path": path, **options}
        try:
            function = "nearpeak.capture.problem_file:capture_problem"
            yield path, run_isolated(function, arguments, timeout_s=timeout_s, memory_bytes=memory_bytes)
        except NearpeakError as error:
            yield path, error


def _ending(subject: str, verdict: str, payload: Any, output: str, timeout_s: float, memory_bytes: int) -> str:
    """Return the message for a child that gave no answer."""
    if verdict == "timeout":
        return f"{subject}: capture did not finish within {timeout_s:g} s; give more with --timeout"
    said = output.strip().splitlines()
    last = f"; it said last: {said[-1][:200]}" if said else ""
    code = int(payload)
    if code >= 0:
        return f"{subject}: it ended the capture process with exit code {code} before the capture was done{last}"
    name = signal.Signals(-code).name
    limit = f"{memory_bytes / (1 << 30):g} GiB"
    if name in ("SIGKILL", "SIGABRT"):
        return f"{subject}: the capture process was ended by {name}, perhaps over its {limit}; see --memory{last}"
    return f"{subject}: it crashed the capture process ({name}){last}"


class _Server:
    """One process with the slow packages loaded, which forks a child per request."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _START, *preload],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        send(self._process.stdin, pickle.dumps(list(sys.path)))
        atexit.register(self.stop)

    def ask(self, request: object) -> tuple[str, Any, str]:
        """Return verdict, payload and the tail of what the child printed."""
        with self._lock:
            try:
                send(self._process.stdin, pickle.dumps(request))
                answer: tuple[str, Any, str] = _loads(receive(self._process.stdout))
            except (EOFError, OSError):
                self.stop()
                return "died", self._process.returncode, ""
            except BaseException:  # interrupted: the child must not go on
                self.stop()
                raise
            return answer

    def alive(self) -> bool:
        """Say whether the process still runs."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the server; its child, if any, dies with it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@cache
def _started(preload: tuple[str, ...]) -> _Server:
    return _Server(preload)


def _server(preload: tuple[str, ...]) -> _Server:
    """Return the running server, started again if it has ended."""
    found = _started(preload)
    if found.alive():
        return found
    _started.cache_clear()
    return _started(preload)


def send(pipe: Any, data: bytes) -> None:
    """Write one message: its length, then its bytes."""
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


class _OwnTypes(pickle.Unpickler):
    """Reads values of nearpeak only: what comes back was made beside foreign code."""

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("nearpeak.") or (module, name) in {("pathlib", "PosixPath"), ("builtins", "frozenset")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not a value of nearpeak")


def _loads(data: bytes) -> Any:
    return _OwnTypes(io.BytesIO(data)).load()
