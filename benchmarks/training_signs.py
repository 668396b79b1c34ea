"""Check the sign and size of what overlapped tensor parallelism and FP8 gain in published training runs.

Source: torchtitan, June 2025, H100: tokens/s/GPU of Llama 3 under tensor parallelism of 8 (design page of parallel
training, section 6). Batch sizes are not stated there; 16 sequences of 8,192 per replica are assumed.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace

from benchmarks._figures import Figure
from nearpeak.api.training.training_time import training_time
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.targets.clusters import cluster_of

FIGURES = ("training_signs",)
_MEASURED = {
    ("llama-3-70b", 256): {
        ("bf16", False): 597, ("bf16", True): 652, ("fp8-current", False): 810, ("fp8-current", True): 942,
        ("fp8-row", False): 600, ("fp8-row", True): 625,
    },
    ("llama-3-8b", 64): {
        ("bf16", False): 4378, ("bf16", True): 4809, ("fp8-current", False): 5078, ("fp8-current", True): 5570,
        ("fp8-row", False): 3709, ("fp8-row", True): 3915,
    },
}  # fmt: skip
"""Tokens/s/GPU by model and GPUs, then by precision and whether collectives are overlapped."""
_COMPARISONS = (
    *(((precision, False), (precision, True)) for precision in ("bf16", "fp8-current", "fp8-row")),
    *((("bf16", False), (precision, False)) for precision in ("fp8-current", "fp8-row")),
)
"""Overlapped against plain, and FP8 against bf16: ten signs over both models."""


def measure() -> Iterator[Figure]:
    """Yield how many signs are right."""
    gains = list(_gains())
    right = sum((measured > 0) == (predicted > 0) for _, measured, predicted in gains)
    yield Figure(
        name="training_signs", value=right, unit=f"of {len(gains)} signs", bar=">= 9", passed=right >= 9
    )  # fmt: skip


def _gains() -> Iterator[tuple[str, float, float]]:
    """Yield each comparison with its measured and its predicted gain."""
    for (model, devices), measured in _MEASURED.items():
        plan = TrainingPlan(
            tp=8, dp=devices // 8, micro_batch=16, global_batch=2 * devices, sequence=8192, sharding="fsdp",
            framework="fsdp2", sequence_parallel=True, recompute="full" if "70b" in model else "selective",
            is_compiled=True,
        )  # fmt: skip
        cluster = cluster_of(f"{devices}xh100_sxm", "ib_ndr")
        predicted = {
            (precision, is_overlapped): training_time(
                model, replace(plan, precision=precision, tp_overlap=is_overlapped), cluster, "torchtitan"
            ).tokens_per_s_device
            for precision, is_overlapped in measured
        }
        for before, after in _COMPARISONS:
            name = f"{model:12} {_name(before)} to {_name(after)}"
            yield name, measured[after] / measured[before] - 1, predicted[after] / predicted[before] - 1


def main() -> None:
    """Print the measured and the predicted gain of each comparison."""
    for name, measured, predicted in _gains():
        sys.stdout.write(f"{name}: {measured:+6.1%} measured, {predicted:+6.1%} predicted\n")


def _name(choice: tuple[str, bool]) -> str:
    return f"{choice[0]:11} {'overlapped' if choice[1] else 'plain':10}"


if __name__ == "__main__":
    main()
