"""Casts belong to the operators that need them, compilers fuse some, and hosts that issue ahead decide small steps."""

import random

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from nearpeak.api import questions  # noqa: E402
from nearpeak.core.answers.mixed_precision import BASELINES  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.precision.expected_times import mixed_precision_of  # noqa: E402
from nearpeak.precision.host_issue import Issued, ahead_s  # noqa: E402
from nearpeak.precision.verdict import verdict_of  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402

H200 = target_of("h200_sxm")


def priced(build, *shape, step="forward", autocast="bf16", fixed_s=0.0):
    def take(**options):
        return capture_torch(
            build, lambda: ((torch.rand(*shape),), {}), CaptureOptions(step=step, **options), name="model"
        )

    return mixed_precision_of(take(dtype="fp32"), take(dtype="fp32", autocast=autocast), H200, fixed_s=fixed_s)


def normed(frozen=True):
    net = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 32))
    return net.requires_grad_(not frozen)


def one_by_one_s(issued, host_s):
    """The two recurrences, operator by operator."""
    host = device = 0.0
    for one in issued:
        for _ in range(one.call_count):
            host += host_s
            device = max(device, host) + one.device_s
        host = max(host, device) if one.waits else host
    return max(host, device)


def test_a_host_that_issues_ahead_follows_the_recurrences_and_lies_between_the_larger_sum_and_both():
    draw = random.Random(5)
    for _ in range(300):
        issued = [
            Issued(draw.expovariate(1e5), draw.randint(1, 30), draw.random() < 0.2) for _ in range(draw.randint(1, 12))
        ]
        host_s = draw.choice((0.0, draw.expovariate(1e5)))
        found = ahead_s(issued, host_s)
        sums = sum(one.call_count * one.device_s for one in issued), host_s * sum(one.call_count for one in issued)
        assert found == pytest.approx(one_by_one_s(issued, host_s), rel=1e-9)
        assert max(sums) * (1 - 1e-9) <= found <= sum(sums) * (1 + 1e-9)


def test_a_wait_keeps_the_host_from_hiding_behind_the_device():
    long_then_short = [Issued(9e-6, 10), Issued(1e-6, 10)]
    waited = [long_then_short[0]._replace(waits=True), long_then_short[1]]
    assert ahead_s(long_then_short, 4e-6) == pytest.approx(4e-6 + 90e-6 + 10e-6)
    assert ahead_s(waited, 4e-6) == pytest.approx(4e-6 + 90e-6 + 40e-6 + 1e-6)


def test_without_a_host_the_step_is_the_devices_sum():
    found = priced(normed, 512, 64)
    assert found.ahead_lowered_s == pytest.approx(found.lowered_s, rel=1e-12)
    for name in BASELINES:
        assert found.ahead_s[name] == pytest.approx(found.baseline_s[name], rel=1e-12)


def test_a_step_that_waits_for_its_host_gets_longer_under_autocast_although_the_device_gets_faster():
    def take(**options):
        return questions.capture("resnet-18", batch=16, dtype="fp32", **options)

    written, lowered = take(), take(autocast="fp16")
    device, eager = (mixed_precision_of(written, lowered, H200, fixed_s=host_s) for host_s in (0.0, 4e-6))
    assert device.speed_up_ratio() > 1.7
    # 68 and 91 operators of 4 us: the host takes 272 and 364 us, the device 306 and 173 us.
    assert eager.ahead_s["default"] == pytest.approx(device.baseline_s["default"], rel=0.03)
    assert eager.ahead_lowered_s == pytest.approx(91 * 4e-6, rel=0.01)
    verdict = verdict_of(device, eager)
    assert verdict.verdict == "pays only in a graph"
    assert verdict.eager_ratio < 0.9
    assert verdict.serial_ratio > 1
    assert any("waits for its host: 91 operators, 23 more" in reason for reason in verdict.reasons)


def test_a_compiler_leaves_the_casts_of_weights_and_inputs_and_fuses_those_between_its_own_kernels():
    found = priced(normed, 512, 64)
    # Stay: the input, two weights, two biases. Go: the one before the norm (2 bytes read there instead of 4, nothing
    # written) and the one behind it (the norm writes 2 bytes instead of 4, nothing is read).
    assert (found.cast_count, found.kept_cast_count) == (7, 5)
    saved = 512 * 128 * (8 + 8)
    assert found.lowered_s - found.fused_s == pytest.approx(saved / 4.8e12, rel=1e-9)


def test_in_training_casts_of_gradients_belong_to_the_operator_that_made_them():
    found = priced(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)), 4, 8, step="train")
    back = {(one.of, one.before, one.after, one.consumer) for one in found.casts if one.of == "gradient"}
    assert back == {
        ("gradient", "bf16", "fp32", "aten.mm.default"),
        ("gradient", "bf16", "fp32", "aten.sum.dim_IntList"),
    }
    forward = [one.consumer for one in found.casts if one.of in ("weight", "input")]
    assert set(forward) == {"aten.addmm.default"}
    assert not any(part.cast_s for part in found.parts if "threshold" in part.operator)
    assert sum(part.cast_s for part in found.parts) == pytest.approx(found.cast_s, rel=1e-12)
