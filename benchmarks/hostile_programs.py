"""Capture of problem files that attack it: limits of time and memory hold, nothing survives, the caller is unharmed."""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks._figures import Figure
from benchmarks._hostile_programs import GROUPS, LONG_S, source_of
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import NearpeakError
from nearpeak.frontends.source_types import captured

FIGURES = ("hostile_programs", "hostile_programs_faults", "hostile_programs_time", "hostile_programs_memory")
TIMEOUT_S, MEMORY_BYTES = 10.0, 1 << 30
_TICK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of one program."""

    name: str
    fault: str
    """What was not as it must be; empty otherwise."""
    text: str
    """The error, or `captured`."""
    time_ratio: float
    """Time until the answer over the limit."""
    memory_ratio: float
    """Most memory that the program's processes held of their own, over the limit."""


def measure() -> Iterator[Figure]:
    """Yield how many programs were tried, how many left a fault, and the worst time and memory against the limits."""
    outcomes = list(tried(name for group in GROUPS.values() for name in group))
    for outcome in outcomes:
        print(f"  {outcome.name}: {outcome.fault or 'sound'}: {outcome.text[:160]}", file=sys.stderr)
    faults = sum(bool(outcome.fault) for outcome in outcomes)
    times, sizes = (max(getattr(o, name) for o in outcomes) for name in ("time_ratio", "memory_ratio"))
    count = len(outcomes)
    yield Figure(name="hostile_programs", value=count, unit="programs", bar=">= 40", passed=count >= 40)
    yield Figure(name="hostile_programs_faults", value=faults, unit="programs", bar="0", passed=faults == 0)
    yield Figure(name="hostile_programs_time", value=times, unit="of the limit", bar="<= 1.1", passed=times <= 1.1)
    yield Figure(name="hostile_programs_memory", value=sizes, unit="of the limit", bar="<= 1.1", passed=sizes <= 1.1)


def tried(names: Iterator[str] | list[str]) -> Iterator[Outcome]:
    """Capture each program, and after it one that attacks nothing."""
    with tempfile.TemporaryDirectory() as folder:
        _captured(Path(folder), "good")  # starts the server
        for name in names:
            yield _tried(Path(folder), name)


def _tried(folder: Path, name: str) -> Outcome:
    before, begun_s = _state(), time.monotonic()
    with _Meter() as meter:
        text = _captured(folder, name)
    time_s = time.monotonic() - begun_s
    left = _left()
    for process in left:
        process.kill()
    sound = _captured(folder, "good")
    after = _state()
    faults = [
        f"{len(left)} processes survive" if left else "",
        f"the caller's state changed from {before} to {after}" if before != after else "",
        text if text.startswith("traceback") else "",
        f"took {time_s:.1f} s" if time_s > 1.1 * TIMEOUT_S else "",
        f"took {meter.most_bytes >> 20} MiB" if meter.most_bytes > 1.1 * MEMORY_BYTES else "",
        "a sound file is not captured any more" if sound != "captured" else "",
    ]
    return Outcome(
        name=name, fault="; ".join(filter(None, faults)), text=text, time_ratio=time_s / TIMEOUT_S,
        memory_ratio=meter.most_bytes / MEMORY_BYTES,
    )  # fmt: skip


def _captured(folder: Path, name: str) -> str:
    """Return `captured`, the error in one line, or `traceback` and what escaped."""
    file = folder / f"{name}.py"
    file.write_text(source_of(name), encoding="utf-8")
    try:
        captured(str(file), CaptureOptions(timeout_s=TIMEOUT_S, memory_bytes=MEMORY_BYTES))
    except NearpeakError as error:
        return str(error)
    except BaseException as error:
        return f"traceback: {type(error).__name__}: {error}"
    return "captured"


def _state() -> tuple[object, ...]:
    """Return what a program must not change of its caller; what the meter of this module reads of /proc is its own."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            count += not os.readlink(f"/proc/self/fd/{name}").startswith("/proc/")
    return count, os.getcwd(), len(sys.path), signal.getsignal(signal.SIGINT)


def _left() -> list[psutil.Process]:
    """Return what programs left behind: the long sleeps, and what descends from a server but runs no server."""
    survivors = []
    for process in psutil.process_iter():
        try:
            if _words(process)[-1:] == [str(LONG_S)] and process.status() != psutil.STATUS_ZOMBIE:
                survivors.append(process)
        except psutil.Error:
            continue
    return survivors + [child for server in _servers() for child in server.children(recursive=True)]


def _servers() -> list[psutil.Process]:
    """Return the servers that this process starts captures with; not its other children."""
    return [child for child in psutil.Process().children() if any("fork_server" in word for word in _words(child))]


def _words(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


class _Meter:
    """Watches from a thread how much memory the processes below the servers hold of their own."""

    def __enter__(self) -> "_Meter":
        self.most_bytes, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_TICK_S):
            total = 0
            for server in _servers():
                try:
                    for process in server.children(recursive=True):
                        total += _own_bytes(process.pid)
                except psutil.Error:
                    continue
            self.most_bytes = max(self.most_bytes, total)


def _own_bytes(pid: int) -> int:
    """Return the memory that a process shares with no other, and its part of what it shares in memory files."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    sizes = {line.partition(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return sizes.get("Private_Dirty", 0) + sizes.get("Pss_Shmem", 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[name for group in GROUPS.values() for name in group])
    for line in tried(parser.parse_args().names):
        print(
            f"{line.name}: {line.fault or 'sound'}; {line.time_ratio:.2f} {line.memory_ratio:.2f}; {line.text[:200]}",
            flush=True,
        )
