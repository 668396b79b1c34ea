"""Two streams that never run side by side: each reason is told from what the trace shows of it."""

import numpy as np
import pytest

from nearpeak.core.traces.trace import CopyKind, EventKind, Memory, TraceDevice, TraceHeader
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import report_of
from nearpeak.traces.reading.table_rows import EventRows

ID = "overlap.missed"
STEP_NS = 500_000
LENGTHS_NS = {"short": 2_000, "alloc": 30_000}
"""Allocations count as waits from 20 us on."""
COUNTS = {"short": 60}
"""Kernels of a step, so that each stream carries a tenth of it."""


class Recorder:
    """Writes calls and work of one host thread and one device."""

    def __init__(self):
        """Begin without events."""
        self.rows, self.number = EventRows(), 0

    def span(self, kind, name, start, end, rare=None, **given):
        columns = {key: np.array([value]) for key, value in given.items()}
        rare = {key: np.array([value]) for key, value in (rare or {}).items()}
        self.rows.add(kind, [name], np.array([start]), np.array([end]), rare=rare, **columns)

    def call(self, name, start, end):
        self.number += 1
        self.span(EventKind.HOST_API, name, start, end, process=1, thread=1, correlation=self.number)

    def work(self, start, end, stream, grid=8):
        rare = {"grid": (grid, 1, 1)}
        self.span(
            EventKind.KERNEL, "scan", start, end, rare, device=0, stream=stream, correlation=self.number
        )  # fmt: skip

    def copy(self, start, end):
        rare = {"copy_kind": int(CopyKind.H2D), "source_memory": int(Memory.PAGEABLE), "bytes": 4096}
        self.span(EventKind.MEMCPY, "copy", start, end, rare, device=0, stream=7, correlation=self.number)


def recorded(reason, sm_count=100):
    """Three steps of pairs of kernels on two streams, one after the other for one reason."""
    rec = Recorder()
    for step in range(3):
        base = at = STEP_NS * (step + 1)
        rec.span(EventKind.HOST_RANGE, f"ProfilerStep#{step}", base, base + STEP_NS - 10, process=1, thread=1)
        if reason == "late":
            bursts(rec, base)
            continue
        for pair in range(COUNTS.get(reason, 12)):
            rec.call("cudaLaunchKernel", at, at + 1_000)
            end = at + 2_000 + LENGTHS_NS.get(reason, 10_000)
            rec.work(at + 2_000, end, 20 + pair % 2, grid=4096 if reason == "fills" else 8)
            if reason == "alloc":
                rec.call("cudaMalloc", at + 1_000, at := end + 500)
            elif reason == "sync":
                rec.call("cudaDeviceSynchronize", at + 1_000, at := end + 500)
            elif reason == "pageable":
                rec.call("cudaMemcpyAsync", at + 1_000, end + 600)
                rec.copy(end, end + 400)
                at = end + 700
            else:
                at = end + (3_000 if reason == "short" else 500)
    header = TraceHeader(format="made", devices=(TraceDevice(index=0, sm_count=sm_count),))
    return report_of(executed_of(rec.rows.trace(header)))


def bursts(rec, at):
    """Six launches to one stream, and six to the other when the work of the first has ended."""
    for stream in (20, 21):
        for place in range(6):
            rec.call("cudaLaunchKernel", at + 1_000 * place, at + 1_000 * place + 900)
            rec.work(at + 2_000 + 10_000 * place, at + 12_000 + 10_000 * place, stream)
        at += 63_000


def told(report):
    findings = [one.claim for one in report.findings if one.id == ID]
    return findings + [one.reason for one in report.abstentions if one.id == ID]


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("sync", "the host waits for one before it launches the other"), ("alloc", "allocations of device memory wait"),
        ("pageable", "copies of pageable memory keep the host"), ("fills", "kernels that fill the device alone"),
        ("late", "launches the other one only when the first has ended"), ("short", "end before the host has launched"),
    ],
)  # fmt: skip
def test_a_planted_reason_is_the_one_that_is_told(reason, said):
    found = told(recorded(reason))
    assert len(found) == 1
    assert "2 streams compute" in found[0]
    assert said in found[0]


def test_without_the_number_of_multiprocessors_nothing_is_concluded():
    report = recorded("sync", sm_count=None)
    assert "the number of multiprocessors is unknown" in told(report)[0]
    assert ID not in {one.id for one in report.findings}
