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
"""Time after which readings are handed over at the latest."""


def main() -> None:
    """Open the sources that the request on standard input names, say what they have, and sample.

    The sampler ends when standard input ends, which it does when its parent closes it or dies.
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
    """Read each source at `rate_hz`, or at the highest rate that it is good for, until the parent is gone.

    Whatever is said on standard input asks for a reading of every source at the next round; those that are read seldom
    are due as long after it as after any other, and where rounds were left out at the first one that is not.

    System calls are what sampling costs, and code that did not run for a while: readings are packed and handed over,
    and CPU time and parent looked at, every HANDED_S.
    """
    period_ns = round(1e9 / rate_hz)
    plan = [
        (index, source_entry, max(1, math.ceil(rate_hz / source_entry.most_hz)))
        for index, source_entry in enumerate(sources)
    ]
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
        number += 1 + max(0, (now_ns - due_ns - 1) // period_ns)  # rounds that are past by now are left out
        wait_s = (start_ns + number * period_ns - now_ns) / 1e9
        if not handed:
            time.sleep(wait_s)  # costs less than to listen as well
            continue
        heard = _heard(wait_s)
        if heard is None:
            return
        wanted = heard


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def _heard(wait_s: float) -> bool | None:
    """Wait for so long; say whether anything was said on standard input, none where it ended."""
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
