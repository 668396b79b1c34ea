"""A suite that is run: the chosen cases, their reasons beside the results, and what of it counts as covered."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from nearpeak import case
from nearpeak.api import suite_construction
from nearpeak.api.measured_analysis import measure
from nearpeak.cli import application
from nearpeak.core.runs.measurement import Measurement, Outcome
from nearpeak.core.runs.validation import CheckResult, Validation
from nearpeak.errors import SpecError
from nearpeak.exchange.measurement_lines import measurement_of, measurement_record
from nearpeak.measurement.result_file import read_results, result_file
from nearpeak.suites.run_results import run_of
from nearpeak.suites.suite_file import save_text
from nearpeak.suites.suite_names import read_suite


def run(*words):
    done = CliRunner().invoke(application(), [*map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


@pytest.fixture
def calls(tmp_path):
    """A suite of three cases that one workload calls 1, 2 and 3 times, the last left out."""
    lines = [{"op": "softmax", "dtype": "fp32", "rows": rows, "columns": 64, "count": rows} for rows in (1, 2, 3)]
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    whole = suite_construction.suite([tmp_path / "calls.jsonl"])
    kept = [dataclasses.replace(one, chosen=one.call_count < 3) for one in whole.cases]
    path = tmp_path / "suite.jsonl"
    path.write_text(save_text(dataclasses.replace(whole, cases=tuple(kept))), encoding="utf-8")
    return path


def test_the_chosen_cases_run_and_their_counts_stay_with_the_results(calls, tmp_path):
    out = tmp_path / "results.jsonl"
    done = run("measure", calls, "--runner", "null", "--out", out)
    assert "2 new results, 2 in all\n" in done.stderr
    found = read_results(out)
    assert sorted(sum(why.call_count for why in one.why) for one in found) == [1, 2]
    assert {why.kind for one in found for why in one.why} == {"usecase"}
    again = run("measure", calls, "--runner", "null", "--out", out).stderr
    assert "0 new results, 2 in all; all requested results are there already" in again
    shown = json.loads(run("suite", "show", calls, "--results", out, "--json").stdout)
    assert shown["run"] == {"passed": 2, "unchecked": 2, "excluded": []}
    shares = {(one["workload"], one["currency"], one["identity"]): one["covered_ratio"]
              for one in shown["coverage"]["use"]}  # fmt: skip
    assert shares["fleet", "calls", "exact"] == pytest.approx(3 / 6)


def test_one_result_is_one_result(tmp_path):
    words = ["measure", "fill", "elements=8", "dtype=fp32", "--runner", "null", "--out", tmp_path / "r.jsonl"]
    assert "r.jsonl: 1 new result, 1 in all\n" in run(*words).stderr


def taken(one, outcome, time_s=1.0, **more):
    samples = (time_s,) * 5 if outcome in (Outcome.BUDGET, Outcome.CONVERGED) else ()
    return Measurement(case=one, target="cpu", runner="r", samples_s=samples, outcome=outcome, **more)


def test_what_did_not_run_or_was_wrong_is_excluded_with_its_weight(calls):
    suite = read_suite(calls)
    one, two = sorted((row.case for row in suite.chosen), key=lambda case: dict(case.axes)["rows"])
    found = run_of(suite, [taken(one, Outcome.CONVERGED), taken(one, Outcome.INCORRECT), taken(two, Outcome.BUDGET)])
    assert found.passed == {two.digest}
    ((reason, count, share),) = [(row.reason, row.case_count, row.flop_ratio) for row in found.excluded]
    assert (reason, count) == ("incorrect", 1)
    assert share == pytest.approx(1 / 14)  # 1 call of 1 row of 1 + 2·2 + 3·3
    assert run_of(suite, []).excluded[0].reason == "not run"


def test_a_case_that_could_not_have_told_a_wrong_result_does_not_count(calls):
    suite = read_suite(calls)
    one, two = sorted((row.case for row in suite.chosen), key=lambda case: dict(case.axes)["rows"])
    v0 = CheckResult(check="V0", status="DEGENERATE_CASE")
    record = Validation(case=one, implementation="r", seed=0, results=(v0,), command="")
    wrong = taken(one, Outcome.BUDGET, validation=record)
    for form in (wrong, measurement_of(measurement_record(wrong, ""), {}, "here")):
        found = run_of(suite, [form, taken(two, Outcome.BUDGET)])
        assert found.passed == {two.digest}
        assert [row.reason for row in found.excluded] == ["degenerate"]


def test_a_run_that_was_stopped_has_no_share_of_time(calls, tmp_path, monkeypatch):
    suite, out = read_suite(calls), tmp_path / "stopped.jsonl"
    one = next(row.case for row in suite.chosen)
    with result_file(out) as file:
        file.append(taken(one, Outcome.BUDGET), "key")
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    said = run("suite", "show", calls, "--results", out).stdout
    assert "without a time: 2 cases; shares of time are unknown" in said
    rows = [line.split() for line in said.splitlines() if " itself " in line or " class " in line]
    assert {row[-1] for row in rows} == {"unknown"}
    whole = run("suite", "show", calls, "--results", out, "--target", "h100_sxm").stdout
    assert "unknown" not in whole


def test_what_was_timed_weighs_though_it_does_not_count(calls):
    suite = read_suite(calls)
    v0 = CheckResult(check="V0", status="DEGENERATE_CASE")
    times = {row.case: 1.0 + row.call_count for row in suite.cases}
    record = Validation(case=suite.cases[0].case, implementation="r", seed=0, results=(v0,), command="")
    found = run_of(suite, [taken(case, Outcome.BUDGET, time_s, validation=record) for case, time_s in times.items()])
    assert (found.time_s, found.passed) == (times, frozenset())


def test_of_several_launches_the_median_counts():
    from nearpeak.suites.directed_cases import directed_suite

    suite = directed_suite("fill")
    one = suite.chosen[0].case
    times = [taken(one, Outcome.BUDGET, time_s, launch=n) for n, time_s in enumerate((3.0, 1.0, 2.0), start=1)]
    assert run_of(suite, times).time_s == {one: 2.0}


def test_launches_are_measurements_of_their_own_and_resumed_one_by_one(tmp_path):
    out, wanted = tmp_path / "results.jsonl", case("softmax", rows=1, columns=8, dtype="fp32")
    assert [one.launch for one in measure(wanted, "null", out=out, launch_count=2)] == [1, 2]
    assert [one.launch for one in measure(wanted, "null", out=out, launch_count=3)] == [3]
    assert [one.launch for one in read_results(out)] == [1, 2, 3]


def test_tables_of_cases_take_suites_and_ready_made_ones(calls):
    rows = [json.loads(line) for line in run("predict", "--cases", calls, "-t", "h100_sxm").stdout.splitlines()]
    assert sorted(row["call_count"] for row in rows) == [1, 2]
    assert all(row["bound_s"] <= row["predicted_s"] for row in rows)
    ready = run("bound", "--cases", "fused_cross_entropy", "-t", "h100_sxm").stdout.splitlines()
    assert len(ready) == len(read_suite("fused_cross_entropy").chosen)


def test_a_suite_changed_by_hand_is_not_run(calls):
    calls.write_text(calls.read_text(encoding="utf-8").replace('"rows":2', '"rows":5'), encoding="utf-8")
    with pytest.raises(SpecError, match="digest"):
        run("measure", calls, "--runner", "null")


def test_results_that_are_not_there_are_named(calls, tmp_path):
    with pytest.raises(SpecError, match=r"none\.jsonl: not found"):
        run("suite", "show", calls, "--results", tmp_path / "none.jsonl")


def test_every_chosen_case_of_a_suite_is_validated(calls):
    pytest.importorskip("torch")
    done = run("validate", calls, "--runner", "torch_compile", "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(one["case"]["rows"] for one in found) == [1, 2]
    assert {(one["implementation"], one["status"]) for one in found} == {("torch_compile", "PASS")}


def test_a_runner_that_only_says_times_has_nothing_to_validate(calls):
    with pytest.raises(SpecError, match="runner null gives no outputs of forward to check"):
        run("validate", calls, "--runner", "null")


def test_exported_statistics_are_those_that_pytest_benchmark_shows(tmp_path):
    from nearpeak.measurement.result_export import write_pytest_benchmark

    one = taken(case("fill", elements=8, dtype="fp32"), Outcome.BUDGET)
    one = dataclasses.replace(one, samples_s=(4.0, 1.0, 2.0, 3.0, 100.0))
    write_pytest_benchmark(tmp_path / "found.json", [one])
    (found,) = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["benchmarks"]
    # Quartiles 2 and 4, fences at -1 and 7: 100 lies outside, and it alone is further from the mean than the spread.
    assert {"q1": 2.0, "q3": 4.0, "ld15iqr": 1.0, "hd15iqr": 4.0, "outliers": "1;1"}.items() <= found["stats"].items()
    assert found["stats"]["data"] == [4.0, 1.0, 2.0, 3.0, 100.0]


def test_more_threads_than_cores_are_said(calls):
    assert "--threads 4096: they share the" in run("measure", calls, "--runner", "null", "--threads", "4096").stderr
    assert "they share" not in run("measure", calls, "--runner", "null").stderr
