"""Where the host's time goes: kinds that add up to the nanosecond, and what each costs the step."""

import json
import random

import numpy as np
import pytest
from benchmarks import _planted_traces as planted
from benchmarks import _timelines
from tests.samples import SAMPLES, needs_samples

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.trace import EventKind, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.reports.document.html import to_html
from nearpeak.reports.document.markdown import to_markdown
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.trace.steps_report import HOST_TITLES, document_of, to_json
from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import report_of
from nearpeak.traces.reading.table_rows import EventRows

HOST = {"process": 1, "thread": 1}


def texts_of(report, width=80):
    """A report on every medium."""
    document = document_of(report)
    return [to_terminal(document, width=width), to_markdown(document), to_html(document)]


def trace_of(*events):
    """A trace of (kind, name, start, end, correlation)."""
    rows = EventRows()
    for kind, name, start, end, number in events:
        place = {"device": 0, "stream": 7} if kind == EventKind.KERNEL else HOST
        whole = {
            key: np.array([value]) for key, value in (place | {"correlation": number}).items() if value is not None
        }
        rows.add(kind, [name], np.array([start]), np.array([end]), **whole)
    return rows.trace(TraceHeader(format="made"))


def host(name, start, end, kind=EventKind.HOST_OP):
    return kind, name, start, end, None


def launched(at, number, start, length=2):
    call = (EventKind.HOST_API, "cudaLaunchKernel", at, at + 4, number)
    return call, (EventKind.KERNEL, f"k{number}", start, start + length, number)


def step(length):
    """Four launches: alone, in a product, in a tensor that is made, in a backward pass; kernels of one length."""
    return trace_of(
        *launched(0, 1, 8, length), host("aten::mm", 10, 30), *launched(20, 2, 26 + length, length),
        host("aten::zeros", 40, 60), host("aten::empty", 42, 50), *launched(52, 3, 58 + 2 * length, length),
        host("nn.Module: Linear_3", 65, 95, EventKind.HOST_FRAME),
        host("autograd::engine::evaluate_function: MmBackward0", 70, 90), host("aten::mm", 75, 88),
        *launched(80, 4, 86 + 3 * length, length),
    )  # fmt: skip


def kinds(executed):
    return {one.name: one.time_ns for one in executed.host if one.by == "kind"}


def test_each_nanosecond_of_the_host_belongs_to_the_innermost_event_around_it():
    found = kinds(executed_of(step(2)))
    # The window begins with the first kernel, at 8 ns. Of 8..20 nothing has 2 and the product 10; of 24..52 the product
    # 6, nothing 10, what makes the tensor 12 (the empty one inside included); of 56..80 the tensor 4, nothing 5, the
    # frame of a module 5, the backward pass 5, its product 5.
    assert found == {"runtime": 16, "operators": 10 + 6 + 5, "creation": 12 + 4, "autograd": 5, "outside": 2 + 10 + 10}


def test_a_step_that_waits_for_its_device_gains_nothing_from_a_faster_host():
    quick, slow = executed_of(step(2)), executed_of(step(5_000))
    assert any(one.gain_ns > 0 for one in quick.host)
    assert all(one.gain_ns <= 20 for one in slow.host)
    assert kinds(slow)["operators"] == kinds(quick)["operators"]


def test_calls_are_put_down_to_their_operators_and_kinds_of_modules():
    found = {(one.by, one.name): (one.call_count, one.time_ns) for one in executed_of(step(2)).host}
    assert found["operator", "aten::mm"] == (2, 12 + 4 + 24 + 4)
    assert found["operator", "aten::zeros"] == (1, 28 + 4)
    assert found["module", "nn.Module: Linear"] == (1, 24 + 4)


def test_kinds_add_up_to_the_time_of_the_host_on_random_traces():
    looked_at = 0
    for seed in range(150):
        try:
            executed = executed_of(_timelines.trace_of(_timelines.drawn(random.Random(seed))))
        except SpecError:
            continue  # no device events, or none with a length
        if all(item.call == NOTHING for item in executed.items):
            assert executed.host == ()
            continue
        looked_at += 1
        calls = sum(item.call_ns for item in executed.items)
        whole = sum(kinds(executed).values())
        assert calls <= whole <= calls + sum(item.before_ns for item in executed.items)
        assert all(one.time_ns > 0 or one.by != "kind" for one in executed.host)
        assert all(one.gain_ns >= 0 for one in executed.host)
    assert looked_at > 50


@pytest.mark.parametrize(("make", "name"), [(planted.data_loading, "loading"), (planted.tensor_creation, "creation")])
@pytest.mark.parametrize("seed", [3, 4])
def test_a_planted_kind_costs_what_the_same_program_without_it_saves(make, name, seed, tmp_path):
    program = make(seed)
    executed = executed_of(read_trace(planted.write(program, tmp_path / "trace.json")))
    found = next(one for one in executed.host if one.name == name)
    truth_ns = planted.step_ns(program) - planted.step_ns(planted.cured(program))
    assert found.gain_ns / executed.step_count == pytest.approx(truth_ns, rel=0.25)


def test_reports_show_the_host_where_the_step_waits_for_it_and_only_there(tmp_path):
    for make, shown in ((planted.data_loading, True), (planted.cast_storm, False)):
        report = report_of(executed_of(read_trace(planted.write(make(3), tmp_path / "trace.json"))))
        texts = texts_of(report)
        assert [HOST_TITLES["kind"] in text for text in texts] == [shown] * 3
        assert max(map(len, texts[0].splitlines())) <= 80
        assert json.loads(to_json(report))["executed"]["host"][0]["by"] == "kind"


@needs_samples
@pytest.mark.parametrize(("name", "bound"), [("b200_eager", "outside"), ("inference_vllm_decode_full", "")])
def test_an_eager_run_waits_for_its_host_and_a_graph_does_not(name, bound):
    executed = executed_of(read_trace(next((SAMPLES / "tracelens").glob(f"{name}*"))))
    costly = [one for one in executed.host if one.by == "kind" and one.gain_ns > 0.2 * executed.window_ns]
    assert [one.name for one in costly[:1]] == ([bound] if bound else [])


def made_in_steps(*sizes):
    """Steps of 1,000 ns that make one tensor each, of these sizes, before a launch."""
    rows = EventRows()
    for number, size in enumerate(sizes):
        at = 1000 * number
        span = np.array([at]), np.array([at + 990])
        rows.add(EventKind.HOST_RANGE, [f"ProfilerStep#{number}"], *span, process=np.array([1]), thread=np.array([1]))
        rows.add(
            EventKind.HOST_OP, ["aten::zeros"], np.array([at + 100]), np.array([at + 700]),
            texts={"shapes": ["[[], []]"], "concrete": [f'["[{size}]", "6"]']}, process=np.array([1]),
            thread=np.array([1]),
        )  # fmt: skip
        for kind, name, start, end, number_ in launched(at + 800, number + 1, at + 810, 5):
            place = {"device": 0, "stream": 7} if kind == EventKind.KERNEL else HOST
            given = {**place, "correlation": number_}
            columns = {key: np.array([value]) for key, value in given.items()}
            rows.add(kind, [name], np.array([start]), np.array([end]), **columns)
    return rows.trace(TraceHeader(format="made"))


@pytest.mark.parametrize(("sizes", "found"), [((8, 8, 8, 8), True), ((8, 9, 10, 11), False)])
def test_tensors_are_made_anew_only_if_every_step_asks_for_the_same(sizes, found):
    executed = executed_of(made_in_steps(*sizes))
    assert executed.step_count > 1
    said_of = [one for one in report_of(executed).findings if one.id == "host.constant_rebuild"]
    assert bool(said_of) is found
    if found:
        assert "the same in every step" in said_of[0].claim
        assert {one.state for one in said_of[0].counter if "shapes" in one.what} == {"not found"}
