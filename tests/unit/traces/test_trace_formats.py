"""Every format reads back what was planned, says what it lacks, and survives what is odd."""

import gzip
import json
import random

import numpy as np
import pytest
from benchmarks._trace_files import WRITERS, kineto_events, planned
from benchmarks._trace_mutants import fault_of, mutant, mutated, originals_of

from nearpeak.core.traces.trace import EventKind
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.traces import FORMATS, MISSING, NO_ROW, read_trace

TIMED = {
    "kineto": None,
    "nsys_sqlite": None,
    "rocpd_sqlite": None,
    "rocprofv3_csv": "kernel",
    "rocprofv3_json": "kernel",
    "nsys_csv": None,
    "xplane_pb": None,
    "tensorboard_json": None,
}
KINDS = {"kernel": EventKind.KERNEL, "memcpy": EventKind.MEMCPY, "memset": EventKind.MEMSET}


def made(folder, form, seed=3, count=20):
    suffix, write = WRITERS[form]
    path = folder / f"made{suffix}"
    write(path, planned(seed, count))
    return path


def kineto_file(folder, events, head=""):
    path = folder / "t.json"
    path.write_text('{"schemaVersion": 1, ' + head + '"traceEvents": [' + ",\n".join(events) + "]}")
    return path


def test_there_is_a_generator_for_every_format():
    assert set(WRITERS) == set(FORMATS)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_a_file_is_recognised_by_its_first_bytes_alone(tmp_path, form):
    assert read_trace(made(tmp_path, form)).header.format == form


@pytest.mark.parametrize("form", sorted(TIMED))
def test_device_work_reads_back_as_it_was_planned(tmp_path, form):
    trace = read_trace(made(tmp_path, form))
    work = planned(3)
    got = sorted(
        (int(trace.start_ns[row]), int(trace.end_ns[row]), int(trace.stream[row]), int(trace.correlation[row]))
        for row in trace.device_rows()
    )
    assert got == sorted((one.start_ns, one.end_ns, one.stream, one.correlation) for one in work)
    kinds = {int(trace.correlation[row]): EventKind(trace.kind[row]) for row in trace.device_rows()}
    fills = EventKind.KERNEL if form == "rocpd_sqlite" else EventKind.MEMSET
    wanted = {one.correlation: fills if one.kind == "memset" else KINDS[one.kind] for one in work}
    assert kinds == (wanted if TIMED[form] is None else dict.fromkeys(wanted, EventKind.KERNEL))
    kernel = next(
        row
        for row in trace.rows(EventKind.KERNEL)
        if kinds[int(trace.correlation[row])] == wanted[int(trace.correlation[row])]
    )
    assert (trace.at("grid", kernel), trace.at("block", kernel)) == ((8, 2, 1), (128, 1, 1))


@pytest.mark.parametrize("form", ["kineto", "nsys_sqlite", "rocpd_sqlite"])
def test_work_is_joined_to_its_call_by_process_and_correlation(tmp_path, form):
    trace = read_trace(made(tmp_path, form))
    work = {one.correlation: one for one in planned(3)}
    for row in trace.device_rows():
        call = int(trace.launch[row])
        assert trace.start_ns[call] == work[int(trace.correlation[row])].call_start_ns


def test_two_processes_may_use_the_same_correlations(tmp_path):
    import sqlite3

    from benchmarks._trace_files_nvidia import nsys_sqlite

    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    nsys_sqlite(first, planned(1), process=111)
    nsys_sqlite(second, planned(2), process=112)
    with sqlite3.connect(first) as base:
        base.execute("attach ? as other", (str(second),))
        names = dict(base.execute("select id, value from other.StringIds"))
        ours = {value: key for key, value in base.execute("select id, value from StringIds")}
        base.executemany(
            "insert into StringIds values (?, ?)",
            [(100 + key, value) for key, value in names.items() if value not in ours],
        )
        for table in ("RUNTIME", "MEMCPY", "MEMSET"):
            base.execute(f"insert into CUPTI_ACTIVITY_KIND_{table} select * from other.CUPTI_ACTIVITY_KIND_{table}")
    base.close()
    trace = read_trace(first)
    rows = trace.device_rows()
    joined = rows[trace.launch[rows] != NO_ROW]
    assert len(joined) == len(rows)
    assert (trace.process[joined] == trace.process[trace.launch[joined]]).all()


def test_a_packed_file_and_a_plain_one_are_the_same_trace(tmp_path):
    plain = made(tmp_path, "kineto")
    packed = tmp_path / "made.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    one, two = read_trace(plain), read_trace(packed)
    assert [one.event(row) for row in range(len(one))] == [two.event(row) for row in range(len(two))]


def test_times_are_exact_to_the_nanosecond_at_any_base(tmp_path):
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": %s, "dur": %s, "args": {"stream": 7}}'
    stated = (
        ("4458676522690.655", "156.777"),
        ("1695835535123456", "41"),
        ("1695835535123456.001", "0.999"),
        ('"1695835535123456.002"', '"7.5"'),
        ("1.695835535123456003e15", "1e1"),
        ("1695835535123456.0049", "0"),
    )
    trace = read_trace(kineto_file(tmp_path, [event % pair for pair in stated[1:]]))
    starts = [1_695_835_535_123_456_000 + more for more in (0, 1, 2, 3, 5)]
    assert trace.start_ns.tolist() == starts
    assert sorted((trace.duration_ns).tolist()) == sorted([41_000, 999, 7_500, 10_000, 0])
    alone = read_trace(kineto_file(tmp_path, [event % stated[0]]))
    assert (alone.start_ns[0], alone.end_ns[0]) == (4_458_676_522_690_655, 4_458_676_522_847_432)


def test_odd_events_are_dropped_or_repaired_and_counted(tmp_path):
    good = next(one for one in kineto_events(planned(1, 4)) if '"kernel"' in one)
    odd = [
        good.replace('"dur": ', '"dur": -'),
        good.replace('"ts": ', '"ts": NaN, "was": '),
        good.replace('"ts": 1', '"ts": 9'),
        good.replace('"name": "', '"name": "a "quoted" one, '),
        '{"ph": "X", "cat": "new_thing", "name": "n", "ts": 1, "dur": 1}',
        good[:-30],
    ]
    trace = read_trace(kineto_file(tmp_path, [good, *odd, good]))
    lost = {loss.kind: loss.record_count for loss in trace.header.losses}
    assert lost["event whose end is before its start"] == 1
    assert lost["event without a readable time"] == 1
    assert lost["event whose time is out of range"] == 1
    assert lost["text with quotes that are not escaped"] == 1
    assert lost["category 'new_thing'"] == 1
    assert lost["event that is not JSON"] == 1
    names = [trace.name_of(row) for row in range(len(trace))]
    assert any(name.startswith('a "quoted" one, ') for name in names)
    assert lost["event of a device that stands in the file twice"] == 1
    assert len(trace) == 2


def test_identifiers_may_be_negative_texts_or_none(tmp_path):
    event = '{"ph": "X", "cat": "%s", "name": "k", "pid": %s, "tid": %s, "ts": 5, "dur": 1, '
    event += '"args": {"stream": %s, "correlation": "12"}}'
    events = [
        event % ("cpu_op", -3, -7, 1),
        event % ("cpu_op", '"Spans"', '"9"', 1),
        event % ("kernel", 0, 0, -1),
        event % ("kernel", 0, 0, 4294967295),
    ]
    trace = read_trace(kineto_file(tmp_path, events))
    assert sorted(trace.thread[trace.rows(EventKind.HOST_OP)].tolist()) == [-7, 9]
    assert sorted(trace.process[trace.rows(EventKind.HOST_OP)].tolist()) == [MISSING, -3]
    assert (trace.stream[trace.rows(EventKind.KERNEL)] == MISSING).all()
    assert (trace.correlation == 12).all()
    assert "2 of 2 kernels name no stream" in trace.header.lacks


def test_unknown_fields_stay_under_their_own_names_in_any_order(tmp_path):
    event = {
        "args": {"odd": [1, {"a": "b"}], "share": 0.25, "stream": 7},
        "dur": 2,
        "name": "k",
        "ts": 5,
        "cat": "Kernel",
        "ph": "X",
        "tid": 7,
        "pid": 0,
    }
    trace = read_trace(kineto_file(tmp_path, [json.dumps(event)]))
    assert trace.event(0).args == {"odd": '[1, {"a": "b"}]', "share": 0.25}


def test_a_file_that_was_cut_off_keeps_what_came_before(tmp_path):
    whole = made(tmp_path, "kineto").read_bytes()
    for data in (whole[: len(whole) // 2], gzip.compress(whole)[:-200]):
        path = tmp_path / "cut.json"
        path.write_bytes(data)
        header = read_trace(path, "kineto").header
        assert header.trimmed
        assert any("ends early" in loss.line() for loss in header.losses)


def test_wrong_files_are_refused_in_one_line_that_says_what_was_expected(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("hello")
    with pytest.raises(SpecError, match=r"no known trace format; name one: .*kineto"):
        read_trace(path)
    with pytest.raises(SpecError, match=r"begins with \{ or \["):
        read_trace(path, "kineto")
    with pytest.raises(SpecError, match="no SQLite file"):
        read_trace(path, "nsys_sqlite")
    with pytest.raises(SpecError, match="not found"):
        read_trace(tmp_path / "none.json")
    path.write_bytes(b"")
    with pytest.raises(SpecError, match="is empty"):
        read_trace(path)


def test_a_profile_that_ends_between_its_planes_states_that(tmp_path):
    path = made(tmp_path, "xplane_pb")
    whole = path.read_bytes()
    missing = "the name of the host is missing, which the profiler writes last"
    assert missing not in [loss.example for loss in read_trace(path).header.losses]
    path.write_bytes(whole.removesuffix(b"\x22\x04host"))
    assert missing in [loss.example for loss in read_trace(path).header.losses]
    path.write_bytes(whole + b"xx" * 1001)
    with pytest.raises(SpecError, match="more than 1,000 fields that no profile has"):
        read_trace(path)


def test_no_events_are_a_trace_without_events(tmp_path):
    trace = read_trace(kineto_file(tmp_path, []))
    assert len(trace) == 0
    assert "no device events: neither busy nor idle time is known" in trace.header.lacks


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_damaged_files_end_in_a_trace_or_in_one_line(tmp_path, form):
    original = made(tmp_path, form, count=8).read_bytes()
    path = tmp_path / "damaged"
    for seed in range(40):
        path.write_bytes(mutated(original, random.Random(f"test {form} {seed}")))
        assert fault_of(path, form) == "", seed


@pytest.mark.parametrize(("form", "seed"), [("kineto", 452)])
def test_a_damaged_file_that_once_ended_in_a_traceback(form, seed, tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(mutant(form, seed, originals_of(form, tmp_path)))
    assert fault_of(path, form) == ""


def test_a_table_of_another_shape_is_named(tmp_path):
    path = tmp_path / "kernel_trace.csv"
    path.write_text('"Kind","Kernel_Name"\n"KERNEL_DISPATCH","k"\n')
    with pytest.raises(NearpeakError, match="wanted Start_Timestamp, End_Timestamp"):
        read_trace(path, "rocprofv3_csv")


def test_blocks_of_onnxruntime_and_power_logs_say_their_resolution(tmp_path):
    trace = read_trace(made(tmp_path, "onnxruntime_profile"))
    assert trace.header.resolution_ns == 1_000
    power = read_trace(made(tmp_path, "power_log"))
    rows = np.flatnonzero(power.where("power".__eq__))
    assert power.values("value", rows)[0] == 3.0
    assert power.at("unit", int(rows[0])) == "W"


def test_events_without_fields_are_read_and_counted(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text('[{"cat" : "Session"}, {}]')
    assert len(read_trace(path, "onnxruntime_profile")) == 0
    path.write_text('[{}, {}] "cat" : "Session"')
    assert len(read_trace(path, "onnxruntime_profile")) == 0
