"""Intervals: bounds of data-dependent operators from the cheapest to the dearest values."""

import numpy as np
import pytest

import nearpeak
from nearpeak.core.work.workload import Buffer, Call, Use, Workload

H100 = "h100_sxm"
ROW = 4096 * 2
"""Bytes of one row of the table below."""
TABLE = {"tokens": 8192, "dim": 4096, "vocab": 100_000, "dtype": "bf16"}


@pytest.mark.parametrize(
    ("op", "axes", "name", "worst"),
    [
        ("embedding", TABLE, "touched_rows", 8192),
        ("gather", {"rows": 10**6, "table_rows": 1000, "width": 4096, "dtype": "bf16"}, "touched_rows", 1000),
        ("grouped_gemm", {"m": 64, "n": 4096, "k": 4096, "groups": 128, "dtype": "bf16"}, "touched_groups", 64),
        ("nonzero", {"elements": 10**8, "dtype": "fp32"}, "found", 10**8),
        ("masked_select", {"elements": 10**8, "dtype": "fp32"}, "found", 10**8),
        ("unique", {"elements": 10**8, "dtype": "fp32"}, "found", 10**8),
    ],
)
def test_the_interval_ends_at_the_bound_of_the_dearest_values(op, axes, name, worst):
    unknown = nearpeak.bound(nearpeak.case(op, **axes), H100)
    dearest = nearpeak.bound(nearpeak.case(op, **axes, **{name: worst}), H100)
    assert unknown.interval.axes == (name,)
    assert (unknown.interval.low_s, unknown.interval.high_s) == (unknown.time_s, dearest.time_s)
    assert unknown.time_s < dearest.time_s
    assert dearest.interval is None


def test_a_case_without_data_has_no_interval():
    assert nearpeak.bound(nearpeak.case("gemm", m=4, n=4, k=4, dtype="bf16"), H100).interval is None


def test_a_table_gives_the_upper_ends_as_a_column():
    rows = {"op": "embedding", **TABLE, "vocab": [100_000, 100_000], "touched_rows": [None, 5]}
    table = nearpeak.bound(rows, H100)
    single = [nearpeak.bound(nearpeak.case("embedding", **TABLE, **more), H100) for more in ({}, {"touched_rows": 5})]
    assert table.high_s.tolist() == [single[0].interval.high_s, single[1].time_s]
    assert nearpeak.bound({"op": "gemm", "dtype": "bf16", "m": [1], "n": 1, "k": 1}, H100).high_s is None
    assert np.all(table.high_s >= table.bound_s)


def captured(kind):
    """Return a step that picks rows of a table of the given kind, as capture records it."""
    buffers = (
        Buffer(bytes=100_000 * ROW, kind=kind),
        Buffer(bytes=8192 * 8, kind="input"),
        Buffer(bytes=8192 * ROW, kind="output"),
    )
    reads = (Use(buffer=0, bytes=ROW, stop_bytes=ROW), Use(buffer=1, bytes=8192 * 8, stop_bytes=8192 * 8))
    writes = (Use(buffer=2, bytes=8192 * ROW, stop_bytes=8192 * ROW),)
    case = nearpeak.case("embedding", **TABLE)
    call = Call(case=case, operator="aten.embedding.default", phase="forward", reads=reads, writes=writes)
    return Workload(name="table", step="forward", calls=(call,), buffers=buffers)


def test_a_captured_step_is_dearest_when_every_index_names_another_row():
    bound = nearpeak.bound(captured("weight"), H100)
    extra_s = 8191 * ROW / nearpeak.target(H100).dram.bandwidth_bytes_per_s
    assert bound.interval.high_s == pytest.approx(bound.time_s + extra_s)
    analysis = nearpeak.analyze(captured("weight"), H100)
    assert analysis.targets[0].proof.interval == bound.interval
    assert analysis.targets[0].times[0].high_s > analysis.targets[0].times[0].bound_s


def test_a_list_of_cases_adds_the_upper_ends_up():
    cases = [nearpeak.case("embedding", **TABLE), nearpeak.case("gemm", m=64, n=64, k=64, dtype="bf16")]
    calls = tuple(Call(case=one, operator=one.op, phase="forward") for one in cases)
    found = nearpeak.bound(Workload(name="list", step="sweep", calls=calls), H100)
    own = [nearpeak.bound(one, H100) for one in cases]
    assert found.interval.high_s == pytest.approx(own[0].interval.high_s + own[1].time_s)
