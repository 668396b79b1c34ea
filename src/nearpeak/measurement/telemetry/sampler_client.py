"""Client of the sampler process: starts it, asks for time windows of readings, stops it."""

import bisect
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from nearpeak.core.runs.telemetry import Channel, Span, Stream, Telemetry
from nearpeak.errors import MeasureError, SpecError
from nearpeak.exchange.telemetry_lines import TELEMETRY_CODEC
from nearpeak.measurement.telemetry import reading_records
from nearpeak.measurement.telemetry.sampler_process import HANDED_S

RATE_HZ = 100.0
"""Default readings per second; slower sources are read less often."""
MOST_HZ = 1000.0
MARGIN_S = 0.25
"""Time before and after a window whose readings are kept, so that its ends lie between readings of slow sources too."""
POLL_S = 0.005
_END_S = 2.0


@dataclass(slots=True, kw_only=True)
class _Read:
    """Readings of one source so far."""

    before_ns: list[int] = field(default_factory=list)
    """Time before each reading."""
    after_ns: list[int] = field(default_factory=list)
    """Time after it."""
    values: list[tuple[float, ...]] = field(default_factory=list)
    """Values by channel."""


class Sampler:
    """A process that reads sensors during a measurement; it ends when this process closes it, or dies.

    Both processes use CLOCK_MONOTONIC, which all processes of a machine share, so that time stamps need no translation;
    this is checked when the sampler starts.
    """

    def __init__(self, rate_hz: float = RATE_HZ, sources: Sequence[str] = (), root: str = "/") -> None:
        """Start the process and wait until it has opened its sources.

        Args:
            sources: names of telemetry sources; all that this machine has by default.
            root: folder that replaces `/` for files of the operating system.

        Raises:
            SpecError: the rate is out of range, or a source is not known.
            MeasureError: the process did not start, or its clock is not this one's.
        """
        if not 0.1 <= rate_hz <= MOST_HZ:
            raise SpecError(f"telemetry: {rate_hz:g} readings a second; give 0.1 to {MOST_HZ:g}")
        from nearpeak.measurement.telemetry.sources import known

        self.rate_hz, self._names = rate_hz, known(sources)
        # A file in memory, or else without a name.
        if hasattr(os, "memfd_create"):
            self._file = os.memfd_create("nearpeak-telemetry")
        else:
            with tempfile.TemporaryFile() as file:
                self._file = os.dup(file.fileno())
        self._records, self._ticks, self._read = reading_records.Records(self._file), [], []  # type: ignore[var-annotated]
        self._header: dict[str, Any] = {}
        self._slowest_s = 1 / rate_hz
        try:
            self._process = self._begun(root)
        except BaseException:
            os.close(self._file)
            raise

    def _begun(self, root: str) -> "subprocess.Popen[str]":
        """Return the started process after its header record has been read."""
        before_ns = time.monotonic_ns()
        process = self._started(root)
        self._pump()
        if before_ns <= self._header.get("begun_ns", -1) <= time.monotonic_ns():
            return process
        process.kill()
        process.communicate()
        raise MeasureError("telemetry: the sampler's monotonic clock is not this process's")

    def _started(self, root: str) -> "subprocess.Popen[str]":
        # A pipe that nobody reads would fill and block.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors_file:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "nearpeak.measurement.telemetry.sampler_process"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors_file, encoding="utf-8", pass_fds=(self._file,),
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )  # fmt: skip
            if self._asked(process, root):
                return process
            process.kill()
            process.communicate()
            errors_file.seek(0)
            lines = errors_file.read().strip().splitlines()
        raise MeasureError(f"telemetry: the sampler did not start: {lines[-1] if lines else 'it printed nothing'}")

    def _asked(self, process: "subprocess.Popen[str]", root: str) -> bool:
        """Send the process its request; return whether it is ready."""
        request = {
            "file": self._file, "rate_hz": self.rate_hz, "sources": self._names, "root": root, "parent": os.getpid(),
        }  # fmt: skip
        if process.stdin is None or process.stdout is None:
            return False
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        return process.stdout.readline() == "ready\n"

    @property
    def pid(self) -> int:
        """Process identifier."""
        return self._process.pid

    @property
    def unavailable(self) -> tuple[tuple[str, str], ...]:
        """Requested sources that are unavailable, and why."""
        return tuple((name, why) for name, why in self._header["unavailable"])

    def window(self, begin_ns: int, end_ns: int, spans: Sequence[Span] = ()) -> Telemetry:
        """Return the readings from `begin_ns` to `end_ns` of the monotonic clock, and those around them.

        Returns once each source of power or energy has been read after the end, or the sampler has ended.
        """
        note = self._wait_until(end_ns)
        streams = tuple(self._stream(index, begin_ns, end_ns) for index in range(len(self._read)))
        ticks = [tick for tick in self._ticks if begin_ns <= tick[1] <= end_ns]
        delays_ns = [begun - due for due, begun, _, _ in ticks]
        period_ns = 1e9 / self.rate_hz
        due = [tick[0] for tick in ticks]
        missed = round((due[-1] - due[0]) / period_ns) + 1 - len(due) if due else 0
        now_ns = time.monotonic_ns()
        return Telemetry(
            begin_ns=begin_ns, end_ns=end_ns, wall_ns=time.time_ns() - (now_ns - begin_ns), streams=streams,
            spans=tuple(spans), unavailable=self.unavailable, rate_hz=self.rate_hz, tick_count=len(ticks),
            late_count=sum(delay > period_ns / 2 for delay in delays_ns), missed_count=missed,
            latest_s=max(delays_ns, default=0) / 1e9, cpu_s=_cpu_s(self._ticks, begin_ns, end_ns),
            note=note,
        )  # fmt: skip

    def forget(self, before_ns: int) -> None:
        """Drop readings before `before_ns`, which no later window needs."""
        for readings in self._read:
            cut = bisect.bisect_left(readings.after_ns, before_ns)
            del readings.before_ns[:cut], readings.after_ns[:cut], readings.values[:cut]
        self._ticks = [readings for readings in self._ticks if readings[1] >= before_ns]

    def stop(self) -> None:
        """End the process; its readings stay available."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> "Sampler":
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the process."""
        self.stop()
        self._pump()
        os.close(self._file)

    def _pump(self) -> None:
        """Read the records that the sampler has written since the last call."""
        for kind, content in self._records.new():
            if kind == reading_records.HEADER:
                self._header = content
                self._read = [_Read() for _ in content["sources"]]
                self._channels = [
                    TELEMETRY_CODEC.value(entry["channels"], tuple[Channel, ...], "sampler")
                    for entry in content["sources"]
                ]
                meters = [any(channel.domain for channel in channels) for channels in self._channels]
                self._metering = [entry for entry, metering in zip(self._read, meters, strict=True) if metering]
                rates = [entry["hz"] for entry, metering in zip(content["sources"], meters, strict=True) if metering]
                self._slowest_s = 1 / min([self.rate_hz, *rates])
            elif kind == reading_records.TICK:
                self._ticks.append(content)
            else:
                source, before_ns, after_ns, values = content
                entry = self._read[source]
                entry.before_ns.append(before_ns)
                entry.after_ns.append(after_ns)
                entry.values.append(values)

    def _wait_until(self, end_ns: int) -> str:
        """Wait until all power and energy sources have been read after `end_ns`; return why where that fails."""
        if self._slowest_s > MARGIN_S:
            self._ask()
        limit_s = time.monotonic() + MARGIN_S + HANDED_S + 2 * self._slowest_s
        while True:
            self._pump()
            if all(readings.before_ns and readings.before_ns[-1] >= end_ns for readings in self._metering):
                return ""
            if self._process.poll() is not None:
                self._pump()
                last_ns = self._ticks[-1][1] if self._ticks else 0
                return (
                    "" if last_ns >= end_ns else f"the sampler ended early, with exit code {self._process.returncode}"
                )
            if time.monotonic() >= limit_s:
                return ""
            time.sleep(POLL_S)

    def _ask(self) -> None:
        """Request a reading of every source now, as the caller would have to wait for slow ones."""
        with contextlib.suppress(OSError, ValueError):  # the process has ended
            if self._process.stdin is not None:
                self._process.stdin.write("\n")
                self._process.stdin.flush()

    def _stream(self, index: int, begin_ns: int, end_ns: int) -> Stream:
        """Return the readings of one source in a window and around it: at least one on each side if there are any."""
        readings, margin_ns = self._read[index], int(MARGIN_S * 1e9)
        low = min(
            bisect.bisect_left(readings.after_ns, begin_ns - margin_ns),
            bisect.bisect_left(readings.after_ns, begin_ns) - 1,
        )
        high = max(
            bisect.bisect_right(readings.before_ns, end_ns + margin_ns),
            bisect.bisect_right(readings.before_ns, end_ns) + 1,
        )
        window = slice(max(0, low), high)
        channels = self._channels[index]
        columns = tuple(zip(*readings.values[window], strict=True)) or tuple(() for _ in channels)
        return Stream(
            source=self._header["sources"][index]["name"], channels=channels,
            before_ns=tuple(readings.before_ns[window]), after_ns=tuple(readings.after_ns[window]), values=columns,
        )  # fmt: skip


def _cpu_s(ticks: Sequence[tuple[int, int, int, int]], begin_ns: int, end_ns: int) -> float:
    """Return the CPU time of the sampler in a window, from its rate between the measurements around the window."""
    looks = [(begun_ns, cpu_ns) for _, begun_ns, _, cpu_ns in ticks if cpu_ns]
    before = [look for look in looks if look[0] <= begin_ns][-1:] or looks[:1]
    after = [look for look in looks if look[0] >= end_ns][:1] or looks[-1:]
    if not before or after[0][0] <= before[0][0]:
        return 0.0
    return (after[0][1] - before[0][1]) / (after[0][0] - before[0][0]) * (end_ns - begin_ns) / 1e9
