"""The golden figures of the public sample files, exact to the nanosecond or unit."""

import functools
import json
import math

import numpy as np
import pytest
from tests.samples import SAMPLES, needs_samples

from nearpeak.core.traces.timeline import HOST_CAUSES, Idle
from nearpeak.core.traces.trace import CopyKind, EventKind, Memory, SyncKind
from nearpeak.traces import MISSING, NO_ROW, read_trace
from nearpeak.traces.formats.ncu_csv import ncu_kernels
from nearpeak.traces.timeline.device_time import Communication, Events, timelines

pytestmark = needs_samples
ALL, LINKED = Events.ALL, Events.LINKED
# file, view, events, kernels, comm, memcpy, memset, compute, exposed comm, memcpy, memset, busy, span
KINETO = (
    ("kineto/amd_trace_mi250", ALL, 220, 14, 0, 2, 0, 110_881, 0, 38_161, 0, 149_042, 8_911_887),
    ("kineto/amd_trace_mi250", LINKED, 220, 14, 0, 2, 0, 110_881, 0, 38_161, 0, 149_042, 8_911_887),
    (
        "kineto/critical_path_alexnet",
        ALL,
        1_408,
        79,
        0,
        16,
        3,
        10_630_000,
        0,
        55_503_000,
        8_000,
        66_141_000,
        12_920_244_000,
    ),
    ("kineto/critical_path_cuda_event", LINKED, 149, 3, 0, 0, 3, 369_000, 0, 0, 3_000, 372_000, 19_506_000),
    (
        "kineto/nccl_parser",
        ALL,
        40_573,
        2_679,
        21,
        960,
        114,
        115_655_847,
        39_559_468,
        1_924_123,
        360_576,
        157_500_014,
        660_551_005,
    ),
    (
        "kineto/nccl_parser",
        LINKED,
        40_573,
        2_679,
        21,
        960,
        114,
        115_655_847,
        39_559_468,
        1_924_123,
        360_576,
        157_500_014,
        660_551_005,
    ),
    ("tracelens/h100_Qwen", LINKED, 18_221, 1_029, 0, 1, 168, 31_760_058, 0, 2_368, 143_047, 31_905_473, 34_892_419),
    ("tracelens/h100_Qwen", ALL, 18_221, 1_465, 0, 1, 241, 45_432_698, 0, 2_368, 212_234, 45_647_300, 49_652_832),
    ("tracelens/mi300_Qwen", LINKED, 18_090, 1_053, 0, 1, 0, 29_743_178, 0, 760, 0, 29_743_938, 33_131_334),
    ("tracelens/mi300_Qwen", ALL, 18_090, 1_516, 0, 1, 0, 43_062_042, 0, 760, 0, 43_062_802, 47_085_800),
    ("tracelens/b200", ALL, 24_656, 767, 1, 161, 0, 10_771_685, 21_953, 802_844, 0, 11_596_482, 84_487_178),
    ("tracelens/inference_vllm", LINKED, 1_993, 425, 0, 9, 0, 10_674_517, 0, 43_191, 0, 10_717_708, 10_743_181),
)
# file, view, gaps, host wait, queue wait, median call to start in µs
IDLE = (
    ("tracelens/b200", ALL, 854, 70_683_616, 2_207_080, 10.4),
    ("tracelens/h100_Qwen", LINKED, 1_197, 1_200_296, 1_786_650, 1_207),
    ("tracelens/mi300_Qwen", LINKED, 1_053, 2_256_448, 1_130_948, 1_728),
    ("tracelens/inference_vllm", ALL, 433, 0, 25_473, 11_900),
    ("kineto/nccl_parser", ALL, 3_480, 497_379_562, 5_671_429, 12.3),
    ("nsys/nsightful", ALL, 3_777, 656_135_765, 2_413_420, None),
)


def sample(stem):
    folder, _, name = stem.partition("/")
    return next(path for path in sorted((SAMPLES / folder).iterdir()) if path.name.startswith(name))


@functools.cache
def trace_of(stem):
    """A sample as it is read, once for all tests: nobody changes it."""
    return read_trace(sample(stem))


def only(found):
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize("row", KINETO, ids=lambda row: f"{row[0]} {row[1].name}")
def test_files_of_the_pytorch_profiler(row):
    trace = trace_of(row[0])
    one = only(timelines(trace, events=row[1]))
    assert trace.header.record_count == row[2]
    assert (one.kernel_count, one.comm_count, one.memcpy_count, one.memset_count) == row[3:7]
    assert (one.compute_ns, one.exposed_comm_ns, one.exposed_memcpy_ns, one.exposed_memset_ns) == row[7:11]
    assert (one.busy_ns, one.span_ns) == row[11:13]
    assert sum(one.idle_by_cause_ns.values()) == one.idle_ns


@pytest.mark.parametrize("row", IDLE, ids=lambda row: row[0])
def test_idle_time_is_split_between_host_and_queue(row):
    one = only(timelines(trace_of(row[0]), events=row[1]))
    host_ns = sum(one.idle_by_cause_ns.get(cause, 0) for cause in HOST_CAUSES)
    assert (one.gap_count, host_ns, one.idle_by_cause_ns.get(Idle.QUEUE, 0)) == row[2:5]
    assert row[5] is None or one.queue_delay_ns / 1e3 == pytest.approx(row[5], rel=0.005)


def test_overlaps_copies_and_synchronisations():
    alexnet = trace_of("kineto/critical_path_alexnet")
    one = only(timelines(alexnet))
    copies = alexnet.rows(EventKind.MEMCPY)
    assert (one.kernel_sum_ns, one.compute_ns, one.memcpy_bytes) == (10_692_000, 10_630_000, 244_403_360)
    assert (alexnet.values("copy_kind", copies) == CopyKind.H2D).all()
    assert (alexnet.values("source_memory", copies) == Memory.PAGEABLE).all()
    assert only(timelines(trace_of("kineto/nccl_parser"))).comm_sum_ns == 46_876_493
    waits = trace_of("kineto/critical_path_cuda_event")
    rows = waits.rows(EventKind.SYNC)
    kinds = [SyncKind(one) for one in waits.values("sync", rows)]
    assert (kinds.count(SyncKind.EVENT), kinds.count(SyncKind.STREAM_WAIT), kinds.count(SyncKind.CONTEXT)) == (3, 1, 1)
    assert waits.stream[rows[kinds.index(SyncKind.STREAM_WAIT)]] == 24
    assert len(np.unique(waits.stream[waits.rows(EventKind.KERNEL)])) == 3


def test_casts_graphs_and_other_communication():
    for stem in ("tracelens/h100_Qwen", "tracelens/mi300_Qwen"):
        trace = trace_of(stem)
        casts = [trace.event(row) for row in np.flatnonzero(trace.where("aten::_to_copy".__eq__))]
        codes = [one.concrete[1] for one in casts]
        assert (len(casts), codes.count("15"), codes.count("6")) == (101, 51, 50)
    vllm = only(timelines(trace_of("tracelens/inference_vllm")))
    assert (vllm.graph_launch_count, vllm.graph_kernel_count) == (1, 421)
    b200 = trace_of("tracelens/b200")
    wider = only(timelines(b200, communication=Communication.ANY))
    assert wider.comm_sum_ns - only(timelines(b200)).comm_sum_ns == pytest.approx(2_120_000, rel=0.01)


def test_nsight_systems_with_two_processes():
    trace = trace_of("nsys/h100_2gpu")
    assert trace.header.version == "3.25.0"
    kernels = trace.rows(EventKind.KERNEL)
    assert sorted(set(trace.process[kernels].tolist())) == [111, 112]
    assert [set(trace.stream[kernels[trace.device[kernels] == one]].tolist()) for one in (0, 1)] == [{7}, {15}]
    assert int((trace.launch[kernels] == NO_ROW).sum()) == 1_810
    alone = timelines(trace, kinds=(EventKind.KERNEL,))
    assert [(one.busy_ns, one.span_ns) for one in alone] == [(22_385_163, 960_485_009), (22_444_359, 960_307_663)]
    both = timelines(trace)
    assert [(one.busy_ns, one.span_ns) for one in both] == [(962_890_247, 969_447_605), (962_810_705, 969_258_578)]
    assert [one.exposed_memcpy_ns for one in both] == [940_490_300, 940_351_914]
    assert [one.exposed_memset_ns for one in both] == [14_784, 14_432]
    copies = trace.rows(EventKind.MEMCPY)
    pinned = copies[
        (trace.values("copy_kind", copies) == CopyKind.H2D) & (trace.values("source_memory", copies) == Memory.PINNED)
    ]
    for device in (0, 1):
        mine = pinned[trace.device[pinned] == device]
        assert (len(mine), int(trace.values("bytes", mine).sum())) == (223, 25_475_252_224)
    counts = [
        int((trace.kind == kind).sum())
        for kind in (EventKind.HOST_API, EventKind.MEMCPY, EventKind.MEMSET, EventKind.HOST_RANGE, EventKind.SYNC)
    ]
    assert counts == [5_796, 904, 22, 16_782, 244]
    assert "no table TARGET_INFO_GPU" in trace.header.lacks


def test_nsight_systems_with_its_device():
    trace = trace_of("nsys/nsightful")
    device = trace.header.devices[0]
    assert (trace.header.version, device.name, device.sm_count) == ("3.20.2", "Tesla T4", 40)
    assert (device.clock_hz, device.bandwidth_bytes_per_s, device.l2_bytes) == (
        1_590_000_000,
        320_064_000_000,
        4_194_304,
    )
    alone, both = only(timelines(trace, kinds=(EventKind.KERNEL,))), only(timelines(trace))
    assert (alone.kernel_count, alone.busy_ns, alone.span_ns) == (3_689, 1_131_742_684, 1_790_607_861)
    assert (both.memcpy_count, both.busy_ns, both.span_ns, both.memcpy_bytes) == (
        89,
        1_132_064_724,
        1_790_613_909,
        2_883_944,
    )
    copies = trace.rows(EventKind.MEMCPY)
    assert (trace.values("target_memory", copies) == Memory.PAGEABLE).all()
    assert (trace.launch[trace.rows(EventKind.KERNEL)] != NO_ROW).all()
    assert int((trace.kind == EventKind.HOST_RANGE).sum()) == 786
    waits = trace.values("sync", trace.rows(EventKind.SYNC))
    assert int((waits == SyncKind.STREAM).sum()) >= 89  # typed as waits of a stream for an event in the file


def test_metrics_and_rules_of_nsight_compute():
    path, losses = sample("ncu/orin"), []
    kernels = ncu_kernels(path, losses)
    metrics = [one for kernel in kernels for one in kernel.metrics]
    rules = [one for kernel in kernels for one in kernel.rules]
    assert (len(metrics), len(rules), losses) == (2_921, 78, [])
    assert [sum(one.kind == kind for one in rules) for kind in ("OPT", "WRN", "INF")] == [54, 16, 8]
    estimates = [one.scope for one in rules if one.speedup_ratio is not None]
    assert (len(estimates), estimates.count("global"), estimates.count("local")) == (45, 28, 17)
    assert sum(one.name == "WorkloadImbalance" for one in rules) == 28
    assert sum("," in one.text for one in metrics if one.value is not None) == 417
    assert sum(one.value is None or bool(one.values) for one in metrics) == 56  # 24 n/a, 8 texts, 24 with instances
    trace = read_trace(path)
    assert trace.duration_ns.tolist() == [6_336, 5_408, 8_160, 5_632, 7_808, 8_096, 16_256, 7_008]
    assert trace.header.devices[0].compute_capability == "8.7"


def test_tables_and_json_of_rocm():
    trace = trace_of("rocprofv3/908")
    one = only(timelines(trace))
    assert (len(trace), int(trace.duration_ns.sum()), one.busy_ns, one.span_ns) == (
        43_915,
        4_441_741_378,
        4_233_112_334,
        15_122_023_494,
    )
    assert (len(np.unique(trace.values("kernel_id"))), len(one.stream_busy_ns)) == (80, 567)
    assert (trace.header.devices[0].sm_count, trace.header.devices[0].compute_capability) == (256, "gfx950")
    stats = trace_of("rocprofv3/hip_api_stats")
    assert (len(stats), int(stats.values("total_ns").sum()), int(stats.values("calls").sum())) == (17, 308_269_675, 155)
    assert stats.values("Percentage").sum() == pytest.approx(99.996, abs=5e-4)
    counters = trace_of("rocprofv3/counter")
    assert (len(counters), counters.values("value").sum(), counters.name_of(0)) == (7, 114_688, "SQ_WAVES")
    for stem, count, total in (
        ("rocprofv3/hip_runtime", 8, 972_177_644),
        ("rocprofv3_new/kernel", 9, 96_160),
        ("rocprofv3_new/memory", 4, 329_162),
        ("rocprofv3_new/rccl", 21, 430_140_109),
        ("rocprofv3_new/rocpd", 13, 173_915_064),
    ):
        found = trace_of(stem)
        assert (len(found), int(found.duration_ns.sum())) == (count, total), stem
    kernels = trace_of("rocprofv3_new/kernel")
    assert only(timelines(kernels)).span_ns == 144_400
    assert kernels.event(0).grid == (16, 1_024, 1)
    copies = trace_of("rocprofv3_new/memory")
    assert (copies.values("bytes") == MISSING).all()
    assert "4 of 4 copies state no bytes" in copies.header.lacks


def test_tensorrt_and_onnxruntime():
    profile, graph = (
        trace_of("trtexec/resnet18_fp16.profile"),
        trace_of("trtexec/resnet18_fp16.graph"),
    )
    assert (profile.header.metadata["count"], len(profile)) == (21_071, 26)
    sums = [math.fsum(profile.values(name)) for name in ("averageMs", "medianMs", "timeMs", "percentage")]
    assert sums == pytest.approx([0.36351572, 0.359424, 7_659.6382, 99.999999], rel=1e-8)
    nodes = graph.header.metadata["nodes"]
    assert {profile.name_of(row) for row in range(26)} == set(nodes)
    assert (len({node for many in nodes.values() for node in many}), max(map(len, nodes.values()))) == (48, 3)
    kinds = [layer["LayerType"] for layer in graph.header.metadata["layers"]]
    assert (kinds.count("CaskConvolution"), kinds.count("CaskPooling")) == (20, 2)
    slowest = int(np.nanargmax(profile.values("averageMs")))
    assert (profile.name_of(slowest), profile.values("averageMs")[slowest]) == ("/conv1/Conv + /relu/Relu", 0.0288488)
    trace = trace_of("onnxruntime/tiny")
    runs = np.flatnonzero(trace.where("model_run".__eq__))
    assert (trace.header.record_count, int(trace.duration_ns[trace.rows(EventKind.HOST_OP)].sum())) == (23, 876_000)
    assert trace.duration_ns[runs].tolist() == [645_000, 209_000, 128_000]


def test_mlperf_logs_and_power():
    for stem, lines, run_s, init_s, batch, last in (
        ("mlperf/AMD", 52, 1_695.611, 72.514, 8, 0.9220665),
        ("mlperf/Dell", 72, 220.035, 178.768, 55_296, 0.8029667),
    ):
        header = trace_of(stem).header
        found = header.metadata
        assert (header.record_count, found["run_s"], found["init_s"]) == (lines, run_s, init_s)
        assert (found["global_batch_size"], found["status"]) == (batch, "success")
        assert found["eval_accuracy"] == pytest.approx(last, abs=5e-8)
    summary = trace_of("mlperf_power/xavier_nx_resnet50_ss_summary").header.metadata
    assert (summary["Result is"], summary["Scenario"], summary["90th percentile latency (ns)"]) == (
        "VALID",
        "SingleStream",
        3_070_554,
    )
    assert (summary["Mean latency (ns)"], summary["QPS w/o loadgen overhead"]) == (3_065_097, "326.25")
    power = trace_of("mlperf_power/xavier_nx_resnet50_ss_spl")
    rows = np.flatnonzero(power.where("power".__eq__))
    watts, times_s = power.values("value", rows), power.start_ns[rows] / 1e9
    assert (len(rows), power.start_ns[rows[-1]] - power.start_ns[rows[0]]) == (638, 637_022_000_000)
    assert np.trapezoid(watts, times_s) == pytest.approx(6_522.537, abs=5e-4)


def test_what_every_sample_lacks_is_said_in_plain_words():
    for path in sorted(SAMPLES.glob("kineto/*")):
        header = read_trace(path).header
        assert json.dumps(header.lacks)
        assert all(loss.line() for loss in header.losses)
