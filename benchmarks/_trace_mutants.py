"""Damaged trace files: seeded changes of bytes and of structure, read within limits of time and memory."""

import gzip
import random
import re
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks._trace_files import WRITERS, planned

MOST_BYTES = 4 << 30
_ODD = (
    b"NaN",
    b"-1",
    b"1e999",
    b"99999999999999999999999",
    b"-9223372036854775808",
    b'""',
    b"null",
    b"{}",
    b"[]",
    b"true",
    b'"n/a"',
    b"0x1F",
    b"1.5.5",
    b'"a"b"',
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"18446744073709551615",
    b"4294967295",
)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return `data` with one to four changes."""
    for _ in range(draw.randrange(1, 5)):
        data = draw.choice(_CHANGES)(data, draw) or data[:1]
    return data


def _flip(data: bytes, draw: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(draw.randrange(1, 12)):
        found[draw.randrange(len(found))] = draw.randrange(256)
    return bytes(found)


def _span(data: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(data))
    return start, min(len(data), start + draw.choice((1, 3, 40, 1000)))


def _cut(data: bytes, draw: random.Random) -> bytes:
    start, stop = _span(data, draw)
    return data[:start] + data[stop:]


def _twice(data: bytes, draw: random.Random) -> bytes:
    start, stop = _span(data, draw)
    return data[:stop] + data[start:stop] + data[stop:]


def _end(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _number(data: bytes, draw: random.Random) -> bytes:
    """Change one number, or all of a kind, to something odd."""
    places = list(_NUMBER.finditer(data))
    if not places:
        return data
    one = draw.choice(places)
    odd = draw.choice(_ODD)
    if draw.random() < 0.2:
        return data.replace(one[0], odd)
    return data[: one.start()] + odd + data[one.end() :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) + 1)
    return (
        data[:place]
        + draw.choice((*_ODD, b'"', b"{", b"}", b"[", b"]", b",", b"\\", b"[" * 5000, b'{"a":' * 2000))
        + data[place:]
    )


def _mark(data: bytes, draw: random.Random) -> bytes:
    """Take away or double one mark of the structure."""
    marks = [place for place, byte in enumerate(data) if byte in b'{}[]",:\n']
    if not marks:
        return data
    place = draw.choice(marks)
    return data[:place] + draw.choice((b"", data[place : place + 1] * 2)) + data[place + 1 :]


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _twice,
    _end,
    _number,
    _number,
    _insert,
    _mark,
)


def fault_of(path: Path, form: str) -> str:
    """Read and analyse a file; return what went wrong, empty where it was read or refused in one line."""
    from nearpeak.errors import NearpeakError
    from nearpeak.traces import read_trace
    from nearpeak.traces.executed.executed_steps import executed_of
    from nearpeak.traces.findings import report_of
    from nearpeak.traces.timeline.critical_path import critical_path
    from nearpeak.traces.timeline.device_time import timelines
    from nearpeak.traces.timeline.trace_steps import steps_of

    started = time.perf_counter()
    try:
        trace = read_trace(path, form)
        for one in timelines(trace):
            if one.idle_ns != sum(one.idle_by_cause_ns.values()) or one.idle_ns < 0:
                return f"timeline does not add up: {one}"
        steps_of(trace)
        critical_path(trace)
        report_of(executed_of(trace))
    except NearpeakError as error:
        return "" if len(str(error).splitlines()) == 1 else f"the message has several lines: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"took {time.perf_counter() - started:.0f} s" if time.perf_counter() - started > 60 else ""


def run(form: str, first: int, last: int, folder: Path) -> int:
    """Try the mutants `first` to `last` of a format in this process; print each fault and return their number."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    suffix, faults = WRITERS[form][0], 0
    path, originals = folder / f"mutant{suffix}", originals_of(form, folder)
    path.write_bytes(originals[0])
    fault_of(path, form)  # what is imported and compiled once belongs to no file
    for seed in range(first, last):
        path.write_bytes(mutant(form, seed, originals))
        (folder / "seed").write_text(str(seed))
        if fault := fault_of(path, form):
            faults += 1
            shutil.copy(path, folder / f"fault_{form}_{seed}{suffix}")
            print(f"{form} {seed}: {fault[:300]}", flush=True)
    return faults


def originals_of(form: str, folder: Path) -> list[bytes]:
    """Return the sound files that are damaged."""
    suffix, write = WRITERS[form]
    found = []
    for seed in range(4):
        original = folder / f"original{seed}{suffix}"
        original.unlink(missing_ok=True)
        write(original, planned(seed, 12))
        found.append(original.read_bytes())
    return found


def mutant(form: str, seed: int, originals: list[bytes]) -> bytes:
    """Return one damaged file; some of those that may be packed are damaged when they are."""
    draw = random.Random(f"{form} {seed}")
    data = originals[seed % len(originals)]
    packable = form.endswith("json") or form == "kineto"
    packed = packable and draw.random() < 0.15
    return mutated(gzip.compress(data, 1, mtime=0) if packed else data, draw)


if __name__ == "__main__":
    sys.exit(min(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])), 100))
