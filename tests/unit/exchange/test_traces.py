"""Trace files: statuses, figures that a status excludes, results that are not finite."""

import json
import math

import pytest

from nearpeak.errors import SpecError
from nearpeak.exchange.trace_lines import parse_traces

WORKLOAD = {"uuid": "a", "axes": {}, "inputs": {}}
TIMES = {"latency_ms": 2.0, "reference_latency_ms": 3.0, "speedup_factor": 1.5}
ERRORS = {"max_relative_error": 1e-3, "max_absolute_error": 1e-4}


def line(status="PASSED", **parts):
    return json.dumps(
        {"definition": "d", "solution": "s", "workload": WORKLOAD, "evaluation": {"status": status, "log": "", **parts}}
    )


def test_passed_trace_carries_times_and_errors():
    trace = parse_traces(line(performance=TIMES, correctness=ERRORS), "t")[0]
    assert (trace.time_s, trace.reference_s, trace.errors) == (2e-3, 3e-3, ERRORS)


def test_lines_without_an_evaluation_are_workloads_not_traces():
    text = json.dumps({"definition": "d", "solution": None, "workload": WORKLOAD, "evaluation": None})
    assert parse_traces(text, "t") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [(line("PASSED", correctness=ERRORS), "status PASSED needs 'performance'"),
     (line("PASSED", performance=TIMES), "status PASSED needs 'correctness'"),
     (line("TIMEOUT", performance=TIMES), "status TIMEOUT excludes 'performance'"),
     (line("RUNTIME_ERROR", correctness=ERRORS), "status RUNTIME_ERROR excludes 'correctness'"),
     (line("INCORRECT_NUMERICAL"), "needs 'correctness'"), (line("GREAT"), "status 'GREAT' is not one of"),
     (line(performance={**TIMES, "latency_ms": 0}, correctness=ERRORS), "latency_ms is 0; it must be a number above"),
     (line(performance=TIMES, correctness={**ERRORS, "max_relative_error": "much"}), "max_relative_error is 'much'"),
     (line(performance=TIMES, correctness=ERRORS).replace('"s"', "null"), "names its solution")],
)  # fmt: skip
def test_trace_that_contradicts_itself_is_refused_with_its_line(text, message):
    with pytest.raises(SpecError, match=message) as caught:
        parse_traces(text, "t.jsonl")
    assert str(caught.value).startswith("t.jsonl, line 1: ")


@pytest.mark.parametrize("error", ["nan", "inf", 0.25])
def test_result_that_is_not_finite_is_read(error):
    written = {"max_relative_error": error, "max_absolute_error": 0.5}
    found = parse_traces(line("INCORRECT_NUMERICAL", correctness=written), "t")[0].errors["max_relative_error"]
    assert found == float(error) or (math.isnan(float(error)) and math.isnan(found))


def test_result_that_is_flagged_as_not_finite_is_read():
    written = {"max_relative_error": 0, "max_absolute_error": 0.5, "has_nan": True}
    assert math.isnan(
        parse_traces(line("INCORRECT_NUMERICAL", correctness=written), "t")[0].errors["max_relative_error"]
    )
