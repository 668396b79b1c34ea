import dataclasses
import pickle
import re

import pytest

import nearpeak
from nearpeak.core.distinct import distinct_rows
from nearpeak.core.workload import Call, Use, Workload
from nearpeak.errors import NotModelledError
from nearpeak.ops import label_of
from nearpeak.predict import _case_scripts, step
from nearpeak.predict._case import predicted
from nearpeak.predict._form import USUAL, case_columns
from nearpeak.predict._step_figures import StepFigures, _figures, step_figures
from nearpeak.targets import target_of

TARGETS = ("h100_sxm", "a100_sxm_80gb", "b200_sxm", "mi300x", "l40s", 'h100_sxm+power.limit="400 W"')


def target_named(name):
    device, _, edit = name.partition("+")
    return target_of(device, [edit] if edit else [])


def cases(scale):
    m, n = 64 * scale + 3, 128 * scale
    heads = {"heads": 8, "kv_heads": 8, "dim": 64, "causal": True, "align": "lower_right"}
    return (
        nearpeak.case("gemm", m=m, n=n, k=512, dtype="bf16"),
        nearpeak.case("gemm", m=m, n=n, k=512, batch=scale, dtype="bf16"),
        nearpeak.case("attention", batch=2, q=m, kv=m, dtype="bf16", **heads),
        nearpeak.case("attention", "backward", batch=2, q=m, kv=m, dtype="bf16", **heads),
        nearpeak.case("elementwise", elements=m * n, a=m * n, b=n, function="add", dtype="bf16"),
        nearpeak.case("elementwise", elements=m * n, function="silu", dtype="fp32"),
        nearpeak.case("softmax", rows=m, columns=n, dtype="bf16"),
        nearpeak.case("reduce", outputs=m, reduced=n, dtype="fp32"),
        nearpeak.case("cast", elements=m * n, dtype="fp32", out_dtype="bf16"),
        nearpeak.case("copy", elements=m * n, dtype="bf16"),
        nearpeak.case("gemm", m=m, n=n, k=16, dtype="int32"),
    )


def workload(scale, touched=True):
    """Return calls of all cases in two modules; some touch fewer bytes than their case counts, some of them twice."""
    calls = []
    for place, case in enumerate(cases(scale)):
        phase = "backward" if place % 3 else "forward"
        calls += [
            Call(case=case, operator=case.op, phase=phase, module=f"layers.{layer}.{place % 2}") for layer in "01"
        ]
        if touched:
            reads = (Use(buffer=0, bytes=1000 * scale),)
            calls.append(Call(case=case, operator=case.op, phase=phase, module=f"layers.0.{place % 4}", reads=reads))
    return Workload(name="some", step="train", calls=tuple(calls))


def by_formulas(case, target):
    return StepFigures(*_figures(case_columns(case), predicted(case_columns(case), target, USUAL), target))


def figures_of(cases, scripts):
    calls = tuple(Call(case=case, operator=case.op, phase="forward") for case in cases)
    return step_figures(distinct_rows(calls, label_of), scripts)


@pytest.mark.parametrize("name", TARGETS)
def test_figures_by_script_are_those_of_the_formulas_to_the_last_bit(name):
    target = target_named(name)
    scripts = _case_scripts.Scripts(target, USUAL)
    for scale in (1, 2, 7, 30, 61):
        some = dict.fromkeys(cases(scale))  # a step has each once
        for case, found in zip(some, figures_of(some, scripts), strict=True):
            if found.reason:
                with pytest.raises(NotModelledError, match=re.escape(found.reason)):
                    by_formulas(case, target)
            else:
                assert repr(found) == repr(by_formulas(case, target))
    groups = scripts.step_groups.values()
    assert sum(group.formula_count for group in groups) < 3 * len(groups)


@pytest.mark.parametrize("name", TARGETS)
def test_a_step_by_scripts_is_the_sum_over_the_rows_of_its_analysis_to_the_last_bit(name):
    target = target_named(name)
    for scale in (1, 5, 40):
        for one in (workload(scale), workload(scale, touched=False)):
            found = nearpeak.predict(one, target)
            wanted = nearpeak.analyze(one, target).targets[0].prediction
            assert dataclasses.asdict(found) == dataclasses.asdict(wanted)
            assert found.unpredicted
            assert pickle.loads(pickle.dumps(found)) == found


def test_causes_and_energy_are_worked_out_when_they_are_asked_for(monkeypatch):
    asked = []
    known = step._explained
    monkeypatch.setattr(step, "_explained", lambda *words: asked.append(words) or known(*words))
    found = nearpeak.predict(workload(9), "h100_sxm")
    assert found.time_s > found.bound_s
    assert not asked
    assert found.gap_s == found.gap_s
    assert len(asked) == 1
