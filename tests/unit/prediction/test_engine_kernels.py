"""Times and powers of an engine's kernels on boards: monotone in clocks, never below bounds, used by analyses."""

from dataclasses import replace

import pytest

from nearpeak.api.questions import analyze, case
from nearpeak.core.answers.bound import Policy
from nearpeak.core.edge.scoped_power import PowerScope
from nearpeak.core.work.engine_choice import engine_of
from nearpeak.core.work.workload import Call, Workload
from nearpeak.frontends.inference_engine.engine_lowering import lowered
from nearpeak.prediction.engine.engine_kernels import DEPTHWISE, GROUPED, OTHER, PLAIN, engine_kernels
from nearpeak.prediction.engine.engine_power import engine_power
from nearpeak.prediction.engine.engine_prediction import engine_prediction
from nearpeak.prediction.engine.engine_time import engine_time_s
from nearpeak.prediction.host_costs import eager_cost, host_ratio
from nearpeak.targets import target_of
from nearpeak.targets.power_modes import board_modes, boards_with_modes


def conv(**axes):
    usual = {"batch": 1, "in_channels": 64, "out_channels": 64, "h": 56, "w": 56, "kh": 3, "kw": 3, "ph": 1, "pw": 1}
    return case("conv", **{**usual, "dtype": "int8", **axes})


STEP = engine_kernels({conv(): 3, case("gemm", m=1, n=1000, k=512, dtype="int8"): 1})


def test_kinds_and_channels_as_they_lie_in_memory():
    cases = [
        conv(),
        conv(groups=64),
        conv(groups=16),
        case("softmax", rows=8, columns=8, dtype="fp16"),
        conv(in_channels=3),
    ]
    columns = engine_kernels(dict.fromkeys(cases, 1)).columns
    assert columns["kind"].tolist() == [PLAIN, DEPTHWISE, GROUPED, OTHER, PLAIN]
    assert columns["k"].tolist()[:1] == [64.0]
    assert columns["k"][4] == 4.0  # few channels have kernels of their own
    assert columns["groups"][2] == 2.0  # eight groups of four channels fill the 32 that lie side by side


@pytest.mark.parametrize("board", boards_with_modes())
def test_slower_modes_are_never_faster_nor_draw_more(board):
    modes = board_modes(board)
    times = {mode.name: engine_time_s(STEP, target_of(mode.target)) for mode in modes}
    powers = {mode.name: engine_power(STEP, target_of(mode.target), PowerScope.WALL).power_w for mode in modes}
    for one in modes:
        for other in modes:
            if one.bandwidth_bytes_per_s is None or other.bandwidth_bytes_per_s is None:
                continue
            is_below = (
                one.clock_hz <= other.clock_hz and one.sm_count <= other.sm_count
                and one.bandwidth_bytes_per_s <= other.bandwidth_bytes_per_s
            )  # fmt: skip
            if is_below:
                assert times[one.name] >= times[other.name] * (1 - 1e-12)
                assert powers[one.name] <= powers[other.name] * (1 + 1e-2)


def test_all_clocks_doubled_halve_a_graph_exactly():
    board = target_of("jetson_orin_nano:15W")
    fast = replace(
        board, clock_hz=2 * board.clock_hz,
        dram=replace(board.dram, bandwidth_bytes_per_s=2 * board.dram.bandwidth_bytes_per_s),
    )  # fmt: skip
    assert engine_time_s(STEP, fast) == pytest.approx(engine_time_s(STEP, board) / 2, rel=1e-12)
    assert engine_time_s(STEP, board, is_graph=False) > engine_time_s(STEP, board)


@pytest.mark.parametrize("dtype", ["int8", "fp16", "fp32"])
def test_a_kernel_is_never_predicted_below_its_bound(dtype):
    for axes in ({}, {"h": 7, "w": 7, "in_channels": 2048}, {"groups": 64}, {"kh": 1, "kw": 1, "ph": 0, "pw": 0}):
        found = engine_prediction(conv(**axes, dtype=dtype), target_of("jetson_agx_orin"))
        assert found.bound_s <= found.low_s <= found.time_s <= found.high_s
        assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s)


def test_analyses_of_lowered_steps_use_the_engine_on_boards_and_kernel_models_elsewhere():
    calls = tuple(Call(case=one, operator="conv", phase="forward") for one in (conv(dtype="fp16"),) * 3)
    step = lowered(Workload(name="net", step="forward", calls=calls), engine_of("tensorrt"))
    board = target_of("jetson_orin_nano")
    answer = analyze(step, [board]).targets[0]
    wanted = engine_time_s(engine_kernels(step.case_counts()), board)
    assert answer.prediction.time_s == pytest.approx(wanted, rel=1e-6)
    server = analyze(step, ["h100_sxm"]).targets[0]
    assert server.prediction is not None
    assert analyze(step, [board]).execution == "graph"


def test_a_policy_reaches_prediction_as_well_as_bound():
    calls = (Call(case=case("gemm", m=2048, n=2048, k=2048, dtype="fp32"), operator="mm", phase="forward"),)
    step = Workload(name="net", step="forward", calls=calls)
    strict, rounded = (analyze(step, ["jetson_agx_orin"], Policy(dtype=name)).targets[0] for name in ("strict", "tf32"))
    assert rounded.bound_s < strict.bound_s
    assert rounded.prediction.time_s < strict.prediction.time_s / 1.5


def test_hosts_of_boards_take_longer_for_a_call():
    server, board = (eager_cost(17, 17, 0, target_of(name)) for name in ("h100_sxm", "jetson_orin_nano"))
    assert board.usual_s == pytest.approx(server.usual_s * host_ratio(target_of("jetson_orin_nano")))
    assert 0.5e-3 < board.usual_s < 1.26e-3  # the fastest published run of 17 calls
