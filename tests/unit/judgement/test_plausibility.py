"""Measurements below their bound: a typed finding with evidence, never a ratio above 100 % and never a clamped one."""

import dataclasses

import pytest

import nearpeak
from nearpeak.core.answers.analysis_comparison import NOT_COMPARABLE
from nearpeak.core.runs.below_bound_finding import CAUSES
from nearpeak.core.runs.measurement import Measurement, Outcome
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import ImplausibleError
from nearpeak.judgement.analysis_difference import compare
from nearpeak.judgement.plausibility import with_measurements
from nearpeak.reports import figure_text, render
from nearpeak.reports.analysis.json import from_json

CASE = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")


@pytest.fixture(scope="module")
def analysis():
    calls = (Call(case=CASE, operator="gemm", phase="forward"),)
    return nearpeak.analyze(Workload(name="one", step="sweep", calls=calls), "h100_sxm")


def measured(analysis, *samples_s, timer_s=0.0):
    """Return the analysis with samples in units of the bound."""
    here = analysis.targets[0]
    bound_s = here.times[0].bound_s
    taken = Measurement(
        case=CASE, target="h100_sxm", runner="stopwatch", samples_s=tuple(one * bound_s for one in samples_s),
        timer_s=timer_s * bound_s,
    )  # fmt: skip
    return dataclasses.replace(analysis, targets=(with_measurements(analysis.rows, here, {CASE: taken}),))


def test_a_shortest_run_below_the_bound_is_a_finding_with_its_evidence(analysis):
    (finding,) = measured(analysis, 0.5, 0.9, 2.0).targets[0].below_bound
    bound_s = analysis.targets[0].times[0].bound_s
    assert (finding.measured_s, finding.bound_s, len(finding.samples_s)) == (0.5 * bound_s, bound_s, 3)
    assert (finding.limiter, finding.runner, finding.digest) == ("matrix", "stopwatch", CASE.digest)
    assert finding.terms_s["matrix"] == bound_s
    assert set(finding.assumptions) >= {"A1", "A2", "A3", "A7"}
    assert finding.cause == CAUSES[0] == "open"


@pytest.mark.parametrize(
    ("samples_s", "timer_s", "count"), [((1.0,), 0.0, 0), ((0.999,), 0.0, 1), ((0.999,), 0.01, 0), ((), 0.0, 0)]
)
def test_only_what_is_below_by_more_than_the_timer_resolves_is_a_finding(analysis, samples_s, timer_s, count):
    assert len(measured(analysis, *samples_s, timer_s=timer_s).targets[0].below_bound) == count


def test_a_ratio_above_one_is_refused_instead_of_shown(analysis):
    (time,) = measured(analysis, 0.5).targets[0].times
    with pytest.raises(ImplausibleError, match="below its bound"):
        figure_text.attained(time)
    assert figure_text.attained(measured(analysis, 2.0).targets[0].times[0]) == 0.5


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_reports_show_the_evidence(analysis, form):
    text = render(measured(analysis, 0.5), form).replace("\\", "")
    assert "BELOW_BOUND" in text
    assert "cause open" in " ".join(text.split())


def test_findings_survive_a_saved_report(analysis):
    beaten = measured(analysis, 0.5)
    assert from_json(render(beaten, "json")) == beaten


def test_a_beaten_bound_is_not_compared_until_its_cause_is_known(analysis):
    beaten = measured(analysis, 0.5)
    (case,) = compare(analysis, beaten).targets[0].cases
    assert (case.verdict, "candidate measured it" in case.reason) == (NOT_COMPARABLE, True)
    target = beaten.targets[0]
    explained = dataclasses.replace(target.below_bound[0], cause="warm_cache")
    known = dataclasses.replace(beaten, targets=(dataclasses.replace(target, below_bound=(explained,)),))
    assert compare(analysis, known).targets[0].cases[0].verdict == "same"


def test_bound_expected_and_measured_time_stand_beside_each_other_in_eighty_columns(analysis):
    long = nearpeak.case("conv", batch=8, in_channels=3, out_channels=32, h=32, w=32, kh=3, kw=3, ph=1, dtype="fp16")
    calls = (Call(case=long, operator="conv", phase="forward"),)
    whole = nearpeak.analyze(Workload(name="one", step="sweep", calls=calls), "h100_sxm")
    taken = Measurement(case=long, target="h100_sxm", runner="stopwatch", samples_s=(1e-4,))
    here = with_measurements(whole.rows, whole.targets[0], {long: taken})
    lines = render(dataclasses.replace(whole, targets=(here,)), "terminal").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Measured on"))
    head, row = lines[start + 1], lines[start + 3]
    assert head.split()[:4] == ["measured", "expected", "bound", "attained"]
    assert row.split()[:2] == ["100", "µs"]
    assert "…" not in head + row[:52]  # only what a call is may be cut
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("kind", ["terminal", "markdown", "html"])
def test_a_case_that_gave_no_time_is_named_with_its_reason_in_every_report(analysis, kind):
    outcome = {"outcome": Outcome.INCORRECT, "note": "off by 7"}
    failed = Measurement(case=CASE, target="h100_sxm", runner="stopwatch", samples_s=(), **outcome)
    here = with_measurements(analysis.rows, analysis.targets[0], {CASE: failed})
    said = " ".join(render(dataclasses.replace(analysis, targets=(here,)), kind).replace("\\", "").split())
    assert "1 of 1 case without a measured time" in said
    assert "incorrect: off by 7" in said
    assert "without a measured time" not in render(measured(analysis, 2.0), kind)
