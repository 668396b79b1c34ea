"""Tables and profiles as other versions, languages and options of their tools write them."""

import json

import pytest

from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.core.traces.trace import EventKind
from nearpeak.errors import SpecError
from nearpeak.traces import MISSING, read_trace
from nearpeak.traces.timeline.trace_steps import steps_of

HEAD = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC"'
)
CELLS = '"{0}","1","python","h","kernel {0}","1","7","(128, 1, 1)","(16, 2, 1)","0","9.0"'


def written(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return read_trace(path)


def details(*metrics):
    """A details page: number of the kernel, metric, unit, value."""
    rows = [f'{CELLS.format(one)},"S","{name}","{unit}","{value}",' for one, name, unit, value in metrics]
    return "\n".join([f'{HEAD},"Section Name","Metric Name","Metric Unit","Metric Value","Rule Name"', *rows, ""])


@pytest.mark.parametrize(
    ("thousand", "decimal"), [(",", "."), (".", ","), ("\u202f", ","), ("\u00a0", ","), ("’", "."), (" ", ",")]
)
def test_numbers_of_nsight_compute_are_read_in_every_language(thousand, decimal, tmp_path):
    trace = written(
        tmp_path, "t.csv",
        "==PROF== Connected to process 1\n" + details(
            (0, "Duration", "us", f"1{thousand}234{decimal}56"),
            (0, "Elapsed Cycles", "cycle", f"12{thousand}345"),
            (0, "Throughput", "%", f"45{decimal}67"),
            (1, "Duration", "us", f"6{decimal}34"),
            (1, "Instances", "byte", f"3{thousand}760 (48{decimal}5; 49)"),
        ),
    )  # fmt: skip
    rows = trace.rows(EventKind.KERNEL)
    assert trace.duration_ns[rows].tolist() == [1_234_560, 6_340]
    assert [trace.at(name, 0) for name in ("Elapsed Cycles", "Throughput")] == [12_345, 45.67]
    assert trace.at("Instances", 1) == 3760
    repaired = [one.record_count for one in trace.header.losses if one.what == "repaired"]
    assert repaired == ([5] if decimal == "," else [])


def test_a_number_of_another_language_among_the_others_is_unknown_and_not_a_hundred_times_as_much(tmp_path):
    metrics = [(0, "Duration", "us", "6.34"), (0, "A", "%", "45.67"), (0, "Odd", "%", "45,67")]
    trace = written(tmp_path, "t.csv", details(*metrics))
    assert (trace.at("A", 0), trace.at("Odd", 0)) == (45.67, None)


RAW = f'{HEAD},"dram__bytes.sum","gpu__time_duration.sum"\n'
UNITS = '"","","","","","","","","","","","Mbyte","us"\n'
KERNELS = "".join(f'{CELLS.format(one)},"1,234.5","6.34"\n' for one in range(2))


def test_the_raw_page_has_a_row_of_units(tmp_path):
    trace = written(tmp_path, "t.csv", RAW + UNITS + KERNELS)
    assert trace.duration_ns.tolist() == [6340, 6340]
    assert trace.at("dram__bytes.sum", 1) == pytest.approx(1_234.5e6, rel=1e-15)


def test_without_its_units_a_duration_is_unknown_and_no_kernel_is_lost_silently(tmp_path):
    trace = written(tmp_path, "t.csv", RAW + KERNELS)
    assert len(trace) == 0
    assert [one.line() for one in trace.header.losses] == ["dropped 2: kernel without a duration"]


@pytest.mark.parametrize(
    ("header", "row", "name", "domain"),
    [
        (
            '"Kind","Operation","Agent_Id","Allocation_Size","Address","Correlation_Id"',
            '"MEMORY_ALLOCATION","MEMORY_ALLOCATION_ALLOCATE","Agent 4",1024,"0x7f",1',
            "MEMORY_ALLOCATION_ALLOCATE", "MEMORY_ALLOCATION",
        ),
        ('"Domain","Function","Process_Id","Thread_Id","Correlation_Id"', '"HIP_RUNTIME_API","hipFree",3,4,1',
         "hipFree", "HIP_RUNTIME_API"),
        ('"Kind","Correlation_Id"', '"PAGE_MIGRATION",1', "PAGE_MIGRATION", "PAGE_MIGRATION"),
    ],
)  # fmt: skip
def test_calls_of_every_table_of_rocm_have_their_name(header, row, name, domain, tmp_path):
    trace = written(tmp_path, "t.csv", f'{header},"Start_Timestamp","End_Timestamp"\n{row},100,200\n')
    assert (trace.name_of(0), trace.text_of("domain", 0), int(trace.duration_ns[0])) == (name, domain, 100)


def test_kernels_of_onnxruntime_do_not_take_their_process_for_a_device(tmp_path):
    kernel = {"cat": "Kernel", "pid": 4711, "tid": 0, "dur": 9, "ts": 25, "ph": "X", "name": "k", "args": {}}
    node = {**kernel, "cat": "Node", "name": "Conv_kernel_time"}
    trace = written(tmp_path, "t.json", json.dumps([node, kernel]))
    (row,) = trace.rows(EventKind.KERNEL)
    assert int(trace.device[row]) == MISSING


def test_markers_of_rocm_are_called_by_what_they_say(tmp_path):
    marker = {"kind": 1, "operation": 0, "thread_id": 5, "start_timestamp": 10, "end_timestamp": 90}
    tool = {
        "metadata": {"pid": 4},
        "strings": {
            "buffer_records": [{"kind": "NONE", "operations": []}, {"kind": "M", "operations": ["roctxRangePushA"]}],
            "marker_api": [{"key": 7, "value": "step 3"}],
        },
        "buffer_records": {
            "marker_api": [{**marker, "correlation_id": {"internal": 7}}, {**marker, "correlation_id": {"internal": 8}}]
        },
    }
    trace = written(tmp_path, "t.json", json.dumps({"rocprofiler-sdk-tool": [tool]}))
    assert [trace.name_of(row) for row in trace.rows(EventKind.HOST_RANGE)] == ["step 3", "roctxRangePushA"]
    assert [one.index for one in steps_of(trace).steps] == [3]


def test_a_table_of_copies_alone_is_no_idle_device(tmp_path):
    header = '"Kind","Direction","Correlation_Id","Start_Timestamp","End_Timestamp"'
    rows = "".join(f'"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",{one},{one}000,{one}100\n' for one in (1, 2, 3))
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n{rows}")
    report = analyze_trace(path)
    assert report.verdict.startswith("no conclusion: only copies and fills were recorded")
    assert any(note.startswith("copies only") for note in report.executed.notes)


def test_a_profile_without_times_has_no_critical_path(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{"count": 2}, *({"name": one, "averageMs": 1.0} for one in "ab")]))
    assert analyze_trace(path).executed.path_ns == {}


def test_a_table_is_read_no_further_after_too_many_rows_of_another_width(tmp_path, monkeypatch):
    monkeypatch.setattr("nearpeak.traces.reading.csv_tables.MOST_ODD_ROWS", 3)
    head = "Start_Timestamp,End_Timestamp,Function"
    trace = written(tmp_path, "t.csv", "\n".join([head, "1000,2000,hipMalloc", *["x,y"] * 9, "3000,4000,hipFree", ""]))
    assert len(trace) == 1
    assert "rest of the file" in [loss.kind for loss in trace.header.losses]


@pytest.mark.parametrize("column", ["Metric Unit", "Metric Value"])
def test_a_page_of_nsight_compute_without_a_column_names_it(tmp_path, column):
    with pytest.raises(SpecError, match=f"lacks the column '{column}'"):
        written(tmp_path, "t.csv", details((0, "Duration", "us", "1")).replace(f'"{column}",', "", 1))
