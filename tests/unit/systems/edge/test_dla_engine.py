"""Accelerators of boards: documented rates by mode, floors, what they lack, and rigs and plans that use them."""

import json

import pytest
from typer.testing import CliRunner

from nearpeak.api.edge.edge_plan import plan_edge, with_accelerators
from nearpeak.api.questions import capture
from nearpeak.cli import application
from nearpeak.core.edge.scoped_power import PowerScope
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError
from nearpeak.frontends.huggingface.step_library import library_step
from nearpeak.ops import case, work_of
from nearpeak.reports.systems import edge_plan_report as report
from nearpeak.systems.edge.dla_engine import MEMORY_RATIO, dla_modes, dla_time, dla_unit
from nearpeak.systems.edge.dla_layers import accelerator_kernels, refusal_of
from nearpeak.targets import target_of
from nearpeak.targets.power_modes import board_modes

BOARD = "jetson_agx_orin"
CONV = case("conv", batch=1, in_channels=256, out_channels=256, h=80, w=80, kh=3, kw=3, ph=1, pw=1, dtype="int8")


def step_of(*cases):
    return Workload(
        name="net", step="forward", calls=tuple(Call(case=one, operator=one.op, phase="forward") for one in cases)
    )


def test_rates_of_modes_follow_their_clocks_and_name_existing_modes():
    # 1600, 1369.6 and 614.4 MHz of nvpmodel_p3701_0000.conf; 16,384 operations a clock and accelerator
    for mode, clock_hz in (("", 1.6e9), (":30W", 1.3696e9), (":15W", 614.4e6)):
        assert dla_unit(BOARD + mode).op_per_s == pytest.approx(16_384 * clock_hz, rel=0.02)
    assert dla_unit(f"{BOARD}:30W@5") == dla_unit(f"{BOARD}:30W")
    for board in (BOARD, "jetson_orin_nx", "jetson_agx_xavier"):
        assert set(dla_modes(board)) <= {mode.name for mode in board_modes(board)}


@pytest.mark.parametrize(("target", "message"), [
    ("jetson_orin_nano", "no document at hand states a rate of its DLA, or it has none"),
    ("jetson_orin_nx:10W", "no document states the rate of its DLA in mode 10W; there are those of MAXN, 25W, 15W"),
    ("h100_sxm", "there are rates of jetson_agx_orin"),
])  # fmt: skip
def test_a_mode_without_a_document_is_refused(target, message):
    with pytest.raises(NotModelledError, match=message):
        dla_time(step_of(CONV), target_of(target))


def test_products_come_at_the_documented_rate_and_bytes_at_a_share_of_the_memory():
    target, work = target_of(BOARD), work_of(CONV)
    found = dla_time(step_of(CONV, CONV), target)
    product_s = 2 * work.flop["matrix.int8"] / 26.25e12
    moved_s = 2 * (work.read_bytes + work.write_bytes) / 204.8e9
    assert found.floor_s == pytest.approx(max(product_s, moved_s))
    assert found.time_s == pytest.approx(product_s + moved_s / MEMORY_RATIO)
    assert found.floor_s <= found.low_s <= found.time_s <= found.high_s


def conv(batch, inputs, outputs, size, kernel, stride):
    sides = dict.fromkeys("hw", size) | {f"k{name}": kernel for name in "hw"} | {f"s{name}": stride for name in "hw"}
    edges = {f"p{name}{end}": kernel // 2 for name in "hw" for end in ("", "_end")}
    return case("conv", batch=batch, in_channels=inputs, out_channels=outputs, dtype="int8", **sides, **edges)


def resnet50(batch):
    calls, size, width = [conv(batch, 3, 64, 224, 7, 2)], 56, 64
    for count, inner, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for place in range(count):
            stride = 1 if place else first
            calls += [conv(batch, width, inner, size, 1, 1), conv(batch, inner, inner, size, 3, stride)]
            calls += [] if place else [conv(batch, width, 4 * inner, size, 1, stride)]
            size, width = size // stride, 4 * inner
            calls.append(conv(batch, inner, width, size, 1, 1))
    return step_of(*calls)


@pytest.mark.parametrize(("mode", "images_per_s"), [("", 2037), (":50W", 1948), (":30W", 1928), (":15W", 1072)])
def test_two_accelerators_run_resnet_50_as_fast_as_nvidia_measured(mode, images_per_s):
    # NVIDIA/Deep-Learning-Accelerator-SW, README, "DLA Dense performance": batch 2, int8, both accelerators together
    found, measured_s = dla_time(resnet50(2), target_of(BOARD + mode)), 2 * 2 / images_per_s
    assert found.floor_s < measured_s
    assert found.time_s == pytest.approx(measured_s, rel=0.1)


def test_formats_become_int8_and_absent_layers_are_refused():
    def net(dtype):
        return step_of(case("conv", batch=1, in_channels=8, out_channels=8, h=8, w=8, kh=3, kw=3, dtype=dtype))

    assert dla_time(net("fp16"), target_of(BOARD)) == dla_time(net("int8"), target_of(BOARD))
    with pytest.raises(NotModelledError, match="products in fp8_e4m3"):
        dla_time(step_of(case("gemm", m=8, n=8, k=8, dtype="fp8_e4m3")), target_of(BOARD))
    norm = case("layer_norm", rows=8, hidden=8, dtype="fp16")
    with pytest.raises(NotModelledError, match="a DLA does not run layer_norm; it of 2 kernels would fall back to the"):
        dla_time(step_of(CONV, norm), target_of(BOARD))


@pytest.mark.parametrize(("op", "axes", "words"), [
    ("elementwise", {"elements": 64, "function": "hardswish"}, "hardswish"),
    ("reduce", {"outputs": 8, "reduced": 49, "function": "mean"}, "mean (reduce; a mean over a map runs as"),
    ("adaptive_avg_pool", {"batch": 1, "channels": 8, "h": 14, "w": 14, "ow": 1}, "a pooling of 14 × 14 (at"),
    ("avg_pool", {"batch": 1, "channels": 8, "h": 9, "w": 9, "kh": 9, "kw": 9}, "a pooling of 9 × 9"),
    ("conv", {"batch": 1, "in_channels": 8, "out_channels": 8, "h": 64, "w": 64, "kh": 33, "kw": 33},
     "a kernel of 33 × 33"),
    ("elementwise", {"elements": 64, "function": "relu"}, ""),
    ("adaptive_avg_pool", {"batch": 1, "channels": 8, "h": 7, "w": 7, "ow": 1}, ""),
])  # fmt: skip
def test_limits_of_layers_are_those_of_the_document(op, axes, words):
    reason = refusal_of(step_of(case(op, dtype="int8", **axes)).calls[0])
    assert reason.startswith(words)
    assert bool(reason) == bool(words)


def test_a_named_network_runs_as_fast_as_nvidia_measured():
    # the same measurement: its mean over the last map is prepared as AveragePool there, and pools here
    step = library_step("resnet-50", CaptureOptions(batch=2))
    kernels = accelerator_kernels(step)
    pools = [call.case for call in kernels.calls if call.case.op == "adaptive_avg_pool"]
    assert [dict(pool.axes)["h"] for pool in pools] == [7]
    assert not any(call.case.op == "reduce" for call in kernels.calls)
    assert dla_time(step, target_of(BOARD)).time_s == pytest.approx(2 * 2 / 2037, rel=0.1)


@pytest.mark.parametrize("name", ["resnet-18", "resnet-101", "mobilenet-v2"])
def test_named_networks_have_a_time(name):
    times = [dla_time(library_step(name, CaptureOptions(batch=1)), target_of(f"{BOARD}{mode}")).time_s
             for mode in ("", ":30W", ":15W")]  # fmt: skip
    assert 0 < times[0] < times[1] < times[2] < 0.1


def test_a_network_with_squeezes_over_wide_maps_says_where_it_falls_back():
    with pytest.raises(NotModelledError) as refused:
        dla_time(library_step("efficientnet-b0", CaptureOptions(batch=1)), target_of(BOARD))
    message = str(refused.value)
    assert "does not run a pooling of 112 × 112 (at most 8 × 8) at " in message
    assert "would fall back to the GPU" in message
    assert "\n" not in message


def test_captured_modules_of_other_families_have_a_time():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.path = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1))

        def forward(self, x):
            return torch.cat([x, self.path(x)], 1)

    vgg = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d((7, 7)),
                        nn.Flatten(), nn.Linear(8 * 49, 10), nn.ReLU(), nn.Dropout(), nn.Linear(10, 10))  # fmt: skip
    dense = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Dense(), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1),
                          nn.Flatten(), nn.Linear(12, 10))  # fmt: skip
    for net in (vgg, dense):
        step = capture(net.eval(), inputs=(torch.zeros(1, 3, 14, 14),))
        assert dla_time(step, target_of(BOARD)).time_s > 0


def test_a_plan_of_modes_has_the_time_on_one_accelerator():
    step = step_of(CONV)
    planned = with_accelerators(plan_edge(step, BOARD, PowerScope.WALL), step)
    times = {row.mode.name: row.dla_s.value for row in planned.rows}
    assert times["full"] < times["50W"] < times["30W"] < times["15W"]
    document = report.document_of(planned)
    assert any("GPU and 2 DLAs side by side" in str(block) for block in document.blocks)
    with pytest.raises(NotModelledError, match="jetson_orin_nano: no document"):
        with_accelerators(plan_edge(step, "jetson_orin_nano", PowerScope.WALL), step)


def test_a_plan_without_a_time_on_an_accelerator_keeps_its_modes_and_says_why():
    step = step_of(CONV, case("layer_norm", rows=8, hidden=8, dtype="fp16"))
    planned = with_accelerators(plan_edge(step, BOARD, PowerScope.WALL), step)
    assert planned.dla_count == 0
    assert all(row.dla_s is None for row in planned.rows)
    assert "No time on a DLA: " in str(report.document_of(planned).blocks)
    assert "does not run layer_norm" in planned.record()["dla_refusal"]


def test_a_board_without_a_rate_is_refused_before_the_model_is_captured():
    words = ["plan", "edge", "no-such-model", "--target", "jetson_orin_nano", "--dla"]
    refused = CliRunner().invoke(application(), words)
    assert "jetson_orin_nano: no document at hand states a rate of its DLA" in refused.output + str(refused.exception)


def test_a_rig_takes_the_time_of_a_model_on_an_accelerator(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    tensors = [onnx.helper.make_tensor_value_info(name, 1, [1, 64, 32, 32]) for name in "xy"]
    weight = onnx.helper.make_tensor("w", 1, [64, 64, 3, 3], [0.01] * 64 * 64 * 9)
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = onnx.helper.make_graph([node], "net", tensors[:1], tensors[1:], [weight])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "net.onnx")
    rig = tmp_path / "rig.toml"
    rig.write_text('[[stream]]\nname = "a"\nrate = "30/s"\nstages = ["dla"]\ntimes = ["model"]\nmodel = "net.onnx"\n')

    def run(target):
        return CliRunner().invoke(application(), ["plan", "streams", str(rig), "-t", target, "--json"])

    found = json.loads(run(f"{BOARD}:30W").stdout)
    stage = found["rig"]["streams"][0]["stages"][0]
    assert stage["engine"] == "dla"
    assert 0 < stage["time_ns"] < 1e6
    assert "22.5 TOP/s" in found["notes"][0]
    refused = run("jetson_orin_nano").exception
    assert "no document at hand states a rate of its DLA" in str(refused)
