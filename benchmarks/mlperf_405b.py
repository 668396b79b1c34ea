"""Check rates and scaling of MLPerf Training 5.0, Llama 3.1 405B, on 512 to 8,192 GPUs.

Source: mlcommons/training_results_v5.0 0fdc28f. Rates, tokens per second and GPU, are quoted in section 3 of the design
page of parallel training. Plans are those of the submissions' configurations (NVIDIA eos-dfw_n64 and n1024,
config_DGXH100_64x8x288xtp8pp8cp2.sh and _1024x8x24xtp8pp8cp2.sh; Nebius 8xH200_n64 and n128,
config_DGXH200_64x8x144xtp4pp8cp2.sh and _128x8x72xtp4pp8cp2.sh): eight chunks a rank, embedding and loss counted as a
layer each, no CUDA graphs.
"""

import sys
from collections.abc import Iterator

from benchmarks._figures import Figure
from nearpeak.api.training.training_time import training_time
from nearpeak.core.systems.plan_words import training_plan_of
from nearpeak.targets.clusters import cluster_of

FIGURES = ("mlperf_405b_rate", "mlperf_405b_scaling")
_STAGES = ":".join(["1", *["2"] * 62, "1"])
_PLAN = f"pp=8,cp=2,micro=1,schedule=interleaved:8,stages={_STAGES},zero=1,sp,tp_overlap"
_TP = {"h100_sxm": 8, "h200_sxm": 4}
"""Tensor-parallel degree by target."""
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
            words = f"tp={_TP[target]},{_PLAN}"
            plan = training_plan_of(words, devices, sequence=8192, global_batch=batch, precision="fp8-delayed")
            answer = training_time("llama-3.1-405b", plan, cluster_of(f"{devices}x{target}", "ib_ndr"),
                                   "megatron-lm")  # fmt: skip
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
