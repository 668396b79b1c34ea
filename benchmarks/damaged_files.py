"""Damaged files of every format, cut off, changed or expanding, give a value or one line, soon, in little memory."""

import gzip
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks._damaged_samples import Format, formats
from benchmarks._figures import ROOT, Figure
from benchmarks._trace_mutants import mutated

FIGURES = ("damaged_files", "damaged_files_faults", "damaged_files_slowest", "damaged_files_memory")
CUTS, CHANGES, SEED = 200, 400, 0
MOST_S, MOST_BYTES = 20.0, 1 << 30
_LIMIT_S = 1_800
_LINES = (".csv", ".txt")
"""Suffixes of files of lines: one that is cut between two of them is whole."""
_PLACES = ("/dev/urandom", "/dev/full", "/dev/zero", "/dev/null", "/", "/nowhere/at/all", "a\0b")


def measure() -> Iterator[Figure]:
    """Yield how many files were tried, how many faults they met, the slowest and the most memory."""
    rows = [tried(name, CUTS, CHANGES) for name in formats()]
    for row in rows:
        print(f"  {row}", file=sys.stderr)
    count, faults = (sum(row[key] for row in rows) for key in ("tried", "fault_count"))
    slowest_s, most_mb = max(row["slowest_s"] for row in rows), max(row["peak_bytes"] for row in rows) / 1e6
    yield Figure(name="damaged_files", value=count, unit="files", bar="600 of each format", passed=True, seed=SEED)
    yield Figure(name="damaged_files_faults", value=faults, unit="files", bar="0", passed=faults == 0, seed=SEED)
    yield Figure(
        name="damaged_files_slowest", value=slowest_s, unit="s", bar="<= 20 s", passed=slowest_s <= MOST_S, seed=SEED
    )
    yield Figure(
        name="damaged_files_memory", value=most_mb, unit="MB", bar="<= 1,074 MB", passed=most_mb * 1e6 <= MOST_BYTES,
        seed=SEED,
    )  # fmt: skip


def tried(name: str, cuts: int, changes: int) -> dict[str, Any]:
    """Return what came of damaged files of one format, which are read in a process of their own."""
    words = [sys.executable, "-m", "benchmarks.damaged_files", name, str(cuts), str(changes)]
    none = {"format": name, "tried": 0, "fault_count": 1, "slowest_s": 0.0, "peak_bytes": 0}
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_LIMIT_S, cwd=ROOT)
    except subprocess.TimeoutExpired:
        return {**none, "faults": ["hangs"], "slowest_s": float(_LIMIT_S)}
    if done.returncode:
        return {**none, "faults": [f"ended with {done.returncode}: {done.stderr[-300:]}"]}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def read_all(name: str, cuts: int, changes: int) -> dict[str, Any]:
    """Read damaged files of a format in this process."""
    form, faults, slowest_s, count = formats()[name], list[str](), 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        sound = Path(folder) / f"sound{form.suffix}"
        form.write(sound)
        whole, data = form.count(form.read(sound)), sound.read_bytes()
        for what, path in _damaged(name, form, data, Path(folder), cuts, changes):
            begun_s = time.monotonic()
            is_cut = what.startswith("cut") and not (form.suffix in _LINES and path.read_bytes()[-1:] == b"\n")
            fault = _fault(form, path, whole, is_cut=is_cut)
            slowest_s, count = max(slowest_s, time.monotonic() - begun_s), count + 1
            if not fault and time.monotonic() - begun_s > MOST_S:
                fault = f"took {time.monotonic() - begun_s:.0f} s"
            if fault:
                faults.append(f"{what}: {fault[:300]}")
    peak = 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"format": name, "tried": count, "fault_count": len(faults), "slowest_s": round(slowest_s, 2),
            "peak_bytes": peak, "faults": faults[:8]}  # fmt: skip


def _fault(form: Format, path: Path, whole: int, *, is_cut: bool) -> str:
    """Return what is wrong with how a file was read; empty where it is a value that states its losses, or one line."""
    from nearpeak.errors import NearpeakError

    try:
        value = form.read(path)
    except NearpeakError as error:
        text = str(error)
        return "" if text and len(text.splitlines()) == 1 and len(text) < 1000 else f"message: {text[:200]!r}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    is_silent = is_cut and form.losses is not None and form.count(value) < whole and not form.losses(value)
    return f"{form.count(value)} of {whole} entries without a stated loss" if is_silent else ""


def _damaged(name: str, form: Format, data: bytes, folder: Path, cuts: int, changes: int) -> Iterator[tuple[str, Path]]:
    """Yield a damaged file after the other, with what was done to it."""
    path, draw = folder / f"damaged{form.suffix}", random.Random(f"{name} {SEED}")
    for number in range(cuts):
        place = draw.randrange(len(data))
        path.write_bytes(data[:place])
        yield f"cut {number} at {place}", path
    for number in range(changes):
        path.write_bytes(mutated(data, random.Random(f"{name} {SEED} {number}")))
        yield f"change {number}", path
    for what, content in _bombs(data):
        path.write_bytes(content)
        yield f"bomb {what}", path
    path.unlink()
    os.mkfifo(path)
    yield "pipe", path
    path.unlink()
    for place in _PLACES:
        yield f"place {place!r}", Path(place)
        if "\0" not in place:
            path.symlink_to(place)
            yield f"link to {place}", path
            path.unlink()


def _bombs(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files that are small, or of one mark, and expand."""
    half, zeros = data[: len(data) // 2], gzip.compress(bytes(64 << 20), 9, mtime=0)
    yield "deep list", half + b"[" * 1_000_000
    yield "deep object", half + b'{"a":' * 200_000
    yield "deep alone", b"[" * 1_000_000 + b"]" * 1_000_000
    yield "wide", half + b"[],\n" * 8_000_000
    yield "wide alone", b"[" + b"[]," * 8_000_000 + b"[]]"
    yield "digits", re.sub(rb"\d+", b"9" * 1_000_000, data, count=1)
    yield "exponent", re.sub(rb"\d+", b"1e999999999", data)
    yield "one line", half + b"x" * (64 << 20)
    yield "marks", half + b"," * (32 << 20)
    yield "dotted", half + b"\n" + b"a." * 500_000 + b"a = 1"
    yield "packed zeros", gzip.compress(data, mtime=0) + zeros * 60
    yield "packed zeros alone", zeros * 60
    yield "packed twice", gzip.compress(gzip.compress(data + bytes(256 << 20)), mtime=0)


if __name__ == "__main__":
    print(json.dumps(read_all(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
