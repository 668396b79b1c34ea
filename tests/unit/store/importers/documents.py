"""Documents of other tools, made as their schemas say: one for each importer, written into a folder."""

import json
import re

import numpy as np

from nearpeak.core.history.stored_run import Device
from nearpeak.store.importers import FileContext, file_bytes, file_digest, runs_of_file

GPU = Device(name="H200")


def runs_of(path, form=None, **given):
    data = file_bytes(path)
    facts = {"device": GPU, "folder": path.parent} | given
    return runs_of_file(data, FileContext(name=path.name, digest=file_digest(data), **facts), form)


def pytest_benchmark(folder, *, data=True):
    stats = {"min": 1e-5, "max": 3e-5, "mean": 2e-5, "stddev": 1e-6, "rounds": 3, "median": 2e-5, "iterations": 4}
    stats |= {"data": [1e-5, 2e-5, 3e-5]} if data else {}
    return _json(folder / "pytest.json", {
        "machine_info": {"node": "host", "machine": "x86_64", "python_version": "3.11.7", "system": "Linux",
                         "release": "6.0", "cpu": {"brand_raw": "A CPU", "count": 2}},
        "commit_info": {"id": "a" * 40, "time": "2026-01-02T03:04:05+00:00", "dirty": False, "project": "p",
                        "branch": "dev"},
        "benchmarks": [{"group": None, "name": "test_one", "fullname": "t.py::test_one", "params": {"n": 3},
                        "param": None, "extra_info": {"note": "x"},
                        "options": {"timer": "perf_counter", "warmup": False, "precision": None}, "stats": stats}],
        "datetime": "2026-01-02T03:04:06+00:00", "version": "5.3.1",
    })  # fmt: skip


def google_benchmark(folder, *, aggregates=False):
    row = {"run_name": "BM_copy/8", "threads": 1, "iterations": 100, "time_unit": "us", "real_time": 2.0,
           "cpu_time": 1.5}  # fmt: skip
    rows = [
        row | {"name": "BM_copy/8", "run_type": "iteration", "repetition_index": index, "real_time": 2.0 + index}
        for index in range(3)
    ]
    median = row | {"name": "BM_copy/8_median", "run_type": "aggregate", "aggregate_name": "median"}
    failed = {"name": "BM_bad", "run_name": "BM_bad", "run_type": "iteration", "error_occurred": True,
              "error_message": "no device"}  # fmt: skip
    context = {"date": "2026-01-02T03:04:05+00:00", "host_name": "host", "num_cpus": 8, "mhz_per_cpu": 3000,
               "library_version": "v1.9.0", "caches": [{"type": "Data", "size": 32768}]}  # fmt: skip
    return _json(
        folder / "gb.json", {"context": context, "benchmarks": [*([] if aggregates else rows), median, failed]}
    )


def asv(folder):
    place = folder / "results" / "machine"
    place.mkdir(parents=True, exist_ok=True)
    units = {"time_a.Suite.time_one": {"unit": "seconds"}, "track_size": {"unit": "bytes"}, "version": 2}
    _json(folder / "results" / "benchmarks.json", units)
    return _json(place / "abc-env.json", {
        "commit_hash": "b" * 40, "env_name": "env", "date": 1_700_000_000_000, "python": "3.11", "version": 2,
        "params": {"machine": "machine", "cpu": "A CPU", "arch": "x86_64", "os": "Linux"},
        "requirements": {"numpy": "2.0", "scipy": None}, "env_vars": {}, "durations": {},
        "result_columns": ["result", "params", "version", "started_at", "duration", "stats_ci_99_a", "samples"],
        "results": {
            "time_a.Suite.time_one": [[1e-3, None, 3e-3, 4e-3], [["1", "2"], ["'x'", "'y'"]], "v1", 1, 2.0, None,
                                      [[1e-3, 1.1e-3], None, [3e-3], []]],
            "track_size": [[4096.0], []],
            "track_other": [[1.0], []],
            "peakmem_two": [[8e6], []],
        },
    })  # fmt: skip


def nvbench(folder, *, binary=True):
    times, clocks = np.array([1e-3, 1.1e-3, 0.9e-3], "<f4"), np.array([1.5e9, 1.6e9, 1.7e9], "<f4")
    (folder / "nv.json-bin").mkdir(exist_ok=True)
    times.tofile(folder / "nv.json-bin" / "0.bin")
    clocks.tofile(folder / "nv.json-bin" / "0-freqs.bin")
    summaries = [
        _summary("nv/cold/sample_size", "sample_size", value=("int64", "3")),
        _summary("nv/cold/time/gpu/mean", "duration", value=("float64", "0.001")),
        _summary("nv/cold/time/cpu/mean", "duration", value=("float64", "0.0012")),
        _summary("nv/batch/time/gpu/mean", "duration", value=("float64", "0.0009")),
    ]
    if binary:
        for hint, name in (("file/sample_times", "0.bin"), ("file/sample_freqs", "0-freqs.bin")):
            value = {"filename": ("string", f"nv.json-bin/{name}"), "size": ("int64", "3")}
            summaries.append(_summary(f"nv/json/bin:{hint}", hint, **value))
    states = [
        {"name": "Device=0 N=4", "device": 0, "axis_values": [{"name": "N", "type": "int64", "value": "4"}],
         "summaries": summaries, "is_skipped": False},
        {"name": "Device=1", "device": 1, "axis_values": None, "summaries": None, "is_skipped": True,
         "skip_reason": "too large"},
    ]  # fmt: skip
    devices = [{"id": number, "name": name, "sm_version": 900, "ecc_state": True} for number, name in enumerate("AB")]
    version = {"json": {"string": "1.0.0"}, "nvbench": {"string": "0.1.0", "git_sha": "c" * 40}}
    return _json(folder / "nv.json", {
        "meta": {"argv": ["bench"], "version": version}, "devices": devices,
        "benchmarks": [{"name": "copy", "index": 0, "axes": None, "states": states}],
    })  # fmt: skip


def onnxruntime(folder):
    args = {"op_name": "Gemm", "provider": "CUDAExecutionProvider", "input_type_shape": [{"float": [8, 16]}],
            "output_size": "320"}  # fmt: skip
    rows = [
        {"cat": "Session", "ph": "X", "name": "model_loading_uri", "ts": 1, "dur": 400, "pid": 1, "tid": 1, "args": {}}
    ]
    for run, dur in enumerate((900, 500, 510)):
        rows.append(
            {"cat": "Node", "ph": "X", "name": "/1/Gemm_kernel_time", "ts": run, "dur": dur - 100, "args": args}
        )
        rows.append({"cat": "Node", "ph": "X", "name": "tiny_kernel_time", "ts": run, "dur": run, "args": args})
        rows.append({"cat": "Session", "ph": "X", "name": "model_run", "ts": run, "dur": dur, "args": {}})
    return _json(folder / "ort.json", rows)


def trtexec(folder):
    rows = [
        {"startEnqMs": 0.1, "endEnqMs": 0.2, "startComputeMs": 0.3, "endComputeMs": 1.3, "h2dMs": 0.1,
         "computeMs": 1.0 + index / 10, "d2hMs": 0.0, "latencyMs": 1.2 + index / 10}
        for index in range(4)
    ]  # fmt: skip
    return _json(folder / "engine.json", rows)


def trtexec_profile(folder):
    layers = [{"name": name, "timeMs": 10.0, "averageMs": 0.1, "medianMs": 0.09, "percentage": 50.0} for name in "xx"]
    return _json(folder / "layers.json", [{"count": 100}, *layers])


def mlperf(folder, *, status="success"):
    def event(kind, key, time_ms, value=None, **metadata):
        row = {
            "namespace": "",
            "time_ms": time_ms,
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        return f"0: :::MLLOG {json.dumps(row)}\n"

    path = folder / "result_0.txt"
    path.write_text(
        "some other line\n" + event("INTERVAL_START", "init_start", 1000)
        + event("POINT_IN_TIME", "submission_benchmark", 1000, "bert")
        + event("POINT_IN_TIME", "submission_platform", 1000, "8xH200")
        + event("POINT_IN_TIME", "global_batch_size", 1000, 64) + event("POINT_IN_TIME", "seed", 1000, 7)
        + event("INTERVAL_END", "init_stop", 3000) + event("INTERVAL_START", "run_start", 3000)
        + event("POINT_IN_TIME", "tracked_stats", 4000, {"throughput": 900.0})
        + event("INTERVAL_END", "run_stop", 63500, None, status=status)
    )  # fmt: skip
    return path


def mlperf_inference(folder, *, result="VALID"):
    path = folder / "mlperf_log_summary.txt"
    path.write_text(
        "MLPerf Results Summary\nSUT name : a system\nScenario : SingleStream\nMode     : PerformanceOnly\n"
        f"Result is : {result}\n  Min queries satisfied : Yes\nQPS w/o loadgen overhead         : 326.25\n"
        "Mean latency (ns)               : 3065097\n50.00 percentile latency (ns)   : 3053370\n"
        "90.00 percentile latency (ns)   : 3070554\n\nNo warnings encountered during test.\n\n"
        "No errors encountered during test.\n"
    )
    return path


def asv_of_2014(folder):
    place = folder / "results" / "old"
    place.mkdir(parents=True, exist_ok=True)
    return _json(place / "old-py2.7.json", {
        "commit_hash": "e" * 40, "date": 1_400_000_000_000, "python": "2.7", "requirements": {}, "version": 1,
        "params": {"machine": "old", "cpu": "A CPU", "arch": "x86_64"}, "profiles": {},
        "results": {"time_one": 1e-3, "time_gone": None, "mem_two": 4096,
                    "time_three": {"params": [["1", "2"]], "result": [1e-3, None]}},
    })  # fmt: skip


def hyperfine(folder):
    row = {"command": "sleep 1", "mean": 1.2, "stddev": 0.1, "median": 1.1, "user": 0.01, "system": 0.02, "min": 1.0,
           "max": 1.5, "times": [1.0, 1.1, 1.5], "exit_codes": [0, 0, 1], "parameters": {"n": "1"}}  # fmt: skip
    return _json(folder / "hyperfine.json", {"results": [row, row | {"times": None, "exit_codes": None}]})


def serving_benchmark(folder, *, completed=9):
    path = folder / "serving.jsonl"
    line = {
        "backend": "vllm", "model_id": "a/model", "num_prompts": 10, "request_rate": 4.0, "max_concurrency": None,
        "duration": 3.0, "completed": completed, "request_throughput": 3.0, "output_throughput": 800.0,
        "mean_ttft_ms": 50.0, "median_ttft_ms": 45.0, "p99_ttft_ms": 120.0, "std_ttft_ms": 1.0, "median_tpot_ms": 9.8,
        "median_e2e_latency_ms": 500.0, "date": "20260102-030405",
    }  # fmt: skip
    detailed = line | {"request_rate": "inf", "ttfts": [0.04, 0.05, 0.0], "itls": [[0.01, 0.02], [], [0.03]]}
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in (line, detailed)))
    return path


def vllm_offline(folder):
    return _json(
        folder / "latency.json", {"avg_latency": 0.2, "latencies": [0.1, 0.2, 0.3], "percentiles": {"50": 0.2}}
    )


def aiperf(folder):
    return _json(folder / "profile_export_aiperf.json", {
        "request_throughput": {"unit": "requests/sec", "avg": 13.0}, "request_count": {"unit": "requests", "avg": 9.0},
        "time_to_first_token": {"unit": "ms", "avg": 60.0, "p50": 50.0, "p99": 90.0, "std": 1.0},
        "inter_token_latency": {"unit": "ns", "avg": 5e6, "p50": 4e6},
        "input_config": {"endpoint": {"model_names": ["a/model"]}, "loadgen": {"concurrency": 8}},
        "start_time": "2026-01-02T03:04:05.5",
        "telemetry_data": {"endpoints": {"x": {"gpus": {name: {"gpu_name": "A GPU"} for name in ("gpu_0", "gpu_1")}}}},
    })  # fmt: skip


def aiperf_requests(folder):
    path = folder / "profile_export.jsonl"
    metrics = {
        "time_to_first_token": {"value": 50.0, "unit": "ms"},
        "inter_chunk_latency": {"value": [4.0, 5.0], "unit": "ms"},
    }
    failed = {"metadata": {"x_request_id": "a"}, "metrics": {}, "error": {"code": 499, "type": "Cancelled"}}
    good = {"metadata": {"x_request_id": "b"}, "metrics": metrics, "error": None}
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in (good, good, failed)))
    return path


def bencher(folder):
    return _json(folder / "bmf.json", {
        "one": {"latency": {"value": 88.0, "lower_value": 87.42, "upper_value": 88.88}, "throughput": {"value": 5.55}},
        "two": {"accuracy": {"value": -0.25, "upper_value": 0.0}},
    })  # fmt: skip


ALL = (
    pytest_benchmark,
    google_benchmark,
    asv,
    asv_of_2014,
    nvbench,
    onnxruntime,
    trtexec,
    trtexec_profile,
    mlperf,
    mlperf_inference,
    hyperfine,
    serving_benchmark,
    vllm_offline,
    aiperf,
    aiperf_requests,
    bencher,
)


def importer_name(make):
    """The importer that reads a document."""
    return re.sub("_(profile|requests|of_2014)$", "", make.__name__)


def _summary(tag, hint, **values):
    data = [{"name": name, "type": kind, "value": value} for name, (kind, value) in values.items()]
    return {"tag": tag, "name": "", "description": "", "hint": hint, "data": data}


def _json(path, document):
    path.write_text(json.dumps(document))
    return path
