"""Journal of a run matrix: each cell's result is kept exactly once, whatever is killed when."""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from nearpeak.base.file_lock import try_lock
from nearpeak.base.folders import synchronise
from nearpeak.base.host_system import read_text
from nearpeak.base.input_files import json_value
from nearpeak.errors import MeasureError, SpecError
from nearpeak.measurement.result_file import append_whole

MOST_FAILURES = 3
"""Failures after which a cell is quarantined."""
STATES = ("planned", "running", "done", "failed", "quarantined")
_JOURNAL, _LEASE, _RESULTS, _LOCK = "journal.jsonl", "lease.json", "results", "lock"


class RunJournal:
    """A folder with one result file per cell that is done, and a line of the journal for each step.

    A result is written to a temporary file, synchronised and renamed; then one line says that it is done. A result
    without its line is dropped when the folder is opened, a line without its result does not count, and a line that was
    cut short by a kill is removed: so there is never half a result, nor one twice.
    """

    def __init__(self, folder: Path) -> None:
        """Take the lease of a folder, made where there is none, and put it into a consistent state.

        Raises:
            MeasureError: another process that is alive has the lease.
        """
        self._folder, self._results = folder, folder / _RESULTS
        self._results.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take_lease()
            self._journal = os.open(folder / _JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except BaseException:
            os.close(self._lock)
            raise
        self._lines = self._read()
        self._drop_unjournaled()

    def __enter__(self) -> "RunJournal":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the lease back."""
        (self._folder / _LEASE).unlink(missing_ok=True)
        os.close(self._journal)
        os.close(self._lock)

    def state(self, key: str) -> str:
        """Return the state of a cell: one of STATES."""
        states = [line["state"] for line in self._lines if line["key"] == key]
        if "done" in states:
            return "done"
        if states.count("failed") >= MOST_FAILURES:
            return "quarantined"
        return states[-1] if states else "planned"

    def reason(self, key: str) -> str:
        """Return why the last run of a cell failed; empty where none did."""
        reasons = [
            str(line.get("reason", "")) for line in self._lines if (line["key"], line["state"]) == (key, "failed")
        ]
        return reasons[-1] if reasons else ""

    def result(self, key: str) -> bytes:
        """Return what a cell that is done has logged."""
        return self._path(key).read_bytes()

    def begin(self, key: str) -> None:
        """Note that a cell runs; an earlier run that was killed counts as none."""
        self._add({"key": key, "state": "running"})

    def fail(self, key: str, reason: str) -> None:
        """Note that a cell has failed."""
        self._add({"key": key, "state": "failed", "reason": reason})

    def finish(self, key: str, result: bytes) -> None:
        """Keep the result of a cell."""
        part = self._path(key).with_suffix(".part")
        with part.open("wb") as file:
            file.write(result)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path(key))
        synchronise(self._results)
        self._add({"key": key, "state": "done", "sha256": hashlib.sha256(result).hexdigest()})

    def _path(self, key: str) -> Path:
        return self._results / f"{key}.json"

    def _add(self, line: Mapping[str, Any]) -> None:
        whole = {**line, "at_ns": time.time_ns()}
        append_whole(self._journal, json.dumps(whole).encode() + b"\n", self._folder / _JOURNAL)
        self._lines.append(whole)

    def _read(self) -> list[dict[str, Any]]:
        """Return the lines of the journal; what a kill has left of its last one is cut off."""
        data = (self._folder / _JOURNAL).read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._journal, whole)
            os.fsync(self._journal)
        lines = list[dict[str, Any]]()
        for number, text in enumerate(data[:whole].splitlines(), 1):
            line: Any = None
            with contextlib.suppress(ValueError):
                line = json_value(text)
            if not isinstance(line, dict) or line.get("state") not in STATES or not isinstance(line.get("key"), str):
                raise SpecError(f"{self._folder / _JOURNAL}: line {number} is no line of a journal; was it edited?")
            lines.append(line)
        return lines

    def _drop_unjournaled(self) -> None:
        """Remove results without their line, and lines without their result."""
        digests = {line["key"]: line.get("sha256") for line in self._lines if line["state"] == "done"}
        for path in self._results.iterdir():
            if digests.get(path.stem) != hashlib.sha256(path.read_bytes()).hexdigest() or path.suffix != ".json":
                path.unlink()
        synchronise(self._results)
        self._lines = [line for line in self._lines if line["state"] != "done" or self._path(line["key"]).is_file()]

    def _take_lease(self) -> None:
        """Write whose the folder is: process, its start time, and the boot that both belong to."""
        if not try_lock(self._lock, self._folder / _LOCK):
            holder = read_text(self._folder / _LEASE) or "unknown"
            raise MeasureError(f"{self._folder}: another process runs this plan ({holder}); wait for it")
        lease = self._folder / _LEASE
        with contextlib.suppress(ValueError, KeyError, TypeError):
            held = json.loads(read_text(lease) or "{}")
            if held and held["pid"] != os.getpid() and held == lease_of(held["pid"]):
                raise MeasureError(f"{self._folder}: process {held['pid']} runs this plan; wait for it")
        part = lease.with_suffix(".part")
        part.write_text(json.dumps(lease_of(os.getpid())), encoding="ascii")
        part.replace(lease)


def lease_of(pid: int) -> dict[str, Any]:
    """Return what identifies a process of this machine for ever; empty where there is none of that number."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return {}
    return {"pid": pid, "start_ticks": int(words[19]), "boot": read_text(Path("/proc/sys/kernel/random/boot_id"))}
