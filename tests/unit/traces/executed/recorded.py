"""Traces of real steps of PyTorch: what its profiler records on a CPU, with kernels as a GPU would have run them."""

import json

from torch.profiler import ProfilerActivity, profile, schedule

_VIEWS = (
    "t transpose as_strided expand view reshape detach empty empty_strided empty_like resolve_conj to linear"
    " layer_norm resize_ permute select _reshape_alias unsqueeze squeeze flatten conv2d matmul"
)
VIEWS = frozenset(f"aten::{name}" for name in _VIEWS.split()) | {"detach"}
"""Operators that launch nothing themselves."""
_WHOLE = "addmm mm bmm convolution sum mean native_layer_norm_backward"
WHOLE = frozenset(f"aten::{name}" for name in _WHOLE.split())
"""Operators that are one kernel on a GPU, whatever they call on a CPU."""
DEVICE = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_000_000_000,
          "computeMajor": 9, "computeMinor": 0}  # fmt: skip


def profiled(step, path, count=4):
    """Write what the profiler records of `count` steps, the first of which are not recorded."""
    wanted = schedule(wait=1, warmup=1, active=count)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=wanted) as recorded:
        for _ in range(count + 2):
            step()
            recorded.step()
    recorded.export_chrome_trace(str(path))
    return json.loads(path.read_text(encoding="utf-8"))


def with_kernels(whole, path, kernel_of):
    """Write the trace with a kernel for each innermost operator; `kernel_of` gives its name and length in us.

    Host times are spread out by 20 so that kernels of microseconds have room; calls take 1 us.
    """
    events = whole["traceEvents"]
    begin = min(event["ts"] for event in events if "ts" in event)
    for event in events:
        if "ts" in event:
            event["ts"] = (event["ts"] - begin) * 20 + 1000
        if "dur" in event:
            event["dur"] *= 20
    added, number, free_us, until = [], 1, 0.0, 0.0
    for event in sorted((one for one in events if one.get("cat") == "cpu_op"), key=lambda one: one["ts"]):
        inside, whole_one = event["ts"] < until, event["name"] in WHOLE
        if event["name"] in VIEWS or inside or not (whole_one or not _has_inner(event, events)):
            continue
        until = event["ts"] + event["dur"] if whole_one else until
        found = kernel_of(event)
        name, length_us = found
        place = {"pid": event["pid"], "tid": event["tid"], "ts": event["ts"], "dur": min(1.0, event["dur"])}
        added.append({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **place,
                      "args": {"correlation": number, "External id": number}})  # fmt: skip
        start = max(free_us, event["ts"] + 5)
        added.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": length_us,
                      "args": {"correlation": number, "device": 0, "stream": 7, "grid": [1, 1, 1],
                               "block": [128, 1, 1]}})  # fmt: skip
        free_us, number = start + length_us, number + 1
    path.write_text(json.dumps({**whole, "deviceProperties": [DEVICE], "traceEvents": events + added}))
    return path


def _has_inner(event, events):
    """Say whether an operator calls another that is no view."""
    begin, end = event["ts"], event["ts"] + event["dur"]
    return any(
        one is not event and one.get("cat") == "cpu_op" and one["name"] not in VIEWS and one["tid"] == event["tid"]
        and begin <= one["ts"] and one["ts"] + one["dur"] <= end
        for one in events
    )  # fmt: skip
