"""Small trace files of every format from one plan of events, so that what is read back is known exactly."""

from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks._trace_files_json import chrome_json, kineto, kineto_events, onnxruntime_profile
from benchmarks._trace_files_logs import mlperf_log, power_log
from benchmarks._trace_files_nvidia import ncu_csv, nsys_sqlite, trtexec_json
from benchmarks._trace_files_rocm import rocpd_sqlite, rocprofv3_csv, rocprofv3_json
from benchmarks._trace_files_xla import nsys_csv, tensorboard_json, xplane_pb
from benchmarks._trace_work import Work, planned

__all__ = ["WRITERS", "Work", "kineto_events", "planned"]


WRITERS: Mapping[str, tuple[str, Callable[[Path, list[Work]], None]]] = {
    "kineto": (".json", kineto),
    "nsys_sqlite": (".sqlite", nsys_sqlite),
    "ncu_csv": (".csv", ncu_csv),
    "rocprofv3_csv": (".csv", rocprofv3_csv),
    "rocprofv3_json": (".json", rocprofv3_json),
    "rocpd_sqlite": (".db", rocpd_sqlite),
    "onnxruntime_profile": (".json", onnxruntime_profile),
    "trtexec_json": (".json", trtexec_json),
    "mlperf_log": (".txt", mlperf_log),
    "power_log": (".txt", power_log),
    "chrome_json": (".json", chrome_json),
    "nsys_csv": (".csv", nsys_csv),
    "xplane_pb": (".xplane.pb", xplane_pb),
    "tensorboard_json": (".trace.json", tensorboard_json),
}
"""Suffix and writer of each format."""
