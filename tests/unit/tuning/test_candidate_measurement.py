"""Configurations run in children: right ones are timed, wrong, crashing and slow ones are told apart."""

import textwrap
from math import inf

import pytest

from nearpeak.core.runs.measurement import Timing
from nearpeak.core.tuning.space import Parameter, TuningSpace
from nearpeak.core.tuning.study import FAILED, STOPPED, TIMED, WRONG
from nearpeak.errors import SpecError
from nearpeak.ops import case
from nearpeak.tuning.candidate_measurement import TunedKernel, measure_candidate

KINDS = ("right", "fast_but_wrong", "wrong_at_odd_sizes", "raises", "slow", "exits")
SOURCE = """
import os
import time
import numpy as np

def product(inputs, *, kind, **_):
    a, b = inputs["a"], inputs["b"]
    if kind == "raises":
        raise ValueError("no such block")
    if kind == "exits":
        os._exit(3)
    if kind == "fast_but_wrong":
        return {"y": np.zeros((a.shape[0], a.shape[1], b.shape[2]), a.dtype)}
    if kind == "wrong_at_odd_sizes" and a.shape[1] % 8:
        a = np.where(np.arange(a.shape[1])[None, :, None] < a.shape[1] // 8 * 8, a, 0)
    if kind == "slow":
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass
    return {"y": a @ b}

product.arrays = "numpy"
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    path = tmp_path_factory.mktemp("kernels") / "planted_product.py"
    path.write_text(textwrap.dedent(SOURCE))
    sizes = ({"m": 16, "n": 16, "k": 16}, {"m": 13, "n": 9, "k": 11})
    return TunedKernel(
        space=TuningSpace(name="kinds", parameters=(Parameter(name="kind", settings=KINDS),)),
        case=case("gemm", m=64, n=64, k=64, dtype="fp32"), runner=f"callable:{path}:product",
        checks=tuple(case("gemm", dtype="fp32", **size) for size in sizes), timing=Timing(cache="hot", limit_s=240),
    )  # fmt: skip


@pytest.fixture(scope="module")
def right(kernel):
    return measure_candidate(kernel, ("right",), inf)


def test_a_right_configuration_is_timed(right):
    assert right.outcome == TIMED, right
    assert 8 <= len(right.samples_s) <= 32
    assert 0 < right.time_s < 0.03


@pytest.mark.parametrize(
    ("kind", "outcome", "note"),
    [
        ("fast_but_wrong", WRONG, "on gemm m=16"), ("wrong_at_odd_sizes", WRONG, "on gemm m=13"),
        ("raises", FAILED, "ValueError: no such block"), ("exits", FAILED, "os._exit\\(3\\)|exit code 3"),
    ],
)  # fmt: skip
def test_wrong_and_failing_configurations_have_no_time(kernel, right, kind, outcome, note):
    trial = measure_candidate(kernel, (kind,), right.time_s)
    assert (trial.outcome, trial.score_s, trial.samples_s) == (outcome, inf, ())
    import re

    assert re.search(note, trial.note), trial.note


def test_a_slow_configuration_is_stopped_after_one_call(kernel, right):
    trial = measure_candidate(kernel, ("slow",), right.time_s)
    assert (trial.outcome, len(trial.samples_s)) == (STOPPED, 1)
    assert trial.time_s >= 0.03


def test_the_runner_of_a_configuration_is_one_that_other_commands_take(kernel):
    assert kernel.runner_of(("right",)).endswith("planted_product.py:product[kind=right]")


def test_a_function_that_is_not_there_is_the_fault_of_no_configuration(kernel):
    from dataclasses import replace

    absent = replace(kernel, runner=kernel.runner.replace(":product", ":produkt"))
    with pytest.raises(SpecError, match="has no attribute 'produkt'; did you mean product"):
        measure_candidate(absent, ("right",), inf)
