"""Plain Python and machine code of one kernel give the same; Numba is asked for only where much is to be done."""

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

from nearpeak.base import compilation
from nearpeak.base.compilation import ALWAYS_COMPILED, Kernel, ceiling, compiled, fused, room
from nearpeak.errors import MissingExtraError
from nearpeak.ops import case
from nearpeak.prediction.kernel_model import Setting, case_columns
from nearpeak.prediction.single_case import predicted
from nearpeak.targets import target_of

CASES = (
    case("gemm", m=4000, n=333, k=1000, dtype="bf16"),
    case("gemm", m=1, n=4096, k=11008, batch=4, dtype="fp16"),
    case("attention", batch=2, heads=32, kv_heads=8, q=1, kv=3000, dim=128, dtype="bf16"),
    case("attention", batch=1, heads=16, q=700, kv=700, dim=64, dtype="bf16", causal=True),
    case("conv", batch=8, in_channels=64, out_channels=128, h=56, w=56, kh=3, kw=3, sh=2, dtype="fp16"),
    case("grouped_gemm", m=1000, n=4096, k=2048, groups=8, dtype="bf16"),
)


@compiled(10)
def added(columns, scale, results):
    work = room(len(columns))
    for row in range(len(columns)):
        work[row] = fused(columns[row], scale, ceiling(columns[row]))
        results[row] = work[row]


def test_a_kernel_is_compiled_once_it_has_met_more_items_than_it_may():
    kernel, columns, results = Kernel(added.function, 5, {}), np.array([0.1, 1.5, -2.5]), np.zeros(3)
    kernel(columns, 0.3, results)
    assert "machine_code" not in vars(kernel)
    plain = results.copy()
    kernel(columns, 0.3, results)
    assert "machine_code" in vars(kernel)
    assert results.tolist() == plain.tolist()


@pytest.mark.parametrize("target", ["h100_sxm", "mi300x", "t4"])
def test_predictions_are_the_same_to_the_last_bit_as_plain_python_and_as_machine_code(target, monkeypatch):
    device, setting = target_of(target), Setting()
    plain = [predicted(case_columns(test_case), device, setting) for test_case in CASES]
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: False)
    for test_case, before in zip(CASES, plain, strict=True):
        after = predicted(case_columns(test_case), device, setting)
        assert (after.time_s, after.low_s, after.high_s, after.parts_s) == (
            before.time_s, before.low_s, before.high_s, before.parts_s,
        )  # fmt: skip


def test_a_product_is_rounded_once_with_what_is_added_however_it_is_computed(monkeypatch):
    reference = compilation.fused_multiply_add()
    monkeypatch.setattr(compilation.ctypes, "CDLL", lambda _name: object())  # a library without the function
    by_fractions = compilation.fused_multiply_add()
    draw = np.random.default_rng(3)
    for x, y, z in draw.normal(size=(200, 3)).tolist():
        assert by_fractions(x, y, z) == reference(x, y, z)


def test_without_numba_plain_python_goes_on_and_loops_that_must_be_compiled_name_the_extra(monkeypatch):
    monkeypatch.setattr(compilation, "has_compiler", lambda: False)
    results = np.zeros(30)
    Kernel(added.function, 5, {})(np.arange(30.0), 0.5, results)
    assert results[3] == 4.5
    with pytest.raises(MissingExtraError, match=r"nearpeak\[speed\]"):
        Kernel(added.function, ALWAYS_COMPILED, {})(np.arange(3.0), 0.5, results)


SMALL_WORK = """
import sys
sys.modules["numba"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else found(name, *rest)
sys.argv = ["nearpeak", "predict", "gemm", "m=64", "n=64", "k=64", "dtype=bf16", "--target", "h100_sxm", "--json"]
from nearpeak.cli import main
main()
"""


def test_small_work_needs_no_compiler():
    run = subprocess.run([sys.executable, "-c", SMALL_WORK], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert importlib.util.find_spec("numba") is not None


FACTOR = 3.0


@compiled(10)
def called(value):
    return value * FACTOR


@compiled(10)
def caller(value):
    return called(value) + 1.0


def test_kept_machine_code_of_a_caller_depends_on_what_it_calls(monkeypatch):
    before = compilation.code_digest(caller.function)
    assert compilation.code_digest(caller.function) == before
    monkeypatch.setitem(globals(), "FACTOR", 4.0)
    assert compilation.code_digest(caller.function) != before
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "called", Kernel(lambda value: value - FACTOR, 10, {}))
    assert compilation.code_digest(caller.function) != before


def test_kept_machine_code_is_the_same_in_another_process():
    code = (
        "from nearpeak.base.compilation import code_digest;"
        "from nearpeak.systems.serving.replica_loop import serve_arrivals;print(code_digest(serve_arrivals.function))"
    )
    lines = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(lines) == 1
