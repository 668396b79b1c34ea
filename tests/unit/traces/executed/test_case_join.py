"""Operators joined with their cases: copies over a link, and what is said where a join fails."""

import json

import pytest
from tests.unit.traces.executed.small_traces import complete, launched, mark, written

pytest.importorskip("torch")
from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.trace.steps_report import document_of
from nearpeak.targets import target_of

B = "c10::BFloat16"
DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0}


def report_of(tmp_path, *works):
    """The report of a trace; a work is an operator, its shapes and formats, and its device events."""
    events, number = [], 0
    for index, (name, shapes, dtypes, device_events) in enumerate(works):
        ts = 1000.0 + 5000 * index
        args = {"External id": index} | ({"Input Dims": shapes, "Input type": dtypes} if shapes else {})
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 100.0, "args": args}
        )
        for place, (category, work, length_us, more) in enumerate(device_events):
            number += 1
            call = {"External id": index, "correlation": number}
            events.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                           "ts": ts + 10 * place, "dur": 5.0, "args": call})  # fmt: skip
            events.append({"ph": "X", "cat": category, "name": work, "pid": 0, "tid": 7, "ts": ts + 20 + 2000 * place,
                           "dur": length_us, "args": call | {"device": 0, "stream": 7} | more})  # fmt: skip
    path = tmp_path / "trace.json"
    whole = {"schemaVersion": 1, "deviceProperties": [DEVICE], "traceEvents": events}
    path.write_text(json.dumps(whole))
    return analyze_trace(path, target_of("h100_sxm"))


def copy(direction, size, length_us=1000.0):
    return ("gpu_memcpy", f"Memcpy {direction}", length_us, {"bytes": size})


def test_a_copy_to_the_device_is_priced_over_the_link(tmp_path):
    report = report_of(
        tmp_path,
        ("aten::copy_", [[1 << 20], [1 << 20], []], [B, B, "Scalar"], [copy("HtoD (Pageable -> Device)", 2 << 20)]),
    )
    (operator,) = report.executed.operators
    assert operator.label == "transfer elements=1048576 bf16"
    assert operator.bound_s == pytest.approx((2 << 20) / 64e9)


def test_bytes_that_no_recorded_tensor_has_are_taken_as_they_are(tmp_path):
    report = report_of(
        tmp_path, ("aten::copy_", [[7], [7], []], [B, B, "Scalar"], [copy("DtoH (Device -> Pinned)", 1000)])
    )
    (operator,) = report.executed.operators
    assert (operator.cases[0].op, dict(operator.cases[0].axes)["elements"]) == ("transfer", 1000)
    assert dict(operator.cases[0].attributes)["direction"] == "d2h"


def test_a_copy_within_the_device_is_none_over_a_link(tmp_path):
    report = report_of(
        tmp_path,
        ("aten::copy_", [[1 << 20], [1 << 20], []], [B, B, "Scalar"], [copy("DtoD (Device -> Device)", 2 << 20)]),
    )
    assert report.executed.operators[0].label == "copy elements=1048576 bf16"


def test_copies_of_one_operator_in_several_directions_are_work_of_their_own(tmp_path):
    directions = ("DtoH (Device -> Pageable)", "DtoD (Device -> Device)", "HtoD (Pinned -> Device)")
    shapes = ([[1 << 20], [1 << 20], []], [B, B, "Scalar"])
    report = report_of(tmp_path, *(("aten::copy_", *shapes, [copy(direction, 2 << 20)]) for direction in directions))
    labels = [(operator.label, operator.call_count) for operator in report.executed.operators]
    assert sorted(labels) == [
        ("copy elements=1048576 bf16", 1), ("transfer elements=1048576 bf16", 1),
        ("transfer elements=1048576 direction=d2h bf16", 1),
    ]  # fmt: skip


def test_an_operator_that_copies_and_computes_is_both(tmp_path):
    kernel = ("kernel", "bfloat16_copy_kernel", 10.0, {"grid": [1, 1, 1], "block": [1, 1, 1]})
    work = [copy("HtoD (Pinned -> Device)", 4 << 20), kernel]
    report = report_of(tmp_path, ("aten::copy_", [[1 << 20], [1 << 20], []], [B, "float", "Scalar"], work))
    assert [case.op for case in report.executed.operators[0].cases] == ["cast", "transfer"]


def test_the_report_says_for_each_operator_why_it_has_no_bound(tmp_path):
    kernel = ("kernel", "my_kernel", 100.0, {"grid": [1, 1, 1], "block": [1, 1, 1]})
    silent = ("aten::mul", [], [], [kernel])
    report = report_of(
        tmp_path, ("aten::mm", [[8, 4], [4, 8], [8, 8]], [B, B, B], [kernel]), silent,
        ("aten::relu", [[4], [4], [4], [4]], [B] * 4, [kernel]),
    )  # fmt: skip
    text = to_markdown(document_of(report))
    assert report.executed.operators[0].label.startswith("gemm m=8 n=8 k=4 bf16")
    assert "aten::mul: 100 µs of a step: its shapes were not recorded" in text
    assert "aten::relu: 100 µs of a step: aten::relu cannot be run as recorded: no overload takes the 4" in text


def test_an_empty_list_of_shapes_is_called_not_recorded(tmp_path):
    events = []
    for step in range(2):
        events += [mark(step, step * 1000, 999), complete("cpu_op", "aten::mm", step * 1000, 9, **{"Input Dims": []})]
        events += launched("gemm", step * 1000 + 12, 800, step + 1)
    report = analyze_trace(written(tmp_path / "t.json", events))
    assert [one.reason for one in report.executed.operators] == ["its shapes were not recorded"]
