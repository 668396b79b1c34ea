"""Verdicts of `compare` beside two busy loops: pairs of the same work, and pairs with 5 % more planted.

Pairs are kept in docs/lab/figures/paired_compare_pairs.jsonl, a line each, so that they can be taken in several
sittings: `python -m benchmarks.paired_compare --minutes 45` adds what fits and says how things stand. A pair counts
as long as the code that takes and judges pairs, and the machine, are those that it was taken by.
"""

import argparse
import ast
import datetime
import functools
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks._figures import FOLDER, ROOT, Figure
from benchmarks.load import COUNT, busy
from nearpeak.api.measured_analysis import compare
from nearpeak.base.canonical_json import digest
from nearpeak.base.host_system import cpu_name
from nearpeak.core.runs.measurement import Timing
from nearpeak.core.work.case import Case
from nearpeak.measurement.timing import sampler
from nearpeak.measurement.timing.interleaved_rounds import Arm
from nearpeak.ops import case

FIGURES = ("compare_false_verdicts", "compare_planted_found", "compare_inconclusive", "compare_longest_pair")
PAIRS = 300
AT_ONCE = 2
"""Comparisons that run at a time, each on cores of its own choice: each has more load beside it than the bar asks."""
KEPT = FOLDER / "paired_compare_pairs.jsonl"
SAME, PLANTED = "base", "planted"
CASE: Case = case("softmax", rows=64, columns=128, dtype="fp32")
TIMING = Timing(cache="hot", validate=False)
BUDGET_S = 50.0
"""Budget of a pair; the round that is under way when it ends is still finished."""
_MECHANISM = (
    "src/nearpeak/measurement/timing/interleaved_rounds.py", "src/nearpeak/measurement/timing/turn_server.py",
    "src/nearpeak/measurement/timing/clocks.py",
    "src/nearpeak/measurement/timed_runner.py", "src/nearpeak/case_tensors/fresh_values.py",
    "src/nearpeak/judgement/paired_verdict.py",
    "benchmarks/_planted.py", "benchmarks/load.py",
)  # fmt: skip
_TIMING = (
    sampler.batch_of, sampler.changing, sampler.caching_suspicion, sampler.no_time,
    sampler.BATCH_RESOLUTIONS, sampler.BATCH_S,
    sampler.HOST_BATCHES, sampler.BEGIN_S, sampler.without_result,
    sampler.FIRST_COUNT, sampler.ANEW_RATIO, sampler.ANEW_S,
)  # fmt: skip
"""What pairs take of the timing of single cases: when those stop is another matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One comparison that was made."""

    candidate: str
    """Function of benchmarks._planted that stood against the base."""
    verdict: str
    """Verdict, or how the one that could not run ended."""
    took_s: float
    """Wall time."""
    ratio: float | None
    """Candidate over baseline."""
    round_count: int
    """Rounds."""
    day: str
    """When it was taken."""
    mechanism: str
    """Digest of the code that takes and judges pairs."""
    machine: str
    """Digest of processor, cores, Python and NumPy."""


def measure() -> Iterator[Figure]:
    """Yield false verdicts, the share of planted slowdowns found, inconclusive ones and the longest pair."""
    add(PAIRS, minutes=24 * 60.0)
    yield from figures(kept())


def figures(pairs: Sequence[Pair]) -> Iterator[Figure]:
    """Yield the figures of the pairs that there are; short of PAIRS of each kind none has reached its bar."""
    same, slower = ([one for one in pairs if one.candidate == kind] for kind in (SAME, PLANTED))
    enough = min(len(same), len(slower)) >= PAIRS
    false = sum(one.verdict in ("regression", "improvement") for one in same)
    yield Figure(
        name=FIGURES[0], value=false, unit=f"of {len(same)} pairs", bar="<= 3 of 300 A/A pairs",
        passed=enough and false * 300 <= 3 * len(same),
    )  # fmt: skip
    found = sum(one.verdict == "regression" for one in slower) / max(1, len(slower))
    yield Figure(name=FIGURES[1], value=100 * found, unit="%", bar=">= 95 %", passed=enough and found >= 0.95)
    open_ratio = sum(one.verdict == "inconclusive" for one in pairs) / max(1, len(pairs))
    yield Figure(name=FIGURES[2], value=100 * open_ratio, unit="%", bar="<= 20 %", passed=enough and open_ratio <= 0.2)
    longest_s = max((one.took_s for one in pairs), default=0.0)
    yield Figure(
        name=FIGURES[3], value=longest_s, unit="s", bar="<= 60 s a pair", passed=enough and longest_s <= 60
    )  # fmt: skip


def add(count: int, minutes: float) -> None:
    """Add pairs of both kinds until there are `count` of each, or the minutes are over, beside two busy loops."""
    with busy(), tempfile.TemporaryDirectory() as folder:
        workers = []
        for number in range(AT_ONCE):
            place = Path(folder) / str(number)  # the lock of the device lies there: each worker has its own
            place.mkdir()
            words = [sys.executable, "-m", "benchmarks.paired_compare", "--worker"]
            words += ["--pairs", str(count), "--minutes", str(minutes)]
            workers.append(subprocess.Popen(words, cwd=ROOT, env={**os.environ, "TMPDIR": str(place)}))
        for worker in workers:
            worker.wait()


def work(count: int, minutes: float) -> None:
    """Take pairs, the kind that is behind first, and keep each."""
    end_s = time.monotonic() + 60 * minutes
    while time.monotonic() < end_s:
        taken = [one.candidate for one in kept()]
        kind = min((SAME, PLANTED), key=taken.count)
        if taken.count(kind) >= count:
            return
        keep(pair(kind))


def keep(one: Pair) -> None:
    """Add a pair in one write, behind whatever a sitting that was cut off has left."""
    line = json.dumps(asdict(one), separators=(",", ":")) + "\n"
    with KEPT.open("ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        file.write((line if file.read(1) in (b"", b"\n") else "\n" + line).encode())


def pair(candidate: str) -> Pair:
    """Return one comparison of the base work with the candidate's."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    begun_s = time.monotonic()
    left, right = (Arm(runner=f"callable:benchmarks._planted:{name}") for name in (SAME, candidate))
    found = compare(CASE, left, right, TIMING, budget_s=BUDGET_S)
    judged = found.judgement
    return Pair(
        candidate=candidate, verdict=judged.verdict if judged else found.outcome,
        took_s=round(time.monotonic() - begun_s, 1), ratio=round(judged.time_ratio, 5) if judged else None,
        round_count=len(found.rounds), day=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        mechanism=mechanism(), machine=machine(),
    )  # fmt: skip


def kept() -> list[Pair]:
    """Return the pairs that this mechanism has taken on this machine."""
    if not KEPT.exists():
        return []
    rows = (_read(line) for line in KEPT.read_text(encoding="utf-8").splitlines())
    return [one for one in rows if one and (one.mechanism, one.machine) == (mechanism(), machine())]


def _read(line: str) -> Pair | None:
    try:
        return Pair(**json.loads(line))
    except (ValueError, TypeError):  # cut off
        return None


@functools.cache
def mechanism() -> str:
    """Return what changes when pairs are taken or judged in another way; words and layout do not count."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in _MECHANISM] + [inspect.getsource(compare)]
    texts += [inspect.getsource(one) if callable(one) else repr(one) for one in _TIMING]
    settings = [CASE.record(), asdict(TIMING), BUDGET_S, AT_ONCE, COUNT]
    return digest([*map(code_of, texts), settings])[:12]


def code_of(text: str) -> str:
    """Return what Python makes of a module, without comments and docstrings.

    >>> code_of("x = 1  # one") == code_of('x  =  1'), code_of("x = 1") == code_of("x = 2")
    (True, False)
    """
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [  # type: ignore[attr-defined]  # every node with a body has statements in it
                one for one in body
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
            ]  # fmt: skip
    return ast.dump(tree)


@functools.cache
def machine() -> str:
    """Return what tells machines apart whose pairs are not counted together."""
    cores = [os.cpu_count(), len(os.sched_getaffinity(0))]
    return digest([cpu_name(), cores, platform.machine(), platform.python_version(), np.__version__])[:12]


def main() -> None:
    """Add pairs for some minutes and say how the figures stand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pairs of each kind to reach")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.pairs, options.minutes)
        return
    before, begun_s = len(kept()), time.monotonic()
    add(options.pairs, options.minutes)
    pairs, took_s = kept(), time.monotonic() - begun_s
    print(f"{len(pairs) - before} pairs in {took_s:.0f} s, {2 * options.pairs - len(pairs)} to take", end="")
    print(f", {took_s / max(1, len(pairs) - before):.1f} s a pair; kept in {KEPT.relative_to(ROOT)}")
    for one in figures(pairs):
        print(f"{one.name} = {one.shown()} ({'passed' if one.passed else 'open'}: {one.bar})")


if __name__ == "__main__":
    main()
