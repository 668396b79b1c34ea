"""Advice on what to record so that a trace holds missing evidence, by trace format."""

from nearpeak.traces import Trace
from nearpeak.units import counted

_TORCH = "the PyTorch profiler states them"
_XLA = "XLA's profiler states no device work of a CPU; record on a GPU or TPU (jax.profiler.trace)"
_WORK = {
    "kineto": "record with CUDA or HIP activities on (ProfilerActivity.CUDA); if the CPU ran the operators, pass"
    " --target cpu",
    "chrome_json": "its kernels need the category kernel",
    "nsys_sqlite": "record with nsys profile --trace=cuda,nvtx",
    "rocprofv3_csv": "this table holds calls, sums or counters; pass kernel_trace.csv (--kernel-trace) or a rocpd file",
    "rocprofv3_json": "record with rocprofv3 --kernel-trace",
    "rocpd_sqlite": "record with rocprofv3 --kernel-trace",
    "onnxruntime_profile": "a profile of onnxruntime states the host's time of each node, not a device's; record"
    " with nsys or rocprofv3 too",
    "trtexec_json": "this file describes the engine; pass the file of --exportProfile",
    "ncu_csv": "export the details page with Duration in it (ncu --section SpeedOfLight --csv)",
    "power_log": "a power log holds no events; 'nearpeak telemetry --import' reads it; pass a profiler's trace",
    "xplane_pb": _XLA,
    "tensorboard_json": _XLA,
    "nsys_csv": "this table holds calls; pass the report cuda_gpu_trace, or the .sqlite export",
    "mlperf_log": "an MLPerf log describes a whole run; pass a profiler's trace",
}
"""Advice on recording device work, by format."""
_LOST, _RECORDS = ("dropped", "unknown"), ("event", "category", "record", "table")
"""What losses are of records that may have been device work: their words, and how their kinds begin."""
_SHAPES = {"kineto": "record_shapes=True records them"}
_OPERATORS = {"kineto": "record CPU activities"}
_HOST = {
    "kineto": "record CPU activities too",
    "nsys_sqlite": "record with --trace=cuda",
    "rocpd_sqlite": "add --hip-trace",
    "nsys_csv": "pass the .sqlite export, which has kernels and calls",
    "rocprofv3_csv": "pass a rocpd file, which has kernels and calls (--hip-trace)",
    "rocprofv3_json": "add --hip-trace",
    "ncu_csv": "this profiler replays kernels one by one; nsys records calls",
    "trtexec_json": "per-layer profiles have none; nsys records them",
}


def of_work(trace: Trace) -> str:
    """Return why there is no device work, and how to record it."""
    if work := len(trace.device_rows()):
        return f"has {counted(work, 'device event')}, {'all' if work > 1 else 'which is'} of length 0; record it again"
    what = "has no device events" if len(trace) else "has no events"
    lost = [loss.line() for loss in trace.header.losses if loss.what in _LOST and loss.kind.startswith(_RECORDS)]
    if lost:  # what was recorded and could not be read is no reason to record again
        return f"{what} that can be read ({'; '.join(lost)}); {_WORK.get(trace.header.format, 'record the device too')}"
    return f"{what}; {_WORK.get(trace.header.format, 'record the device too')}"


def of_shapes(form: str) -> str:
    """Return how to record shapes.

    >>> of_shapes("kineto"), of_shapes("nsys_sqlite")
    ('record_shapes=True records them', 'the PyTorch profiler states them')
    """
    return _SHAPES.get(form, _TORCH)


def of_operators(form: str) -> str:
    """Return how to record operators of a framework."""
    return _OPERATORS.get(form, _TORCH)


def of_host(form: str) -> str:
    """Return how to record calls of the runtime."""
    return _HOST.get(form, "record the host too")
