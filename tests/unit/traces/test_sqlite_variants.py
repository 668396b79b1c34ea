"""Databases of profilers in the forms that other captures have: whole graphs, several processes, tables anywhere."""

import sqlite3

import pytest

from nearpeak.api.trace_analysis import analyze_trace, is_trace
from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import NO_ROW, read_trace
from nearpeak.traces.timeline.device_time import timelines

PREFIX = "CUPTI_ACTIVITY_KIND_"
UUIDS = ("00001111_2222_3333_4444_555566667777", "88889999-2222-3333-4444-555566667777")


def filled(path, tables):
    """Write tables given as name, columns and rows."""
    connection = sqlite3.connect(path)
    for name, columns, rows in tables:
        connection.execute(f'create table "{name}"({columns})')
        marks = ",".join("?" * len(columns.split(",")))
        connection.executemany(f'insert into "{name}" values({marks})', rows)
    connection.commit()
    connection.close()
    return path


def thread(process, number):
    return process << 24 | number


def nsys_tables(kernels=()):
    """Two launches of a graph of 300 ns each, and what else there is."""
    launch = ("cudaGraphLaunch_v10000", "cudaLaunchKernel_v7000", "k", "step 1", "step 2")
    return [
        ("StringIds", "id, value", list(enumerate(launch))),
        (
            f"{PREFIX}RUNTIME", "start, end, globalTid, correlationId, nameId",
            [(100, 120, thread(5, 7), 1, 0), (500, 520, thread(5, 7), 2, 0), (900, 905, thread(5, 7), 3, 1)],
        ),
        (
            f"{PREFIX}KERNEL", "start, end, deviceId, streamId, correlationId, globalPid, shortName, graphNodeId",
            kernels,
        ),
        (
            f"{PREFIX}GRAPH_TRACE",
            "start, end, deviceId, graphId, graphExecId, contextId, streamId, correlationId, globalPid",
            [(130, 430, 0, 11, 12, 1, 7, 1, thread(5, 0)), (530, 830, 0, 11, 12, 1, 7, 2, thread(5, 0))],
        ),
        ("NVTX_EVENTS", "start, end, eventType, globalTid, textId",
         [(90, 450, 59, thread(5, 7), 3), (490, 850, 60, thread(5, 7), 4)]),
        ("OSRT_API", "start, end, globalTid, nameId", [(1, 2, 3, 4), (2, 3, 3, 4)]),
        ("SOME_NAMES", "id, value", [(1, "x")]),
    ]  # fmt: skip


def test_graphs_recorded_as_a_whole_keep_the_device_busy(tmp_path):
    trace = read_trace(filled(tmp_path / "t.sqlite", nsys_tables([(910, 1000, 0, 7, 3, thread(5, 0), 2, None)])))
    (line,) = timelines(trace)
    assert (line.compute_ns, line.end_ns - line.start_ns) == (690, 870)
    assert (line.graph_launch_count, line.graph_kernel_count, line.unlinked_count) == (2, 2, 0)
    rows = trace.rows(EventKind.KERNEL)
    assert [trace.name_of(row) for row in rows] == ["CUDA graph 11", "CUDA graph 11", "k"]
    assert [trace.at("graph", row) for row in rows] == [11, 11, None]
    assert any(lack.startswith("kernels inside of 2 launches") for lack in trace.header.lacks)


def test_the_report_says_that_graphs_were_recorded_as_a_whole(tmp_path):
    report = analyze_trace(filled(tmp_path / "t.sqlite", nsys_tables()))
    assert any("--cuda-graph-trace=node" in note for note in report.executed.notes)


def test_a_graph_whose_kernels_are_recorded_counts_once(tmp_path):
    nodes = [(130, 200, 0, 7, 1, thread(5, 0), 2, 71), (200, 430, 0, 7, 1, thread(5, 0), 2, 72)]
    trace = read_trace(filled(tmp_path / "t.sqlite", nsys_tables(nodes)))
    (line,) = timelines(trace)
    assert (line.kernel_count, line.kernel_sum_ns, line.compute_ns) == (3, 600, 600)
    losses = {loss.kind: loss.record_count for loss in trace.header.losses}
    assert losses["graph whose kernels are recorded one by one"] == 1


def test_tables_of_events_that_nobody_reads_are_counted(tmp_path):
    losses = read_trace(filled(tmp_path / "t.sqlite", nsys_tables())).header.losses
    assert [(loss.what, loss.kind, loss.record_count) for loss in losses] == [
        ("skipped", "record of table OSRT_API", 2),
    ]


def rocpd_tables(uuid, process, begin):
    """One process with a call, its kernel of 16 by 2 blocks, a copy, and counters that are left out."""
    tables = {
        "string": ("id, string", [(1, "hipLaunchKernel"), (2, "MEMORY_COPY_HOST_TO_DEVICE")]),
        "info_process": ("id, pid", [(1, process)]),
        "info_thread": ("id, tid", [(1, process + 1)]),
        "info_agent": (
            "id, type, type_index, name, product_name",
            [(1, "CPU", 0, "EPYC", "EPYC"), (2, "GPU", 0, "gfx942", "AMD Instinct MI300X")],
        ),
        "info_kernel_symbol": ("id, kernel_name, display_name", [(1, "_Zk", f"kernel of {process}")]),
        "event": ("id, stack_id", [(1, 41), (2, 41)]),
        "region": ("id, pid, tid, start, end, name_id, event_id", [(1, 1, 1, 100 + begin, 110 + begin, 1, 1)]),
        "kernel_dispatch": (
            "pid, agent_id, kernel_id, stream_id, start, end, workgroup_size_x, workgroup_size_y, workgroup_size_z,"
            " grid_size_x, grid_size_y, grid_size_z, event_id",
            [(1, 2, 1, 1, 120 + begin, 320 + begin, 64, 1, 1, 1024, 2, 1, 2)],
        ),
        "memory_copy": (
            "pid, start, end, name_id, dst_agent_id, src_agent_id, size, stream_id, event_id",
            [(1, 330 + begin, 340 + begin, 2, 2, 1, 4096, 1, None)],
        ),
        "pmc_event": ("id, value", [(1, 2.0), (2, 3.0)]),
        "metadata": ("id, tag, value", [(1, "schema_version", "3")]),
    }
    return [(f"rocpd_{name}_{uuid}", columns, rows) for name, (columns, rows) in tables.items()]


def merged(path):
    """Two processes in one file, views over both as the tool makes them, and many tables before theirs."""
    first = [(f"other_{number}", "id", [(number,)]) for number in range(200)]
    both = [table for place, uuid in enumerate(UUIDS) for table in rocpd_tables(uuid, 500 + place, 1000 * place)]
    filled(path, first + both)
    connection = sqlite3.connect(path)
    parts = " union all ".join(f'select * from "rocpd_kernel_dispatch_{uuid}"' for uuid in UUIDS)
    connection.execute(f"create view rocpd_kernel_dispatch as {parts}")
    connection.commit()
    connection.close()
    return path


def test_a_database_is_recognised_by_its_tables_wherever_they_stand(tmp_path):
    path = merged(tmp_path / "t.db")
    assert b"rocpd_" not in path.read_bytes()[: 1 << 16]
    assert is_trace(path)
    assert read_trace(path).header.format == "rocpd_sqlite"


def test_ids_of_two_processes_in_one_file_are_not_mixed(tmp_path):
    trace = read_trace(merged(tmp_path / "t.db"))
    rows = trace.rows(EventKind.KERNEL)
    assert [trace.name_of(row) for row in rows] == ["kernel of 500", "kernel of 501"]
    assert [trace.at("grid", row) for row in rows] == [(16, 2, 1), (16, 2, 1)]
    assert NO_ROW not in trace.launch[rows]
    assert trace.process[trace.launch[rows]].tolist() == [500, 501]
    (line,) = timelines(trace)
    assert (line.kernel_sum_ns, line.memcpy_bytes, line.end_ns - line.start_ns) == (400, 8192, 1220)
    (device,) = trace.header.devices
    assert (device.name, device.compute_capability) == ("AMD Instinct MI300X", "gfx942")


@pytest.mark.parametrize("suffix", [f"_{UUIDS[0]}", ""])
def test_counters_that_are_left_out_are_counted(suffix, tmp_path):
    tables = [(name.replace(f"_{UUIDS[0]}", suffix), *rest) for name, *rest in rocpd_tables(UUIDS[0], 500, 0)]
    trace = read_trace(filled(tmp_path / "t.db", tables))
    skipped = [(one.kind, one.record_count) for one in trace.header.losses if one.what == "skipped"]
    assert skipped == [(f"record of table rocpd_pmc_event{suffix}", 2)]
    assert trace.header.version == "3"


@pytest.mark.parametrize("category", [None, "MARKER_CORE_RANGE_API"])
def test_marked_ranges_of_rocm_are_no_calls_and_are_called_by_their_message(category, tmp_path):
    tables = {name: [columns, list(rows)] for name, columns, rows in rocpd_tables(UUIDS[0], 500, 0)}
    strings, events, regions = (tables[f"rocpd_{name}_{UUIDS[0]}"] for name in ("string", "event", "region"))
    strings[1] += [(3, "roctxRangePushA"), (4, category), (5, "HIP_RUNTIME_API")]
    events[0] = "id, stack_id, category_id, extdata"
    events[1][:] = [(1, 41, 5, "{}"), (2, 41, 5, None), (3, 50, 4, '{"message": "step 6"}'), (4, 51, 4, "[broken")]
    regions[1] += [(2, 1, 1, 90, 400, 3, 3), (3, 1, 1, 500, 600, 3, 4)]
    path = filled(tmp_path / "t.db", [(name, columns, rows) for name, (columns, rows) in tables.items()])
    trace = read_trace(path)
    assert [trace.name_of(row) for row in trace.rows(EventKind.HOST_RANGE)] == ["step 6", "roctxRangePushA"]
    assert [trace.name_of(row) for row in trace.rows(EventKind.HOST_API)] == ["hipLaunchKernel"]
