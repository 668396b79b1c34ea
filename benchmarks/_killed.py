"""Commands of nearpeak in forked processes that are killed at a random moment, and what they said until then."""

import importlib
import os
import random
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field

PRELOAD = (
    "nearpeak.cli", "nearpeak.api.measured_analysis", "nearpeak.farm.dispatcher", "nearpeak.farm.executors.local",
    "nearpeak.history.regression_groups", "nearpeak.history.series_tracks", "nearpeak.store.maintenance",
    "nearpeak.store.importers.google_benchmark", "nearpeak.measurement.runners", "nearpeak.reports.history.regressions",
)  # fmt: skip
_LONGEST_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended."""

    killed: bool
    """Whether it was killed; else it came to its end."""
    code: int
    """Exit code, where it came to its end."""
    lines: tuple[str, ...]
    """Whole lines that it wrote to standard output."""
    time_s: float
    """How long it lived."""


@dataclass(slots=True)
class Killer:
    """Draws when to kill: anywhere within the time that a command takes when it is left alone."""

    seed: int
    kills: int = 0
    _draw: random.Random = field(init=False)
    _usual_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Load once what every process uses, so that kills meet its work and not its imports."""
        self._draw = random.Random(self.seed)
        for name in PRELOAD:
            importlib.import_module(name)

    def run(self, kind: str, words: list[str]) -> Ended:
        """Run a command and kill it, or not where it is the first of its kind, which says how long one takes."""
        usual_s = self._usual_s.get(kind)
        after_s = None if usual_s is None else self._draw.uniform(0.0, 1.1 * usual_s)
        ended = run(words, after_s)
        if not ended.killed:  # a machine that is busy now is not always
            self._usual_s[kind] = ended.time_s if usual_s is None else 0.5 * (usual_s + ended.time_s)
        self.kills += ended.killed
        return ended


def run(words: list[str], after_s: float | None = None) -> Ended:
    """Run a command in a process of its own, killed after some time if one is given."""
    begun_s = time.monotonic()
    end, start = os.pipe()
    process = os.fork()
    if not process:
        _become(words, start)
    os.close(start)
    data, until_s = b"", begun_s + (_LONGEST_S if after_s is None else after_s)
    while (left_s := until_s - time.monotonic()) > 0:
        if select.select([end], [], [], left_s)[0]:
            part = os.read(end, 1 << 16)
            if not part:
                break
            data += part
    # Who closed its output may still be about to end; it is not yet reaped, so that the number is still its own.
    with suppress(ProcessLookupError):
        if left_s <= 0:
            os.killpg(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    while part := os.read(end, 1 << 16):
        data += part
    os.close(end)
    killed = os.WIFSIGNALED(status)
    return Ended(
        killed=killed, code=-1 if killed else os.WEXITSTATUS(status), time_s=time.monotonic() - begun_s,
        lines=tuple(line for line in data.decode().split("\n")[:-1]),
    )  # fmt: skip


def _become(words: list[str], output: int) -> None:
    os.setpgid(0, 0)
    os.dup2(output, 1)
    log = os.open(os.environ.get("KILLS_LOG", os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    sys.argv = ["nearpeak", *words]
    code = 70
    try:
        from nearpeak.cli import main

        main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
