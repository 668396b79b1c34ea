"""The gate against history, commit by commit on made-up histories: false failures, and how soon changes fail."""

import math
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks._figures import Figure
from benchmarks._series import FAMILIES, noise
from nearpeak.core.history.gate import GatePolicy, GateResult, GateRule
from nearpeak.core.history.stored_run import TIME, RunRecord
from nearpeak.core.history.track import TrackPoint
from nearpeak.gate.baselines import Line, judged_in_history
from nearpeak.gate.evaluation import gated
from nearpeak.history.demo_series import Planted, demo_runs
from nearpeak.history.demo_store import SUBJECTS, bound_on
from nearpeak.store import open_store

FIGURES = (
    "gate_false_lines", "gate_false_gates", "gate_suspect_lines", "gate_found", "gate_found_size",
    "gate_false_families", "gate_found_families",
)  # fmt: skip
COMMITS, WARM_UP, STEP = 80, 20, 2
SEEDS = range(1000, 1012)
FAMILY_SEEDS, FAMILY_COMMITS = range(1000, 1030), 120
RULES = (
    GateRule(name="rolling", baseline="rolling", window_count=10),
    GateRule(name="previous", baseline="previous"),
)
POLICY = GatePolicy(name="p", source="", rules=RULES)
DEVICES = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "AMD Instinct MI300X")


def measure() -> Iterator[Figure]:
    """Yield failures of lines and of whole gates where nothing but clocks changed, then what is found of changes."""
    lines = failed = suspects = gates = wrong = 0
    for seed in SEEDS:
        for result in _gates(_episodes(seed), seed, range(WARM_UP, COMMITS, STEP)):
            verdicts = [one.verdict for one in result.lines]
            lines, failed = lines + len(verdicts), failed + verdicts.count("fail")
            suspects += verdicts.count("inconclusive")
            gates, wrong = gates + 1, wrong + ("fail" in verdicts)
    false, share = 100 * failed / lines, 100 * wrong / gates
    yield _figure("gate_false_lines", false, "%", f"<= 0.1 % of {lines} lines without a change", false <= 0.1)
    yield _figure("gate_false_gates", share, "%", f"<= 1 % of {gates} gates over 33 series", share <= 1)
    yield _figure("gate_suspect_lines", 100 * suspects / lines, "%", "", True)
    for name, size, least in (("gate_found", 0.05, 99), ("gate_found_size", 0.03, 90)):
        found = _found(size)
        yield _figure(name, found, "%", f">= {least} % of {size:.0%} at the second commit or before", found >= least)
    false = max(100 * _family(family, 0.0) for family in FAMILIES)
    yield _figure("gate_false_families", false, "%", "<= 0.5 % of lines in the worst of seven families", false <= 0.5)
    found = min(100 * _family(family, 0.10) for family in FAMILIES)
    yield _figure("gate_found_families", found, "%", ">= 90 % of 10 % in the worst family, by two runs", found >= 90)


def _figure(name: str, value: float, unit: str, bar: str, passed: bool) -> Figure:
    return Figure(name=name, value=value, unit=unit, bar=bar, passed=passed, seed=SEEDS.start)


def _episodes(seed: int) -> tuple[Planted, ...]:
    """Return episodes of 2 to 5 % lower clocks, one or two on each device, and no change of the code."""
    rng = np.random.default_rng((seed, 5))
    found = []
    for device in DEVICES:
        for _ in range(int(rng.integers(1, 3))):
            start, length = int(rng.integers(10, COMMITS - 12)), int(rng.integers(2, 12))
            found.append(Planted(
                commit=start, stop=start + length, ops=(), devices=(device,), cause="clock", subject="warm",
                time_ratio=1 + float(rng.uniform(0.02, 0.05)),
            ))  # fmt: skip
    return tuple(found)


def _gates(plants: tuple[Planted, ...], seed: int, places: Sequence[int]) -> Iterator[GateResult]:
    """Yield what the gate says of the newest commit, as the history grows."""
    runs = demo_runs(SUBJECTS, bound_on, commits=COMMITS, seed=seed, plants=plants)
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "a.db", create=True) as store:
        for place, part in groupby(runs, key=_position):
            store.ingest_all(tuple(part))
            if place in places:
                yield gated(store, POLICY)


def _position(one: RunRecord) -> int:
    return -1 if one.revision is None or one.revision.position is None else one.revision.position


def _found(size: float) -> float:
    """Return the percentage of series with a change of the code that fail at its first commit or the next."""
    told = there = 0
    for seed in SEEDS[:6]:
        plant = Planted(
            commit=50, ops=("gemm", "softmax"), devices=(), time_ratio=1 + size, cause="commit", subject="slow"
        )
        failed: set[str] = set()
        names: set[str] = set()
        for result in _gates((*_episodes(seed), plant), seed, (50, 51)):
            rolling = [one for one in result.lines if one.rule == "rolling" and one.series[:4] in ("gemm", "soft")]
            failed |= {one.series for one in rolling if one.verdict == "fail"}
            names |= {one.series for one in rolling}
        told, there = told + len(failed), there + len(names)
    return 100 * told / there


def _family(family: str, size: float) -> float:
    """Return the share of lines that fail, of series with one run per commit; with a change, of commits run twice."""
    failed = lines = 0
    for seed in FAMILY_SEEDS:
        rng = np.random.default_rng((seed, FAMILIES.index(family), round(100 * size)))
        values = noise(family, FAMILY_COMMITS + 1, rng) / 100
        known = [_point(i, [math.exp(one)]) for i, one in enumerate(values)]
        for place in range(40, FAMILY_COMMITS, 4 if size else 1):
            runs = [math.exp(values[place])]
            if size:
                other = noise(family, 60, rng)[-1] / 100
                runs = [one * (1 + size) for one in (*runs, math.exp(other))]
            points = (*known[:place], _point(place, runs))
            line = Line(own=points, base=points, sha=f"{place}", metric=TIME)
            found = judged_in_history(RULES[0], line, "")
            failed, lines = failed + (found is not None and found.fails), lines + 1
    return failed / lines


def _point(place: int, runs: Sequence[float]) -> TrackPoint:
    return TrackPoint(
        sha=f"{place}", position=place, order_key=place << 20, run_id=place, stack_id=1, device_id=1,
        value=median(runs), values=tuple(runs), run_ids=tuple(range(place * 10, place * 10 + len(runs))),
    )  # fmt: skip
