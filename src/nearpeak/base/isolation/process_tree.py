"""Processes that a program started, wherever they moved: found by descent and by an environment mark, and ended."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

MARK = "NEARPEAK_PROCESS_MARK"
"""Environment variable by which everything that a program started is found again; nested marks stand side by side."""
_SAFE_PATH = "PYTHONSAFEPATH"
_SWEEP_S = 5.0
"""Time for which processes that fork while they are looked for are looked for again."""
_PAUSE_S = 0.005


def marked_environment(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return an environment with one mark more.

    >>> marked_environment({MARK: "a"}, "b")[MARK]
    'a,b'
    """
    return {**environment, MARK: ",".join(filter(None, (environment.get(MARK, ""), mark)))}


@contextlib.contextmanager
def safe_imports() -> Iterator[None]:
    """Have Python processes that start in the block import nothing from the working folder, as with `python -P`.

    `multiprocessing` and `python -m` put that folder first, where it may be /tmp and hold another user's modules.

    Source: Python documentation, "Command line and environment", PYTHONSAFEPATH.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


def new_mark() -> str:
    """Return a mark that no other program has."""
    return uuid.uuid4().hex


def marked(mark: str) -> list[Any]:
    """Return the processes that carry a mark, as psutil's."""
    import psutil

    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if mark in _marks_of(process).split(","):
                processes.append(process)
    return processes


def _marks_of(process: Any) -> str:
    if sys.platform != "linux":
        return str(process.environ().get(MARK, ""))
    prefix = f"{MARK}=".encode()
    words = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    return next((word[len(prefix) :].decode("ascii", "replace") for word in words if word.startswith(prefix)), "")


def descendants(pid: int) -> list[Any]:
    """Return what a process and its children started and what still descends from it, as psutil's processes."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def end_all(processes_of: Callable[[], Iterable[Any]]) -> int:
    """Kill the processes that `processes_of` names until it names none; return how many there were.

    They are stopped before they are killed, so that none forks while the others end.
    """
    import psutil

    ended, until_s = set[Any](), time.monotonic() + _SWEEP_S
    while processes := [process for process in processes_of() if _is_alive(process)]:
        for act in ("suspend", "kill"):
            for process in processes:
                with contextlib.suppress(psutil.Error):
                    getattr(process, act)()
        ended.update(processes)
        if time.monotonic() > until_s:
            break
        time.sleep(_PAUSE_S)
    return len(ended)


def _is_alive(process: Any) -> bool:
    """Return whether a process runs; one that has ended and only waits to be collected does not."""
    import psutil

    try:
        return bool(process.pid != os.getpid() and process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def end_started(process: "subprocess.Popen[Any]", mark: str) -> int:
    """End a process, its group, and everything that carries its mark; return how many had left the group.

    The group is ended before its leader is waited for: until then nobody else can get its number.
    """
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return end_all(lambda: marked(mark))


def is_stopped(pid: int) -> bool:
    """Return whether a process exists and was stopped by a signal."""
    import psutil

    try:
        return str(psutil.Process(pid).status()) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
    except psutil.Error:
        return False


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and all that descends from it; pages that two of them share count twice."""
    import psutil

    total = 0
    with contextlib.suppress(psutil.Error):
        for process in (psutil.Process(pid), *descendants(pid)):
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
    return total


def most_added_bytes(processes: Iterable[Any]) -> int:
    """Return an upper end of `added_bytes`, which no process can keep from being read."""
    pids = [process.pid for process in processes]
    return _open_file_bytes(pids) + sum(
        _fields(f"/proc/{pid}/status", ("RssAnon", "RssShmem", "VmSwap")) for pid in pids
    )


def added_bytes(origin: int, processes: Iterable[Any]) -> int:
    """Return the memory that processes forked from `origin` hold beyond what they still share with it; 0 off Linux.

    A page that n processes share counts 1/n in each ("proportional set size", Linux's proc(5)), so that the parts of
    the origin's pages that its forks are charged are what the origin is spared. Open anonymous files count as well.
    It waits for each process that changes its mappings: with a hundred that fork, most of a minute.
    """
    pids = [process.pid for process in processes]
    origin_bytes = _fields(f"/proc/{origin}/status", ("RssAnon", "RssShmem"))
    parts = ("Pss_Anon", "Pss_Shmem", "SwapPss")
    spared = max(0, origin_bytes - _fields(f"/proc/{origin}/smaps_rollup", parts[:2]))
    held = sum(_fields(f"/proc/{pid}/smaps_rollup", parts) for pid in pids)
    return max(0, held - spared) + _open_file_bytes(pids)


def _fields(path: str, names: tuple[str, ...]) -> int:
    """Return the sum of fields of a file of /proc, which states kB; 0 where the process has ended."""
    total = 0
    with contextlib.suppress(OSError, ValueError), open(path, encoding="ascii", errors="replace") as file:
        for line in file:
            name, _, value = line.partition(":")
            total += int(value.split()[0]) * 1024 if name in names else 0
    return total


def _open_file_bytes(pids: Iterable[int]) -> int:
    """Return the memory of anonymous files (memfd_create(2)) that processes hold open."""
    sizes = dict[tuple[int, int], int]()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(entry.path).startswith("/memfd:"):
                        state = os.stat(entry.path)
                        sizes[state.st_dev, state.st_ino] = state.st_blocks * 512
    return sum(sizes.values())
