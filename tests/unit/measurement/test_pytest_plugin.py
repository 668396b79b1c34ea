"""The pytest plug-in, in a pytest of its own: right and fast passes, wrong and slow fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.measurement.own_pytest import WORDS

from nearpeak.base.isolation import call_isolated

torch = pytest.importorskip("torch")

HEAD = "import numpy as np, pytest, torch, nearpeak\nquick = dict(budget_s=0.01, cache='hot')\n"
MARK = "@nearpeak.case('softmax', rows=4, columns=8, dtype='fp32')\n"


def said_by_pytest(folder, text):
    """What pytest says about a test file; starting one from nothing takes seconds, so that it is forked."""
    (folder / "test_kernels.py").write_text(HEAD + text)
    ended = call_isolated(
        "tests.unit.measurement.own_pytest:said_in", {"folder": str(folder)}, timeout_s=120.0, memory_bytes=None,
        preload=("torch", "nearpeak.validation", "tests.unit.measurement.own_pytest"),
    )  # fmt: skip
    assert ended.verdict == "result", ended
    return ended.value


def said_by_a_new_pytest(folder):
    """What pytest says that is started as its users start it."""
    source = str(Path(__file__).parents[3] / "src")
    command = [sys.executable, "-m", "pytest", *WORDS, "--rootdir", str(folder), str(folder)]
    environment = {**os.environ, "PYTHONPATH": source, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_test_runs_once_per_case_and_sees_its_times(tmp_path):
    text = (
        MARK
        + MARK.replace("rows=4", "rows=6")
        + (
            "def test_softmax(nearpeak_measure):\n"
            "    found = nearpeak_measure(lambda t, **_: {'y': torch.softmax(t['x'], -1)}, **quick)\n"
            "    assert found.time_s > 0 and found.ratio('t4') > 0\n"
        )
    )
    said = said_by_pytest(tmp_path, text)
    assert "2 passed" in said, said
    assert re.search(r"test_softmax\[softmax-rows=6-columns=8-fp32\]", said)


def test_a_function_that_raises_fails_with_its_error(tmp_path):
    said = said_by_pytest(tmp_path, MARK + (
        "def test_softmax(nearpeak_measure):\n"
        "    def wrong(t, **_): raise ValueError('no kernel')\n"
        "    nearpeak_measure(wrong, **quick)\n"
    ))  # fmt: skip
    assert "1 failed" in said, said
    assert "ValueError: no kernel" in said


def test_a_function_that_ends_the_process_fails_and_the_tests_after_it_run(tmp_path):
    said = said_by_pytest(tmp_path, "import os\n" + MARK + (
        "def test_softmax(nearpeak_measure):\n    nearpeak_measure(lambda t, **_: os._exit(0), **quick)\n"
        "def test_after(): pass\n"
    ))  # fmt: skip
    assert "1 failed, 1 passed" in said, said
    assert "it called os._exit(0)" in said


def test_a_wrong_result_fails_by_the_contract_and_says_how_to_see_it_again(tmp_path):
    wrong = "def wrong(t, **_): return {'y': torch.softmax(t['x'], -1) * (1 + 1e-4)}\n"
    said = said_by_pytest(tmp_path, wrong + MARK + (
        "def test_softmax(nearpeak_measure):\n    nearpeak_measure(wrong, **quick)\n"
    ))  # fmt: skip
    assert "1 failed" in said, said
    assert "incorrect: NUMERIC_FAIL in" in said, said
    assert "nearpeak validate softmax rows=4 columns=8 dtype=fp32 --runner callable:test_kernels:wrong" in said


def test_a_gradient_is_asserted_too(tmp_path):
    wrong = (
        "class Wrong(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(context, x): return torch.softmax(x, -1)\n"
        "    @staticmethod\n    def backward(context, grad): return grad\n"
    )
    said = said_by_pytest(tmp_path, wrong + MARK.replace("'softmax',", "'softmax', 'backward',") + (
        "def test_softmax(nearpeak_measure):\n"
        "    nearpeak_measure(lambda t, **_: {'y': Wrong.apply(t['x'])}, **quick)\n"
    ))  # fmt: skip
    assert "1 failed" in said, said
    assert "V9" in said, said


def test_results_that_nothing_proves_are_warned_of(tmp_path):
    said = said_by_pytest(tmp_path, MARK.replace("columns=8", "columns=1") + (
        "def test_softmax(nearpeak_measure):\n"
        "    nearpeak_measure(lambda t, **_: {'y': torch.softmax(t['x'], -1)}, **quick)\n"
    ))  # fmt: skip
    assert "1 passed" in said, said
    assert "results are not proved right" in said


@pytest.mark.parametrize(("given", "said"), [("3", "3 is no function but int"), ("int", "<class 'int'> is a class")])
def test_what_is_no_function_is_named(tmp_path, given, said):
    text = MARK + f"def test_softmax(nearpeak_measure):\n    nearpeak_measure({given}, **quick)\n"
    assert f"SpecError: nearpeak_measure: {said}; give a function" in said_by_pytest(tmp_path, text)


def test_a_test_without_a_case_says_what_is_missing(tmp_path):
    said = said_by_pytest(tmp_path, "def test_softmax(nearpeak_measure):\n    nearpeak_measure(lambda t: t, **quick)\n")
    assert "decorate the test with @nearpeak.case" in said


@pytest.mark.parametrize(("text", "message"), [
    ("class TestSoftmax:\n    def test_softmax(self, nearpeak_measure):\n        pass\n",
     "TestSoftmax is a class, whose tests it does not reach; put it above each test that takes nearpeak_measure"),
    ("def test_softmax():\n    pass\n",
     "test_kernels.py::test_softmax: @nearpeak.case marks a test that takes no nearpeak_measure"),
])  # fmt: skip
def test_a_mark_that_would_check_nothing_is_an_error(tmp_path, text, message):
    said = said_by_pytest(tmp_path, MARK + text)
    assert message in said
    assert "passed" not in said


def test_a_test_that_passes_without_a_measurement_is_an_error_and_one_that_is_skipped_is_none(tmp_path):
    text = MARK + "def test_softmax(nearpeak_measure):\n    pass\n"
    text += MARK + "def test_skipped(nearpeak_measure):\n    pytest.skip('not here')\n"
    said = said_by_pytest(tmp_path, text + MARK + "def test_failing(nearpeak_measure):\n    assert not 'mine'\n")
    assert said.count("passed without a call of nearpeak_measure, so that nothing was checked") >= 1, said
    assert "1 failed, 1 passed, 1 skipped, 1 error" in said, said


def test_an_attained_ratio_is_the_bound_over_the_median(tmp_path):
    said = said_by_pytest(tmp_path, MARK + (
        "def test_softmax(nearpeak_measure):\n"
        "    found = nearpeak_measure(lambda t, **_: {'y': torch.softmax(t['x'], -1)}, **quick)\n"
        "    bound = nearpeak.bound(found.measurement.case, 't4').time_s\n"
        "    assert found.ratio('t4') == bound / found.time_s\n"
        "    assert found.ratio('t4') >= 1.0, 'too slow'\n"
    ))  # fmt: skip
    assert "too slow" in said, said


def test_a_kernel_that_is_too_slow_fails_with_both_times_and_the_command(tmp_path):
    said = said_by_pytest(tmp_path, "def own(t, **_): return {'y': torch.softmax(t['x'], -1)}\n" + MARK + (
        "def test_softmax(nearpeak_measure):\n"
        "    found = nearpeak_measure(own, **quick)\n"
        "    found.require_ratio(found.ratio('t4') / 2, 't4')\n"
        "    found.require_ratio(0.9, 't4')\n"
    ))  # fmt: skip
    assert "of the bound on t4 is attained, 0.9 is required" in said, said
    assert "limited by" in said
    assert "again: nearpeak measure softmax rows=4 columns=8 dtype=fp32 --runner callable:test_kernels:own" in said


def test_a_function_without_a_name_is_repeated_by_its_test(tmp_path):
    said = said_by_pytest(tmp_path, MARK + (
        "def test_softmax(nearpeak_measure):\n"
        "    nearpeak_measure(lambda t, **_: {'y': t['x']}, **quick)\n"
    ))  # fmt: skip
    assert "again: pytest 'test_kernels.py::test_softmax[softmax-rows=4-columns=8" in said, said


def test_a_device_that_is_not_there_is_named(tmp_path):
    text = MARK + "def test_softmax(nearpeak_measure):\n    nearpeak_measure(torch.softmax, device='DEVICE', **quick)\n"
    assert "choose cpu or cuda" in said_by_pytest(tmp_path, text.replace("DEVICE", "tpu"))
    if not torch.cuda.is_available():
        assert "needs a GPU" in said_by_pytest(tmp_path, text.replace("DEVICE", "cuda"))


@pytest.mark.parametrize("ratio", ["0", "-0.1", "30", "float('nan')"])
def test_a_ratio_that_asserts_nothing_or_cannot_be_reached_is_refused(tmp_path, ratio):
    said = said_by_pytest(tmp_path, MARK + (
        "def test_softmax(nearpeak_measure):\n"
        f"    nearpeak_measure(lambda t, **_: torch.softmax(t['x'], -1), **quick).require_ratio({ratio}, 't4')\n"
    ))  # fmt: skip
    assert "1 failed" in said, said
    assert "is no share of the bound" in said


def test_a_target_without_a_bound_is_said_at_the_line_of_the_test(tmp_path):
    said = said_by_pytest(tmp_path, MARK + (
        "def test_softmax(nearpeak_measure):\n"
        "    nearpeak_measure(lambda t, **_: torch.softmax(t['x'], -1), **quick).require_ratio(0.3, 't5')\n"
    ))  # fmt: skip
    assert "target 't5': not known" in said, said
    assert "src/nearpeak" not in said, said


def test_a_time_that_is_no_number_of_seconds_is_no_fault_of_the_kernel(tmp_path):
    said = said_by_pytest(tmp_path, MARK + (
        "def test_softmax(nearpeak_measure):\n"
        "    nearpeak_measure(lambda t, **_: torch.softmax(t['x'], -1), budget_s='50 ms')\n"
    ))  # fmt: skip
    assert "budget_s '50 ms' is no time in seconds" in said, said


@pytest.mark.slow
def test_the_example_of_a_kernel_repository_passes(tmp_path):
    import shutil

    shutil.copytree(Path(__file__).parents[3] / "examples" / "kernel_repository", tmp_path / "kernels")
    text = (tmp_path / "kernels" / "test_kernels.py").read_text(encoding="utf-8")
    (tmp_path / "kernels" / "test_kernels.py").write_text(
        text.replace("(LEAST_RATIO)", "(1e-7, 't4')"), encoding="utf-8"
    )  # the bound of a device whose figures every machine has
    said = said_by_a_new_pytest(tmp_path / "kernels")
    assert "4 passed" in said, said
