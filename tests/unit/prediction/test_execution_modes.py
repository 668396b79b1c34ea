"""Execution modes and opportunities: modes are ordered, gaps add up, and no change gains more than there is."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.core.answers.execution_time import MODES
from nearpeak.core.work.workload import Buffer, Call, Use, Workload
from nearpeak.errors import SpecError
from nearpeak.prediction.fused_calls import MOST_CALLS, fused_calls
from nearpeak.prediction.host_costs import eager_cost

SAME_WORK = ("graph", "fusion", "constants", "layout")
"""Opportunities that leave the work as it is, so that the bound of the step still holds."""
TARGETS = ("h100_sxm", "h200_sxm", "a100_sxm_80gb", "l4", "mi300x", "jetson_orin_nano")


def chain(ops, *, batch=1, hidden=1024, step="forward", skipped=0):
    """Return a step of products, pointwise functions and attention, each of which reads what the one before wrote."""
    calls, buffers = [], [Buffer(bytes=2 * batch * hidden, kind="input")]
    for op in ops:
        case = {
            "gemm": lambda: nearpeak.case("gemm", m=batch, n=hidden, k=hidden, dtype="bf16"),
            "relu": lambda: nearpeak.case("elementwise", elements=batch * hidden, function="relu", dtype="bf16"),
            "norm": lambda: nearpeak.case("rms_norm", rows=batch, hidden=hidden, dtype="bf16"),
            "attention": lambda: nearpeak.case(
                "attention", batch=batch, heads=8, q=1, kv=4096, dim=128, kv_heads=8, dtype="bf16"
            ),
        }[op]()
        size = 2 * batch * hidden
        reads = [Use(buffer=len(buffers) - 1, bytes=size, start_bytes=0, stop_bytes=size)]
        if op == "gemm":
            buffers.append(Buffer(bytes=2 * hidden * hidden, kind="weight"))
            reads.append(Use(buffer=len(buffers) - 1, bytes=2 * hidden**2, start_bytes=0, stop_bytes=2 * hidden**2))
        buffers.append(Buffer(bytes=size, kind="activation"))
        writes = (Use(buffer=len(buffers) - 1, bytes=size, start_bytes=0, stop_bytes=size),)
        calls.append(Call(case=case, operator=op, phase="forward", reads=tuple(reads), writes=writes))
    buffers[-1] = dataclasses.replace(buffers[-1], kind="output")
    origin = {"batch": str(batch), "inputs": f"pixel_values {batch}×3×8×8"}
    return Workload(
        name="chain", step=step, calls=tuple(calls), buffers=tuple(buffers), origin=origin,
        skipped={"view": skipped} if skipped else {},
    )  # fmt: skip


OPS = st.lists(st.sampled_from(["gemm", "relu", "norm", "attention"]), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(ops=OPS, batch=st.sampled_from([1, 8, 512]), target=st.sampled_from(TARGETS), mode=st.sampled_from([*MODES]))
def test_modes_are_ordered_gaps_add_up_and_opportunities_gain_no_more_than_there_is(ops, batch, target, mode):
    analysis = nearpeak.analyze(chain(ops, batch=batch, skipped=3), target, execution=mode)
    answer = analysis.targets[0]
    eager, graph, compiled = answer.executions
    assert eager.time_s >= graph.time_s >= compiled.time_s >= answer.bound_s
    assert eager.kernel_count == graph.kernel_count >= compiled.kernel_count >= 1
    for execution in answer.executions:
        assert execution.low_s <= execution.time_s <= execution.high_s
        assert answer.bound_s + sum(execution.gap_s.values()) == pytest.approx(execution.time_s, rel=1e-9)
    here = next(one for one in answer.executions if one.mode == mode)
    for one in answer.opportunities:
        assert one.before_s == here.time_s
        assert 0 <= one.after_s <= one.before_s
        assert one.gain_s == pytest.approx(one.before_s - one.after_s)
        assert one.action
        if one.kind in SAME_WORK:
            assert one.gain_s <= here.time_s - answer.bound_s + 1e-15
        assert mode == "eager" or one.kind != "graph"
        assert mode != "compiled" or one.kind != "fusion"


def test_an_eager_step_of_short_kernels_takes_what_its_host_takes_and_a_graph_hides_it():
    eager, graph, _ = nearpeak.analyze(chain(["relu"] * 100), "h100_sxm").targets[0].executions
    host = eager_cost(call_count=100, kernel_count=100, view_count=0)
    assert (eager.time_s, eager.low_s, eager.high_s) == (host.usual_s, host.low_s, host.high_s)
    assert eager.gap_s["host"] == pytest.approx(eager.time_s - graph.time_s)
    assert "host" not in graph.gap_s


def test_an_eager_step_of_long_kernels_takes_what_its_device_takes():
    eager, graph, _ = nearpeak.analyze(chain(["gemm"] * 4, batch=8192, hidden=8192), "h100_sxm").targets[0].executions
    assert eager.time_s == graph.time_s
    assert "host" not in eager.gap_s


def test_views_cost_the_host_time_though_they_launch_nothing():
    plain, viewed = (
        nearpeak.analyze(chain(["relu"] * 100, skipped=count), "h100_sxm").targets[0].executions[0].time_s
        for count in (0, 100)
    )
    assert viewed > plain


def test_neighbours_between_library_kernels_are_one_kernel_and_move_less():
    workload = chain(["relu", "norm", "gemm", "relu", "relu", "attention", "relu"])
    groups = fused_calls(workload)
    assert [group.positions for group in groups] == [(0, 1), (3, 4)]
    assert groups[0].traffic_ratio == pytest.approx(0.5)  # two of four transfers stay on chip


def test_what_others_read_is_written_and_long_chains_are_cut():
    longest = fused_calls(chain(["relu"] * 100))
    assert max(len(group.positions) for group in longest) <= MOST_CALLS
    assert sum(len(group.positions) for group in longest) == 100


def test_a_cache_in_eight_bits_is_advised_where_attention_takes_the_time_and_only_in_decoding():
    ops = ["gemm", *["attention"] * 4]
    decode = nearpeak.analyze(chain(ops, batch=64, step="decode"), "h100_sxm", execution="graph").targets[0]
    (cache,) = [one for one in decode.opportunities if one.kind == "kv_cache"]
    assert cache.after_s < 0.8 * cache.before_s
    forward = nearpeak.analyze(chain(ops, batch=64), "h100_sxm", execution="graph").targets[0]
    assert all(one.kind != "kv_cache" for one in forward.opportunities)


def test_narrower_weights_gain_nothing_where_the_host_sets_the_pace():
    ops = ["gemm"] * 50
    eager = nearpeak.analyze(chain(ops, hidden=2048), "h100_sxm", execution="eager").targets[0]
    graph = nearpeak.analyze(chain(ops, hidden=2048), "h100_sxm", execution="graph").targets[0]
    assert all(one.kind != "weights" for one in eager.opportunities)
    assert any(one.kind == "weights" for one in graph.opportunities)


def test_the_mode_of_a_source_is_the_one_in_which_it_runs():
    workload = chain(["relu"])
    assert nearpeak.analyze(workload, "h100_sxm").execution == "eager"
    onnx = dataclasses.replace(workload, origin={**workload.origin, "kind": "onnx"})
    assert nearpeak.analyze(onnx, "h100_sxm").execution == "graph"
    assert nearpeak.analyze(dataclasses.replace(workload, groups=((0,),)), "h100_sxm").execution == "compiled"


def test_lists_of_cases_have_no_modes_and_a_mode_asked_for_is_refused():
    cases = dataclasses.replace(chain(["relu"]), step="sweep")
    analysis = nearpeak.analyze(cases, "h100_sxm")
    assert analysis.execution == ""
    assert analysis.targets[0].executions == ()
    with pytest.raises(SpecError, match="is a list of cases, which no one step submits"):
        nearpeak.analyze(cases, "h100_sxm", execution="graph")
    with pytest.raises(SpecError, match="--execution 'fast': is not one of eager, graph, compiled"):
        nearpeak.analyze(chain(["relu"]), "h100_sxm", execution="fast")
