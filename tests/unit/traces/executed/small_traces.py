"""Small traces of the PyTorch profiler, made event by event, whose right answers can be counted by hand."""

import json

H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "totalGlobalMem": 85_000_000_000}
BASE_US = 1_700_000_000_000_000
COMM = "ncclDevKernel_AllReduce_Sum_bf16"


def complete(cat, name, at_us, dur_us, pid=1, tid=1, **args):
    """An event with a length; times from the begin of the trace."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": BASE_US + at_us, "dur": dur_us,
            "args": args}  # fmt: skip


def mark(number, at_us, dur_us):
    """The mark of a step."""
    return complete("user_annotation", f"ProfilerStep#{number}", at_us, dur_us)


def launched(name, at_us, dur_us, number, device=0, stream=7, cat="kernel", call_us=10):
    """A kernel and the call that launched it `call_us` earlier."""
    call = complete("cuda_runtime", "cudaLaunchKernel", at_us - call_us, 4, correlation=number)
    return [call, complete(cat, name, at_us, dur_us, 0, stream, device=device, stream=stream, correlation=number)]


def steps_of_kernels(step_count, kernel_count, kernel_us, period_us, devices=(0,)):
    """Marked steps of kernels that follow each other, on each device as many."""
    events, number = [], 1
    for step in range(step_count):
        begin = step * kernel_count * period_us
        events.append(mark(step, begin, kernel_count * period_us - 1))
        for kernel in range(kernel_count):
            for device in devices:
                events += launched("gemm", begin + kernel * period_us + 12, kernel_us[device], number, device)
                number += 1
    return events


def written(path, events, devices=(H100,)):
    """Write a trace; return its path."""
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": list(devices), "traceEvents": events}))
    return path
