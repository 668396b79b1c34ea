"""Whether expected times of quantised files say rightly if quantising pays on this CPU: 40 models by scheme."""

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks._figures import Figure
from benchmarks._quantised_graphs import SCHEMES, float_file
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.precision.quantisation.measured_files import measured_files
from nearpeak.precision.quantisation.precision_table import LEAST_CHANGE_RATIO

FIGURES = ("precision_verdict_sign",)
CELL_COUNT = 40
SEED = 20261129
BUDGET_S = 0.25


def measure() -> Iterator[Figure]:
    """Quantise random models until 40 cells changed by more than 10 %, and yield the share of right signs."""
    cells = list(compared(CELL_COUNT, SEED))
    wrong = [cell for cell in cells if (cell[1] > 1) != (cell[2] > 1)]
    for name, expected, measured in wrong:
        print(f"  wrong: {name}: expected {expected:.2f}×, measured {measured:.2f}×", flush=True)
    share = 100 * (1 - len(wrong) / len(cells))
    yield Figure(
        name="precision_verdict_sign", value=share, unit="%", bar=">= 90%", passed=share >= 90, seed=SEED
    )  # fmt: skip


def compared(count: int, seed: int) -> Iterator[tuple[str, float, float]]:
    """Yield name, expected and measured speed-up of cells that changed by more than a tenth, schemes in turn."""
    draw, found = random.Random(f"verdict {seed}"), 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(4 * count):
            path = Path(folder) / f"{number}.onnx"
            name = float_file(path, draw)
            schemes = [SCHEMES[(2 * number + step) % len(SCHEMES)] for step in range(2)]
            (plain, *runs), _ = measured_files(path, CaptureOptions(), schemes, budget_s=BUDGET_S)
            for run in runs:
                if None in (plain.measured_s, run.measured_s, plain.expected_s, run.expected_s):
                    continue
                measured, expected = plain.measured_s / run.measured_s, plain.expected_s / run.expected_s
                if abs(measured - 1) > LEAST_CHANGE_RATIO and found < count:
                    found += 1
                    yield f"{name} {run.scheme}", expected, measured
            if found == count:
                return
