"""Watchdog of a child process: own process group, bounded output, time and memory limits, complete cleanup."""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from nearpeak.base.isolation.output_tail import Tail
from nearpeak.base.isolation.process_tree import end_started, marked_environment, new_mark, resident_bytes

GRACE_S = 5.0
"""Time between asking a process to end and ending it."""
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "XDG_CACHE_HOME",
         "XDG_DATA_HOME", "CUDA_HOME", "CUDA_PATH", "NUMBA_CACHE_DIR", "SSL_CERT_FILE")  # fmt: skip
_TAIL_BYTES = 16384
_TICK_S = 0.05
_MEMORY_TICK_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """How a process ended."""

    verdict: str
    """`ended`, `timeout`, `memory` or `stopped` (its lease was lost)."""
    code: int
    """Exit code, negative for a signal."""
    output: str
    """Tail of what it printed."""
    time_s: float
    """How long it ran."""
    left_count: int
    """Processes that it left behind, which were ended."""
    forced: bool
    """Whether it had to be ended by KILL."""


def environment_for(device: str, more: Mapping[str, str] = {}) -> dict[str, str]:
    """Return the environment of a measurement: what it needs and nothing else; secrets of the farm stay out.

    Args:
        device: name of the device; a GPU or slice becomes the only one that is seen.
    """
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    if device.startswith(("GPU-", "MIG-")):
        environment["CUDA_VISIBLE_DEVICES"] = device
    elif device:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return environment | dict(more)


def watched(
    words: Sequence[str], *, environment: Mapping[str, str], limit_s: float, memory_bytes: int | None = None,
    is_stopped: Callable[[], bool] = lambda: False, keep: Sequence[int] = (), folder: Path | None = None,
    started: Callable[[int], None] = lambda _: None, grace_s: float = GRACE_S,
) -> Watched:  # fmt: skip
    """Run a command until it ends, its time is up, it takes too much memory, or `is_stopped` says so.

    It is asked to end (TERM), then ended (KILL), with its whole group and with everything that carries its mark: what
    left the group as well.

    Args:
        keep: files that it inherits: the lock of its device.
        started: called with the process id once the process runs.
    """
    mark = new_mark()
    begun_s = time.monotonic()
    process = subprocess.Popen(
        list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=tuple(keep),
        env=marked_environment(environment, mark), start_new_session=True, cwd=folder,
    )  # fmt: skip
    started(process.pid)
    assert process.stdout is not None
    tail = _Pipe(process.stdout)
    try:
        verdict = _waited(process, tail, begun_s + limit_s, memory_bytes, is_stopped)
        forced = verdict != "ended" and _ended(process, tail, grace_s)
    finally:
        left = end_started(process, mark)
        tail.close()
    return Watched(
        verdict=verdict, code=process.returncode, output=tail.text(), time_s=time.monotonic() - begun_s,
        left_count=left, forced=forced,
    )  # fmt: skip


class _Pipe:
    """Reads a pipe so that it never fills, and keeps its end."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe, self._tail = pipe, Tail(_TAIL_BYTES)
        os.set_blocking(pipe.fileno(), False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(pipe, selectors.EVENT_READ)
        self._open = True

    def read(self, wait_s: float) -> None:
        """Take what is there, waiting at most so long for something."""
        if not self._open:
            time.sleep(wait_s)
            return
        if not self._selector.select(wait_s):
            return
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._pipe.fileno(), 1 << 20)
            self._tail.add(data)
            if not data:
                self._selector.unregister(self._pipe)
                self._open = False

    def close(self) -> None:
        self.read(0.0)
        self._selector.close()
        self._pipe.close()

    def text(self) -> str:
        return self._tail.text()


def _waited(
    process: "subprocess.Popen[bytes]", tail: _Pipe, deadline_s: float, memory_bytes: int | None,
    is_stopped: Callable[[], bool],
) -> str:  # fmt: skip
    looked_s = time.monotonic()
    while process.poll() is None:
        tail.read(_TICK_S)
        now_s = time.monotonic()
        if is_stopped():
            return "stopped"
        if now_s > deadline_s:
            return "timeout"
        if memory_bytes is not None and now_s - looked_s > _MEMORY_TICK_S:
            looked_s = now_s
            if resident_bytes(process.pid) > memory_bytes:
                return "memory"
    return "ended"


def _ended(process: "subprocess.Popen[bytes]", tail: _Pipe, grace_s: float) -> bool:
    """Ask the group to end, then end it; say whether it had to be."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGTERM)
    until_s = time.monotonic() + grace_s
    while process.poll() is None and time.monotonic() < until_s:
        tail.read(_TICK_S)
    return process.poll() is None
