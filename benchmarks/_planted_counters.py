"""Kernels as Nsight Compute counts them, with one planted cause or none: a model of memory, banks and multiprocessors."""

# ruff: noqa: E501  # names of counters are as long as they are

import csv
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks._planted_queues import BYTES_PER_S, SMS

START_NS = 1_800
"""What a kernel takes that does nothing."""
_NAMES = ("triton_red_fused_norm", "void gather_rows<float>", "void scatter_add<float, int>", "void scan_blocks<float>",
          "void rope_apply<float>", "stencil_tile<32>", "histogram_kernel")  # fmt: skip


@dataclass(frozen=True)
class Counted:
    """One kernel: what each unit needs for it at its best, and what it wastes."""

    name: str
    memory_ns: float
    compute_ns: float
    shared_ns: float
    blocks: int
    used: float = 1.0  # part of the moved sectors that is used
    conflicts: float = 0.0  # part of the wavefronts that are conflicts
    noise: float = 1.0

    @property
    def times(self) -> tuple[float, float, float]:
        """Return the times of memory, computing and shared memory, with what they waste."""
        spread = max(1.0, SMS / self.blocks)
        return self.memory_ns / self.used, self.compute_ns * spread, self.shared_ns / (1 - self.conflicts)

    @property
    def length_ns(self) -> int:
        """Return how long it takes."""
        return int((max(self.times) + START_NS) * self.noise)


@dataclass(frozen=True)
class Kernels:
    """All kernels, with the cause and without it."""

    kernels: tuple[Counted, ...]
    without_cause: tuple[Counted, ...]
    unprofiled_s: float | None = None


Spoil = Callable[[random.Random, Counted], tuple[Counted, Counted]]
"""Makes a kernel with the cause, and the same one without it, from a good one."""


def step_ns(program: Kernels) -> float:
    return float(sum(one.length_ns for one in program.kernels))


def cured(program: Kernels) -> Kernels:
    return replace(program, kernels=program.without_cause)


def _good(rng: random.Random) -> Counted:
    """Return a kernel that memory or computing limits, as good ones are."""
    memory, other = rng.uniform(40, 400) * 1000, rng.uniform(0.1, 0.5)
    pair = (memory, memory * other) if rng.random() < 0.7 else (memory * other, memory)
    return Counted(rng.choice(_NAMES), *pair, memory * rng.uniform(0.05, 0.4), rng.randint(4, 40) * SMS, rng.uniform(0.94, 1.0), 0.0,
                   rng.lognormvariate(0, 0.03))  # fmt: skip


def _program(seed: int, spoil: Spoil | None = None) -> Kernels:
    rng = random.Random(seed)
    good = tuple(_good(rng) for _ in range(rng.randint(5, 14)))
    if spoil is None:
        return Kernels(good, good)
    chosen = set(rng.sample(range(len(good)), max(2, len(good) // 3)))
    pairs = [spoil(rng, one) if place in chosen else (one, one) for place, one in enumerate(good)]
    return Kernels(tuple(bad for bad, _ in pairs), tuple(well for _, well in pairs))


def healthy(seed: int) -> Kernels:
    return _program(seed)


def uncoalesced(seed: int) -> Kernels:
    def spoil(rng: random.Random, one: Counted) -> tuple[Counted, Counted]:
        memory = rng.uniform(100, 400) * 1000
        bad = replace(one, memory_ns=memory, compute_ns=memory * rng.uniform(0.1, 0.4), used=rng.uniform(0.2, 0.6))
        return bad, replace(bad, used=1.0)

    return _program(seed, spoil)


def bank_conflicts(seed: int) -> Kernels:
    def spoil(rng: random.Random, one: Counted) -> tuple[Counted, Counted]:
        shared = rng.uniform(150, 400) * 1000
        bad = replace(one, shared_ns=shared, memory_ns=shared * rng.uniform(0.2, 0.5), compute_ns=shared * rng.uniform(0.1, 0.5),
                      conflicts=rng.uniform(0.4, 0.8))  # fmt: skip
        return bad, replace(bad, conflicts=0.0)

    return _program(seed, spoil)


def small_grid(seed: int) -> Kernels:
    def spoil(rng: random.Random, one: Counted) -> tuple[Counted, Counted]:
        work = rng.uniform(30, 120) * 1000
        bad = replace(one, compute_ns=work, memory_ns=work * 0.3, shared_ns=work * 0.2, blocks=rng.randint(8, 66))
        return bad, replace(bad, blocks=SMS)

    return _program(seed, spoil)


_HEADER = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device",
           "CC", "Section Name", "Body Item Label", "Metric Name", "Metric Unit", "Metric Value", "Rule Name", "Rule Type",
           "Rule Description", "Estimated Speedup Type", "Estimated Speedup")  # fmt: skip


def write(program: Kernels, path: Path, without: tuple[str, ...] = ()) -> Path:
    """Write a details page, with some kinds of counters left out."""
    with path.open("w", encoding="utf-8", newline="") as file:
        page = csv.writer(file, quoting=csv.QUOTE_ALL)
        page.writerow(_HEADER)
        for number, one in enumerate(program.kernels):
            grid = "" if "grids" in without else f"({one.blocks}, 1, 1)"
            head = (number, 4242, "python", "host", one.name, 1, 7, "(256, 1, 1)", grid, 0, "9.0", "Counters", "")
            for name, unit, value in _metrics(one, without):
                page.writerow((*head, name, unit, f"{value:,.2f}", "", "", "", "", ""))
    return path


def _metrics(one: Counted, without: tuple[str, ...]) -> list[tuple[str, str, float]]:
    memory, compute, shared = (100 * time / one.length_ns for time in one.times)
    spread = max(1.0, SMS / one.blocks)  # idle multiprocessors count in the mean
    wavefronts = one.shared_ns * 40
    bytes_moved = one.memory_ns * 1e-9 * BYTES_PER_S
    found = [
        ("gpu__time_duration.sum", "ns", one.length_ns), ("launch__sm_count", "", SMS),
        ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", min(100.0, max(memory, shared * 0.9))),
        ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", compute / spread),
        ("l1tex__throughput.avg.pct_of_peak_sustained_active", "%", min(100.0, shared)),
        ("dram__bytes.sum", "byte", bytes_moved),
    ]  # fmt: skip
    if "sectors" not in without:
        found.append(("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct", "%", 100 * one.used))
    if "banks" not in without:
        found += [("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", wavefronts * one.conflicts / (1 - one.conflicts)),
                  ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", wavefronts / (1 - one.conflicts))]  # fmt: skip
    return found
