"""Digits at 8, 4 and 3 bits: quantised after training and in training, against fp32 trained as long, 5 seeds."""

import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev

from benchmarks._figures import Figure
from nearpeak.judgement.paired_verdict import student_quantile
from nearpeak.precision.quantisation.training_trials import trained_accuracies

FIGURES = ("digits_8bit_points", "digits_3bit_qat_gain", "digits_cpu_seconds")
SEED_COUNT = 5
NETS = {"convolutions": 5, "transformer": 10}
"""Networks with their extra epochs."""
NAMES = ("int8", "int4", "int3")


def measure() -> Iterator[Figure]:
    """Train both networks, and yield the largest loss at 8 bits, the least gain at 3 bits, and the CPU time."""
    start, losses, gains, significant = time.process_time(), [], [], True
    for net, epochs in NETS.items():
        source = f"{Path(__file__).with_name('_digits_task.py')}:{net}"
        found = trained_accuracies(source, NAMES, NAMES, SEED_COUNT, epochs)
        for name in NAMES:
            ptq, qat = found[name]
            points = [100 * (new - old) for new, old in zip(qat.right_ratio, ptq.right_ratio, strict=True)]
            print(f"  {net} {name}: ptq {100 * ptq.mean_ratio:.1f} ({100 * (ptq.difference_ratio or 0):+.1f}), qat "
                  f"{100 * qat.mean_ratio:.1f} ({100 * (qat.difference_ratio or 0):+.1f})", flush=True)  # fmt: skip
            if name == "int8":
                losses += [abs(100 * (one.difference_ratio or 0)) for one in (ptq, qat)]
            if name == "int3":
                gains.append(fmean(points))
                t = fmean(points) / (stdev(points) / SEED_COUNT**0.5)
                significant &= t > student_quantile(0.95, SEED_COUNT - 1)
    spent_s = time.process_time() - start
    yield Figure(
        name="digits_8bit_points", value=max(losses), unit="points", bar="<= 1", passed=max(losses) <= 1, seed=0
    )  # fmt: skip
    yield Figure(
        name="digits_3bit_qat_gain", value=min(gains), unit="points", bar=">= 3, p < 0.05",
        passed=min(gains) >= 3 and significant, seed=0,
    )  # fmt: skip
    yield Figure(name="digits_cpu_seconds", value=spent_s, unit="s", bar="<= 120 s", passed=spent_s <= 120, seed=0)
