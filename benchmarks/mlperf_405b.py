"""Check rates and scaling of MLPerf Training 5.0, Llama 3.1 405B, on 512 to 8,192 GPUs.

Source: mlcommons/training_results_v5.0 0fdc28f, as the design page of parallel training quotes it in section 3: tokens
per second and GPU, sequences of a step, and micro-batches of a pipeline on H100 (288 on 512 GPUs, 24 on 8,192), which
give 128 ranks of a replica. How these are split is not quoted: the split that Megatron Bridge publishes for the same
model and GPU is taken. Batches on H200 are not quoted; that of H100 is taken.
"""

import sys
from collections.abc import Iterator

from benchmarks._figures import Figure
from nearpeak.api.training.training_time import training_time
from nearpeak.core.systems.plan_words import training_plan_of
from nearpeak.targets.clusters import cluster_of

FIGURES = ("mlperf_405b_rate", "mlperf_405b_scaling")
_PLAN = "tp=8,pp=8,cp=2,micro=1,schedule=interleaved:8,zero=1,sp,tp_overlap"
_MEASURED = {
    "h100_sxm": ((512, 1152, 334), (8192, 1536, 296)),
    "h200_sxm": ((512, 1152, 369), (1024, 1152, 364)),
}
"""GPUs, sequences of a step, and tokens per second and GPU, by target."""


def measure() -> Iterator[Figure]:
    """Yield the largest error of a rate, and of the scaling efficiency from the smallest to the largest job."""
    rows = list(_rows())
    worst = max(abs(predicted / measured - 1) for _, _, measured, predicted in rows)
    yield Figure(name="mlperf_405b_rate", value=100 * worst, unit="%", bar="<= 8 %", passed=worst <= 0.08)
    points = max(map(abs, _scaling(rows).values()))
    yield Figure(name="mlperf_405b_scaling", value=points, unit="points", bar="<= 3 points", passed=points <= 3)


def _rows() -> Iterator[tuple[str, int, float, float]]:
    """Yield target, GPUs, and the measured and the predicted rate."""
    for target, points in _MEASURED.items():
        for devices, batch, rate in points:
            plan = training_plan_of(_PLAN, devices, sequence=8192, global_batch=batch, precision="fp8-delayed")
            answer = training_time("llama-3.1-405b", plan, cluster_of(f"{devices}x{target}", "ib_ndr"),
                                   "megatron-bridge")  # fmt: skip
            yield target, devices, rate, answer.tokens_per_s_device


def _scaling(rows: list[tuple[str, int, float, float]]) -> dict[str, float]:
    """Return the predicted scaling efficiency less the measured one in points, by target."""
    found: dict[str, float] = {}
    for target in _MEASURED:
        (_, _, *first), (_, _, *last) = (row for row in rows if row[0] == target)
        found[target] = 100 * (last[1] / first[1] - last[0] / first[0])
    return found


def main() -> None:
    """Print the rates and the scaling."""
    rows = list(_rows())
    for target, devices, measured, predicted in rows:
        sys.stdout.write(f"{devices:5} {target}: {measured:.0f} measured, {predicted:.0f} predicted tokens/s/GPU, "
                         f"{predicted / measured - 1:+.1%}\n")  # fmt: skip
    for target, points in _scaling(rows).items():
        sys.stdout.write(f"scaling on {target}: {points:+.1f} points off\n")


if __name__ == "__main__":
    main()
