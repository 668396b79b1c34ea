"""The sampler process, which reads all sensor sources at a fixed rate."""

import gc
import json
import math
import os
import select
import sys
import time
from collections.abc import Sequence

from nearpeak.core.runs.telemetry import Channel
from nearpeak.exchange.telemetry_lines import TELEMETRY_CODEC
from nearpeak.measurement.telemetry import reading_records
from nearpeak.measurement.telemetry.sources import Source, opened

HANDED_S = 0.05
"""Longest time between two deliveries of readings."""


def main() -> None:
    """Open the sources that the request on standard input names, write their channels, and sample.

    The sampler ends with its standard input, which its parent closes or leaves by dying.
    """
    request = json.loads(sys.stdin.readline())
    sources, unavailable = opened(request["sources"], request["root"])
    content = {
        "unavailable": unavailable,
        "sources": [
            {
                "name": source.name, "hz": source.most_hz,
                "channels": TELEMETRY_CODEC.plain(source.channels, tuple[Channel, ...]),
            }
            for source in sources
        ],
        "pid": os.getpid(), "begun_ns": time.monotonic_ns(),
    }  # fmt: skip
    os.write(request["file"], reading_records.header(content))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        _sample(sources, request["rate_hz"], request["file"], request["parent"])
    finally:
        for source in sources:
            source.close()


def _sample(sources: Sequence[Source], rate_hz: float, file: int, parent: int) -> None:
    """Read each source at `rate_hz`, or at its own highest rate, until the parent has ended.

    Any line on standard input requests a reading of every source in the next round; slow sources are then due one
    period later, or after skipped rounds in the first one that is not skipped.

    Sampling costs system calls and cold code: readings are packed and delivered, and CPU time and parent checked, only
    every HANDED_S.
    """
    period_ns = round(1e9 / rate_hz)
    plan = [(index, source, max(1, math.ceil(rate_hz / source.most_hz))) for index, source in enumerate(sources)]
    rest = max(1, int(HANDED_S * rate_hz))
    clock_ns, number, start_ns, wanted = time.monotonic_ns, 0, time.monotonic_ns(), False
    due = [0] * len(plan)
    readings: list[reading_records.Reading] = []
    ticks: list[reading_records.Tick] = []
    while True:
        due_ns = start_ns + number * period_ns
        begun_ns = clock_ns()
        for index, source, step in plan:
            if number >= due[index] or wanted:
                due[index] = number + step
                before_ns = clock_ns()
                values = source.read()
                readings.append((index, before_ns, clock_ns(), values))
        wanted, handed = False, len(ticks) + 1 == rest
        ticks.append((due_ns, begun_ns, time.time_ns(), time.process_time_ns() if handed else 0))
        if handed:
            _write(file, reading_records.records(readings, ticks))
            readings.clear()
            ticks.clear()
            if os.getppid() != parent:
                return
        now_ns = clock_ns()
        number += 1 + max(0, (now_ns - due_ns - 1) // period_ns)  # rounds that are already past are skipped
        wait_s = (start_ns + number * period_ns - now_ns) / 1e9
        if not handed:
            time.sleep(wait_s)  # cheaper than also polling standard input
            continue
        heard = _heard(wait_s)
        if heard is None:
            return
        wanted = heard


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _heard(wait_s: float) -> bool | None:
    """Wait for `wait_s`; return whether standard input had a line, none where it ended."""
    end_s, heard = time.monotonic() + wait_s, False
    while True:
        readable, _, _ = select.select([0], [], [], max(0.0, wait_s))
        if readable:
            if not os.read(0, 4096):
                return None
            heard = True
        wait_s = end_s - time.monotonic()
        if wait_s <= 0:
            return heard


if __name__ == "__main__":
    main()
