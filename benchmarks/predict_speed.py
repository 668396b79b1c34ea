"""How fast times are predicted: rates and latencies of one core, in CPU time where nothing is waited for."""

import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import nearpeak
from benchmarks._figures import ROOT, Figure
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target

FIGURES = (
    "predict_gemm_rate", "predict_gemm_public_rate", "predict_scalar_seconds", "predict_named_scalar_seconds",
    "predict_first_call_seconds", "predict_read_only_first_call_seconds", "predict_file_seconds",
    "predict_70b_step_seconds", "predict_70b_new_target_seconds", "predict_reference_seconds",
    "predict_new_gemm_seconds", "predict_new_attention_seconds", "predict_new_softmax_seconds",
    "predict_70b_first_step_seconds", "predict_70b_new_step_seconds",
)  # fmt: skip
ROWS, PIECE, RUNS, SEED = 1_000_000, 8192, 20, 20261120
NEW_ROUNDS, NEW_COUNT = 20, 200
TOKENS = (512, 1024, 1536, 3072, 4096, 6144, 8192)
"""Lengths of the steps that are predicted one after the other."""
FIRST = (
    "import nearpeak; print(nearpeak.predict(nearpeak.case('gemm', m=4096, n=4096, k=4096, dtype='bf16'), "
    "'h100_sxm').time_s)"
)


def measure() -> Iterator[Figure]:
    """Yield each figure as soon as it is known; the reference is a fixed loop, to compare machines and their load."""
    yield _figure("predict_reference_seconds", _reference(), "s", None)
    yield _figure("predict_gemm_rate", _form_rate(), "predictions/s", 3e6)
    yield _figure("predict_gemm_public_rate", _public_rate(), "predictions/s", 0.0)
    yield _figure("predict_scalar_seconds", _scalar(nearpeak.target("h100_sxm")), "s", 15e-6)
    yield _figure("predict_named_scalar_seconds", _scalar("h100_sxm"), "s", 15e-6)
    for op, cases in _new_cases().items():
        yield _figure(f"predict_new_{op}_seconds", _new(cases), "s", 1e-3)
    yield _figure("predict_first_call_seconds", _first_call(dict(os.environ)), "s", 1.5)
    yield _figure("predict_read_only_first_call_seconds", _read_only(), "s", 1.5)
    yield _figure("predict_file_seconds", _file(), "s", 5.0)
    first_s, sweep_s, new_s, again_s = _step()
    yield _figure("predict_70b_step_seconds", again_s, "s", 1e-3)
    yield _figure("predict_70b_first_step_seconds", first_s, "s", 50e-3)
    yield _figure("predict_70b_new_step_seconds", sweep_s, "s", 50e-3)
    yield _figure("predict_70b_new_target_seconds", new_s, "s", None)


def _figure(name: str, value: float, unit: str, bar: float | None) -> Figure:
    """Return a figure: rates have a least value, times a largest; none or 0 stands for no bar."""
    rate = unit.endswith("/s")
    passed = not bar or (value >= bar if rate else value <= bar)
    text = f"{'>=' if rate else '<='} {bar:,g} {unit}" if bar else ""
    return Figure(name=name, value=value, unit=unit, bar=text, passed=passed, seed=SEED)


def _columns(count: int) -> dict[str, Any]:
    """Return random products, extents log-uniform from 1, or 54, to 16,317."""
    draw = np.random.default_rng(SEED)
    return {
        axis: np.exp(draw.uniform(low, 9.7, count)).astype(np.int64) for axis, low in {"m": 0, "n": 4, "k": 4}.items()
    }


def _least(work: Callable[[], Any], runs: int = RUNS) -> float:
    """Return the least CPU time of some runs, as other load only adds."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def _reference() -> float:
    numbers = np.random.default_rng(SEED).random(1_000_000)
    return _least(lambda: np.sort(numbers))


def _form_rate() -> float:
    """Return how many times with their parts the form gives: search over tiles and splits, waterfall, correction."""
    from nearpeak.prediction.calibration.coefficient_store import calibration_for
    from nearpeak.prediction.kernel_model import USUAL, CaseColumns
    from nearpeak.prediction.models.gemm import KERNEL_MODEL
    from nearpeak.prediction.refinement import coefficients_of
    from nearpeak.prediction.residual_correction import correction_ratio

    target = nearpeak.target("h100_sxm")
    cases = CaseColumns(op="gemm", phase="forward", dtypes={"dtype": "bf16"}, axes=_columns(PIECE))
    calibration = calibration_for(target, KERNEL_MODEL, cases)
    assert calibration.correction is not None

    def predicted() -> Any:
        rows = KERNEL_MODEL.rows(target, cases, coefficients_of(calibration), USUAL)
        return rows.time_s * correction_ratio(calibration.correction, KERNEL_MODEL, target, cases, USUAL, rows)

    predicted()
    return PIECE / _least(predicted, 5 * RUNS)


def _public_rate() -> float:
    """Return how many predictions with bounds, intervals and limiters the public call gives, columns in and out."""
    columns = {"op": "gemm", "dtype": "bf16", **_columns(ROWS)}
    return ROWS / _least(lambda: nearpeak.predict(columns, "h100_sxm"), 5)


def _scalar(target: Target | str) -> float:
    """Return the time of one call whose case has been asked for before, as searches and steps do."""
    cases = [nearpeak.case("gemm", m=m, n=4096, k=4096, dtype="bf16") for m in range(1, 1001)]
    for case in cases:
        nearpeak.predict(case, target)
    return _least(lambda: [nearpeak.predict(case, target) for case in cases]) / len(cases)


def _new_cases() -> dict[str, list[Case]]:
    """Return cases of different shapes by operator, in several rounds: no shape twice."""
    draw = np.random.default_rng(SEED)
    count = NEW_ROUNDS * NEW_COUNT
    m, n, k = (draw.choice(16_000, count, replace=False) + 1 for _ in range(3))
    shapes = list(zip(m.tolist(), n.tolist(), k.tolist(), strict=True))
    heads: dict[str, Any] = {"heads": 32, "kv_heads": 8, "dim": 128, "causal": True, "align": "lower_right"}
    return {
        "gemm": [nearpeak.case("gemm", m=m, n=n, k=k, dtype="bf16") for m, n, k in shapes],
        "attention": [
            nearpeak.case("attention", batch=1, q=min(m, n), kv=max(m, n), dtype="bf16", **heads) for m, n, _ in shapes
        ],
        "softmax": [nearpeak.case("softmax", rows=m, columns=n, dtype="bf16") for m, n, _ in shapes],
    }


def _new(cases: list[Case]) -> float:
    """Return the time of one call whose case has never been asked for, in a process that has predicted others."""
    target = nearpeak.target("h100_sxm")
    rounds = iter([cases[start : start + NEW_COUNT] for start in range(0, len(cases), NEW_COUNT)])
    return _least(lambda: [nearpeak.predict(case, target) for case in next(rounds)], NEW_ROUNDS) / NEW_COUNT


def _first_call(environment: dict[str, str]) -> float:
    """Return the least CPU time of a fresh process that predicts one product; compiled code is in the cache."""
    command = [sys.executable, "-c", FIRST]
    _child(command, environment)
    return min(_child(command, environment) for _ in range(5))


def _child(command: list[str], environment: dict[str, str] | None = None) -> float:
    """Return the CPU time of a process."""
    start = os.times()
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd="/")
    end = os.times()
    return end.children_user + end.children_system - start.children_user - start.children_system


def _read_only() -> float:
    """Return the same of an installation that nobody may write to."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "nearpeak"
        shutil.copytree(ROOT / "src/nearpeak", package, ignore=shutil.ignore_patterns("__pycache__"))
        everything = [package, *package.rglob("*")]
        try:
            for path in everything:
                path.chmod(0o555 if path.is_dir() else 0o444)
            found_s = _first_call(dict(os.environ) | {"PYTHONPATH": folder, "XDG_CACHE_HOME": f"{folder}/cache"})
            assert not list(package.rglob("*.nbi")), "compiled code was written beside the sources"
            return found_s
        finally:
            for path in everything:
                path.chmod(0o755 if path.is_dir() else 0o644)


def _file() -> float:
    """Return the CPU time of `nearpeak predict` on a Parquet table of a million products, all of it."""
    from nearpeak.frontends.files.case_tables import write_columns

    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "cases.parquet"
        text = {"op": np.full(ROWS, "gemm"), "dtype": np.full(ROWS, "bf16")}
        write_columns(table, {**text, **_columns(ROWS)})
        words = ["predict", "--cases", str(table), "--out", f"{folder}/out.parquet", "--target", "h100_sxm"]
        return _child([sys.executable, "-m", "nearpeak", *words])


def _step() -> tuple[float, float, float, float]:
    """Return the time of training steps of Llama-3-70B: just captured, others, on another target, and again.

    Just captured is a step whose calls no prediction has seen, in a process that has predicted another model. The
    others, of other lengths, no prediction has seen either: the median of them. The other target is new too, so that
    its coefficient files are read.
    """
    from benchmarks.capture_scale import capture_of
    from nearpeak.frontends.huggingface.architecture import capture_architecture

    h100, a100 = nearpeak.target("h100_sxm"), nearpeak.target("a100_sxm_80gb")
    nearpeak.predict(capture_architecture("llama-3-8b", CaptureOptions(step="train", sequence=1024)), h100)
    workload, *others = (capture_of(layers=80, tokens=count)() for count in (2048, *TOKENS))
    gc.collect()  # what the capture left over would be collected during the prediction, or not, as it happens
    first_s = _least(lambda: nearpeak.predict(workload, h100), 1)
    sweep_s = statistics.median([_least(partial(nearpeak.predict, other, h100), 1) for other in others])
    new_s = _least(lambda: nearpeak.predict(workload, a100), 1)
    return first_s, sweep_s, new_s, _least(lambda: nearpeak.predict(workload, a100))
