"""Arrows of Kineto: where correlations or sequence numbers are missing they tell the same, on real records too."""

import gzip
import json

import numpy as np
import pytest
from tests.samples import SAMPLES, needs_samples

from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import NO_ROW, read_trace
from nearpeak.traces.timeline.hierarchy import forward_of, nearest_forward


def event(ph, cat, ts, **more):
    return {"ph": ph, "cat": cat, "name": cat, "ts": ts, "pid": 1, "tid": 1} | more


def written(path, events):
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read_trace(path)


def test_a_backward_operator_finds_its_forward_one_by_the_arrow(tmp_path):
    trace = written(tmp_path / "t.json", [
        event("X", "cpu_op", 0, dur=10, name="aten::linear"), event("X", "cpu_op", 2, dur=5, name="aten::addmm"),
        event("X", "cpu_op", 100, dur=10, tid=9, name="AddmmBackward0"),
        event("s", "fwdbwd", 2, id=4), event("f", "fwdbwd", 100, id=4, tid=9, bp="e"),
        event("X", "cuda_runtime", 103, dur=1, tid=9, name="cudaLaunchKernel"),
    ])  # fmt: skip
    forward = forward_of(trace)
    assert [(trace.name_of(back), trace.name_of(int(forward[back]))) for back in np.flatnonzero(forward != NO_ROW)] == [
        ("AddmmBackward0", "aten::addmm")
    ]
    call = int(trace.rows(EventKind.HOST_API)[0])
    assert trace.name_of(int(nearest_forward(trace)[call])) == "aten::addmm"
    assert "forward" not in trace.event(int(trace.rows(EventKind.HOST_OP)[2])).args


def test_work_without_a_correlation_finds_its_call_by_the_arrow_and_it_is_counted(tmp_path):
    kernel = event("X", "kernel", 50, dur=3, pid=0, tid=7, args={"device": 0, "stream": 7})
    call = event("X", "cuda_runtime", 10, dur=3, name="cudaLaunchKernel", args={"correlation": 8})
    arrows = [event("s", "ac2g", 10, id=8), event("f", "ac2g", 50, id=8, pid=0, tid=7, bp="e")]
    bare, told = (written(tmp_path / f"{n}.json", [kernel, call, *arrows[:n]]) for n in (0, 2))
    row = int(told.rows(EventKind.KERNEL)[0])
    assert bare.launch[row] == NO_ROW
    assert told.name_of(int(told.launch[row])) == "cudaLaunchKernel"
    said = [loss.line() for loss in told.header.losses]
    assert "repaired 1: call of device work known from a flow alone" in said
    assert not any("unlinked" in line for line in said)


def test_arrows_into_nothing_change_nothing(tmp_path):
    arrows = [event("s", "ac2g", 1, id=1), event("f", "ac2g", "x", id=1), event("s", "fwdbwd", 5, id="?"),
              event("f", "fwdbwd", 9)]  # fmt: skip
    trace = written(tmp_path / "t.json", [event("X", "cpu_op", 0, dur=10, name="aten::mm"), *arrows])
    assert len(trace) == 1
    assert not trace.has("forward")


def without(name, sample, path):
    with gzip.open(sample) as file:
        whole = json.load(file, strict=False)
    for one in whole["traceEvents"]:
        one.get("args", {}).pop(name, None)
    path.write_text(json.dumps(whole))
    return read_trace(path)


@needs_samples
@pytest.mark.parametrize(
    "pattern", ["kineto/amd_trace*", "kineto/critical_path*", "tracelens/b200*", "tracelens/infer*"]
)
def test_arrows_of_real_records_link_what_correlations_link(pattern, tmp_path):
    for sample in SAMPLES.glob(pattern):
        known, found = read_trace(sample), without("correlation", sample, tmp_path / "t.json")
        rows = known.device_rows()
        assert (known.launch[rows] == found.launch[rows]).all()


@needs_samples
def test_arrows_of_real_records_name_the_forward_operators_that_sequence_numbers_name(tmp_path):
    sample = next((SAMPLES / "kineto").glob("nccl_parser*"))
    known, found = forward_of(read_trace(sample)), forward_of(without("Sequence number", sample, tmp_path / "t.json"))
    told = np.flatnonzero(found != NO_ROW)
    assert len(told) == 543
    assert (known[told] == found[told]).all()
