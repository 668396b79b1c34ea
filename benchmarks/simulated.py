"""The simulator beside the closed form on measured rows that neither was fitted on; sizes and speed of its engine."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks._figures import Figure
from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block, folds
from nearpeak.api.questions import capture
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import case
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import Setting
from nearpeak.simulation.architecture_sweep import sweep
from nearpeak.simulation.engine.device_work import Kernel, Node, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.greedy_slots import makespan_ps
from nearpeak.simulation.lowering import kernels_of
from nearpeak.simulation.machine import LIMITS, Machine
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.machine_units import PS_PER_S
from nearpeak.simulation.step_simulation import simulate_step
from nearpeak.targets import target_of

FIGURES = (
    "simulated_gemm_against_form", "simulated_decode_against_form", "simulated_prefill_against_form",
    "simulated_grouped_gemm_against_form", "simulated_collective_against_form", "simulated_conv_against_form",
    "simulated_stream_against_form",
    "simulated_ctas_per_second", "simulated_million_ctas_seconds", "simulated_70b_step_seconds",
    "simulated_architectures_seconds",
)  # fmt: skip
SEED = 11
ROWS = 100
"""Held-out rows per block."""
FREED = 1e6
"""Times the rate of what all share, to see whether that held a kernel back."""
REASONS = {
    "grouped_gemm": "whole waves of the whole tiles of each group",
    "collective": "one protocol, where the form passes from one to the next by degrees",
}  # fmt: skip
"""Why a simulation differs from the form where nothing that all share is full, by family."""
APART = 0.05
"""Difference of simulation and closed form that is reported."""


def measure() -> Iterator[Figure]:
    """Score simulation and form on the same rows, then the speed of the engine."""
    corpus = Path(os.environ.get("NEARPEAK_CORPUS", "../shared/corpus"))
    kinds = (
        ("gemm", "gemm", None), ("decode", "attention", "decode"), ("prefill", "attention", "context"),
        *((name, name, None) for name in ("grouped_gemm", "collective", "conv", "stream")),
    )  # fmt: skip
    for name, family, wanted in kinds:
        ratio = compared(corpus, family, wanted)
        yield Figure(
            name=f"simulated_{name}_against_form", value=ratio, unit="times the form's error", bar="<= 1.2",
            passed=ratio <= 1.2, seed=SEED,
        )  # fmt: skip
    rate = _rate()
    yield Figure(
        name="simulated_ctas_per_second", value=rate, unit="CTA/s", bar=">= 2,000,000", passed=rate >= 2e6, seed=SEED
    )
    yield from _speeds()


def _speeds() -> Iterator[Figure]:
    """Yield CPU times of a large grid, of a large step, and of a thousand devices that do not exist."""
    for name, run, bar_s in (
        ("million_ctas", _million, 0.01), ("70b_step", _large_step(), 5.0), ("architectures", _sweep(), 60.0),
    ):  # fmt: skip
        run()
        start = time.process_time()
        run()
        value = time.process_time() - start
        yield Figure(
            name=f"simulated_{name}_seconds", value=value, unit="s", bar=f"<= {bar_s:g} s", passed=value <= bar_s
        )


def _million() -> None:
    """Run a grid of a million equal blocks wave by wave."""
    block = Kernel(name="g", cta_count=10**6, phases=(Phase(fixed_ps=5_000_000),), needs=LIMITS["hopper"])
    simulate(machine_of(target_of("h100_sxm")), [block])


def _large_step() -> Callable[[], object]:
    """Return the kernels of a training step of a model of 70 billion parameters, captured beforehand."""
    workload = capture("llama-3-70b", step="train", batch=1, sequence=4096, dtype="bf16")
    target = target_of("h100_sxm")
    return lambda: simulate_step(workload, target)


def _sweep() -> Callable[[], object]:
    """Return a step of ResNet-50 on a thousand combinations of multiprocessors and memory."""
    workload = capture("resnet-50", dtype="fp16", batch=64)
    axes = {
        "sm_count": tuple(str(40 + 8 * place) for place in range(40)),
        "dram.bandwidth": tuple(f'"{1 + 0.4 * place:g} TB/s"' for place in range(25)),
    }
    done = []

    def run() -> None:
        if done:  # the first call only compiles
            sweep(workload, "h100_sxm", axes)
        done.append(1)

    return run


def compared(corpus: Path, family_name: str, only: str | None) -> float:
    """Return the simulation's mean error over the form's, on all blocks together; print each block.

    Rows on which the two differ are counted by the reason.
    """
    family = next(one for one in families() if one.name == family_name)
    total = np.zeros(2)
    count = 0
    reasons = Counter[str]()
    for block in family.blocks(corpus):
        if not family.is_allowed(block) or (only and only not in block.name):
            continue
        rows = _rows(block)
        found = [errors for row in rows if (errors := _errors(block, int(row))) is not None]
        if not found:
            continue
        sim, form, apart = (np.array(column) for column in list(zip(*found, strict=True))[:3])
        reasons.update(_reason(one, family_name) for one in found if one.apart > APART)
        total += (sim.sum(), form.sum())
        count += len(found)
        print(
            f"  {block.name}: {len(found)} rows, simulated {100 * sim.mean():.1f} %, form {100 * form.mean():.1f} %, "
            f"{(apart > APART).sum()} rows differ by more than {100 * APART:.0f} %", flush=True,
        )  # fmt: skip
    sim_ratio, form_ratio = total / max(count, 1)
    print(f"  {family_name}: {100 * sim_ratio:.2f} % against {100 * form_ratio:.2f} %, {count} rows")
    for reason, rows in reasons.most_common():
        print(f"    {rows} differ by more than {100 * APART:.0f} %: {reason}", flush=True)
    return float(total[0] / total[1]) if count else float("nan")


def _rows(block: Block) -> np.ndarray:
    held = np.flatnonzero(folds(block) == 3)
    return np.random.default_rng(SEED).permutation(held)[:ROWS]


class Row(NamedTuple):
    """One row: errors of simulation and form, how far they are apart, and what it was."""

    simulated: float
    form: float
    apart: float
    form_s: float
    case: Case
    device: str
    setting: Setting


def _errors(block: Block, row: int) -> Row | None:
    """Return the errors of simulation and form on one row, and how far they are apart."""
    axes = {name: int(column[row]) for name, column in block.axes.items()}
    target, setting = target_of(block.device), replace(block.setting_of(row), is_corrected=False)
    try:
        one = case(block.op, block.phase, **block.dtypes, **block.attributes, **axes)
        simulated = _alone_s(kernels_of(one, target, setting), machine_of(target))
        form_s = predict_case(one, target, setting).time_s
    except NearpeakError:
        return None
    measured = float(block.measured_s[row])
    return Row(
        abs(simulated / measured - 1), abs(form_s / measured - 1), abs(simulated / form_s - 1), form_s, one,
        block.device, setting,
    )  # fmt: skip


def _alone_s(kernels: tuple[Node, ...], machine: Machine) -> float:
    return sum(simulate(machine, [kernel]).end_ps for kernel in kernels) / PS_PER_S


def _reason(row: Row, family: str) -> str:
    """Return why simulation and form differ: what all share was full, the host, or what the family does otherwise."""
    target = target_of(row.device)
    machine, kernels = machine_of(target), kernels_of(row.case, target, row.setting)
    for pool in machine.pool_bytes_per_s:
        rates = {name: rate * (FREED if name == pool else 1) for name, rate in machine.pool_bytes_per_s.items()}
        freed_s = _alone_s(kernels, replace(machine, pool_bytes_per_s=rates))
        if abs(freed_s / row.form_s - 1) <= APART:
            return f"{pool} was full, which the form lets kernels exceed"
    if row.setting.host_timed:
        unseen = replace(row.setting, host_timed=False)
        form_s = predict_case(row.case, target, unseen).time_s
        if abs(_alone_s(kernels_of(row.case, target, unseen), machine) / form_s - 1) <= APART:
            return "the floor of the host is a corner, which the form rounds"
    return REASONS.get(family, "parts overlap otherwise")


def _rate() -> float:
    draws = np.random.default_rng(SEED).exponential(1e6, (2000, 1000)).astype(np.int64)
    makespan_ps(draws[0], 132)
    start = time.process_time()
    for row in draws:
        makespan_ps(row, 132)
    return float(draws.size / (time.process_time() - start))
