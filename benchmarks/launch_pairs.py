"""What remedies of launch-bound steps were said to give beside what the changed program takes: pairs of traces.

No public pair of an eager and a graph run of one program is at hand; both traces of a pair are generated, by parameters
that the rules do not know, and both are read from files.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import _planted_traces as planted
from benchmarks._figures import Figure
from benchmarks._planted_launch_causes import graphed
from benchmarks._planted_models import Builder
from benchmarks._planted_queues import Op, Program
from benchmarks.planted_traces import reported
from nearpeak.core.traces.finding_report import TraceReport

FIGURES = ("launch_pairs_graph", "launch_pairs_batch", "launch_pairs_caching", "launch_pairs_bounds")
SEEDS = range(2000, 2050)
"""Seeds of the scored pairs."""
NEAR_RATIO = 0.15
_LITTLE = 0.01
"""Part of the step by which an executed gain may pass its bound: noise of the second program."""


def measure() -> Iterator[Figure]:
    """Yield for each remedy the share of pairs whose executed gain is near, and the share that stay within bounds."""
    kept: list[bool] = []
    for name, remedy, pair in (
        ("launch_pairs_graph", "one CUDA graph per step", graph_pair),
        ("launch_pairs_batch", "twice the batch, per sample", batch_pair),
        ("launch_pairs_caching", "cache tensors that each step creates again", caching_pair),
    ):
        gains = list(_gains(remedy, pair))
        kept += [executed <= said + _LITTLE * step for said, executed, step in gains]
        near = sum(abs(said - executed) <= NEAR_RATIO * executed for said, executed, _ in gains) / len(gains)
        yield Figure(name=name, value=near * 100, unit="%", bar=">= 90 % within 15 %", passed=near >= 0.9, seed=2000)
    share = sum(kept) / len(kept)
    yield Figure(
        name=FIGURES[3], value=share * 100, unit="%", bar="100 % within the bound", passed=share == 1, seed=2000
    )


def _gains(remedy: str, pair: Callable[[int], tuple[Program, Program, int]]) -> Iterator[tuple[float, float, float]]:
    """Yield what was said to be gained, what is, and the step; pairs in which nothing is said are left out."""
    with tempfile.TemporaryDirectory() as folder:
        for seed in SEEDS:
            before, after, samples = pair(seed)
            first = reported(before, Path(folder) / "before.json")
            second = reported(after, Path(folder) / "after.json")
            said = _said(first, remedy)
            if said is not None:
                yield said, first.step_s - second.step_s / samples, first.step_s


def _said(report: TraceReport, remedy: str) -> float | None:
    bound = next((one for one in report.findings if one.id == "idle.launch_bound"), None)
    return next((gain for name, gain in bound.remedies if name == remedy), None) if bound else None


def _builder(seed: int) -> Builder:
    return Builder(seed, tokens=(64, 256), widths=(256, 512), python_us=(8.0, 22.0))


def graph_pair(seed: int) -> tuple[Program, Program, int]:
    """Return an eager program, the same work launched as one graph in each step, and 1."""

    def after(make: Builder) -> list[Op]:
        works = make.plain()[3:]
        return [*graphed(works, make, 4_000 + make.rng.uniform(60, 160) * len(works)), *make.ending()]

    eager, later = _builder(seed), _builder(seed)
    before = eager.program(lambda _: [*eager.plain()[3:], *eager.ending()])
    return before, later.program(lambda _: after(later)), 1


def batch_pair(seed: int) -> tuple[Program, Program, int]:
    """Return an eager program, the same with twice the batch, and 2: what every work adds beyond its start doubles."""
    make = _builder(seed)
    before = make.program(lambda _: [*make.plain(), *make.ending()])
    start_ns = 2_000
    return before, replace(before, ops=[_doubled(op, start_ns) for op in before.ops]), 2


def _doubled(op: Op, start_ns: int) -> Op:
    if not op.kernel or op.kernel.startswith("Mem"):
        return op
    return replace(op, device_ns=2 * op.device_ns - min(start_ns, op.device_ns))


def caching_pair(seed: int) -> tuple[Program, Program, int]:
    """Return an eager program that makes tensors anew in each step, the same without that, and 1."""
    make = _builder(seed)
    each = make.rng.uniform(40, 120) * 1000

    def step(_: int) -> list[Op]:
        found = make.distractors()
        for _ in range(make.layers):
            ops = make.layer()
            made = Op("aten::full", make.noisy(each), annotation="op", cure=None)
            found += [*ops[:4], made, *ops[4:]]
        return [*found, make.optimizer(), *make.ending()]

    before = make.program(step)
    return before, planted.cured(before), 1
