"""Functions with several objectives: results, faults, and the front against brute force."""

from itertools import product

import pytest

from nearpeak.core.tuning.study import FAILED, TIMED, Study, Trial
from nearpeak.errors import SpecError
from nearpeak.tuning.objective_evaluation import evaluated

SOURCE = """
def cost(seed, width, kind):
    if kind == "raises":
        raise RuntimeError("no room")
    if kind == "nan":
        return {"latency_s": float("nan"), "error_ratio": 0.0}
    return {"latency_s": width * 1e-3, "error_ratio": 1.0 / (width + seed), "more": 3}
"""


@pytest.fixture
def function(tmp_path):
    (tmp_path / "costs.py").write_text(SOURCE)
    return f"{tmp_path / 'costs.py'}:cost"


@pytest.mark.parametrize(
    ("kind", "outcome", "note"),
    [("usual", TIMED, ""), ("raises", FAILED, "RuntimeError: no room"), ("nan", FAILED, "for latency_s; a finite")],
)
def test_a_function_gives_its_objectives_or_why_not(function, kind, outcome, note):
    names = ("latency_s", "error_ratio")
    trial = evaluated(function, {"width": 4, "kind": kind}, names, 1, limit_s=60, memory_bytes=1 << 31)
    assert trial.outcome == outcome
    assert note in trial.note
    assert trial.values == ({"latency_s": 4e-3, "error_ratio": 0.2} if outcome == TIMED else {})


def test_an_absent_function_is_refused(function):
    with pytest.raises(SpecError, match="has no attribute 'price'"):
        evaluated(function.replace(":cost", ":price"), {}, ("a",), 0, limit_s=60, memory_bytes=1 << 31)


def test_the_front_is_what_no_other_configuration_beats():
    rows = [{"a": float(a), "b": float((a * 7 + b * 5) % 11)} for a, b in product(range(4), range(5))]
    trials = [Trial(position=n, settings={}, outcome=TIMED, values=row) for n, row in enumerate(rows)]
    wanted = tuple(
        n for n, row in enumerate(rows)
        if not any(other != row and other["a"] <= row["a"] and other["b"] <= row["b"] for other in rows)
    )  # fmt: skip
    study = Study(
        space="s", subject="", runner="", search="random", seed=0, combination_count=20, legal_count=20,
        trials=tuple(trials), stop_reason="", objectives=("a", "b"),
    )  # fmt: skip
    assert tuple(trial.position for trial in study.front) == wanted
