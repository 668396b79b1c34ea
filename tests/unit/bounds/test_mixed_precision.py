"""Expected gains of autocast: the worked table of docs/guide/precision.md, and what must hold of any step."""

from functools import cache

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from nearpeak.api import questions  # noqa: E402
from nearpeak.core.answers.mixed_precision import BASELINES  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import SpecError  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402
from nearpeak.precision.expected_times import mixed_precision_of  # noqa: E402
from nearpeak.precision.verdict import verdict_of  # noqa: E402
from nearpeak.targets import target_of  # noqa: E402

# The table was worked out with the rates that the vendor rounds to: 67, 494.7 and 989.5 TFLOP/s.
H200 = target_of("h200_sxm", ['peak."vector.fp32".rate="67 TFLOP/s"', 'peak."tensor.fp16".rate="989.5 TFLOP/s"'])


class Encoder(nn.Module):
    """A pre-norm encoder block, 16 heads of 64, explicit attention, frozen weights and biases everywhere."""

    def __init__(self, explicit=True):
        super().__init__()
        self.explicit, wide = explicit, 1024
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.requires_grad_(False)

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, 16, 64)).permute(2, 0, 3, 1, 4).unbind(0)
        attend = functional.scaled_dot_product_attention
        mixed = ((q @ k.transpose(-1, -2)) * 0.125).softmax(-1) @ v if self.explicit else attend(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


@cache
def step(kind, *shape, autocast=None, dtype="fp32", explicit=True):
    if kind == "resnet-18":
        return questions.capture("resnet-18", batch=shape[0], dtype=dtype, autocast=autocast)
    inputs = lambda: ((torch.empty(*shape, 1024),), {})  # noqa: E731
    return capture_torch(
        lambda: Encoder(explicit), inputs, CaptureOptions(dtype=dtype, autocast=autocast), name="encoder"
    )


def expected(kind, *shape, fixed_s=0.0, target=H200, autocast="fp16", **options):
    before, after = step(kind, *shape, **options), step(kind, *shape, autocast=autocast, **options)
    return mixed_precision_of(before, after, target, fixed_s=fixed_s)


ROWS = [
    ("resnet-18", (1,), 23, 68, 91, 2.36, 0.92, 53, 27.79, 0.86, 0.76),
    ("resnet-18", (16,), 23, 68, 91, 6.03, 1.77, 10, 173.34, 2.45, 1.08),
    ("resnet-18", (256,), 23, 68, 91, 6.55, 1.92, 2, 2549.23, 5.83, 1.77),
    ("encoder", (1, 1), 11, 13, 24, 0.50, 0.50, 75, 21.01, 0.53, 0.53),
    ("encoder", (1, 128), 11, 14, 25, 2.08, 0.65, 65, 25.03, 0.86, 0.58),
    ("encoder", (8, 512), 11, 17, 28, 5.55, 1.43, 20, 336.64, 4.32, 1.22),
    ("encoder", (64, 512), 11, 17, 28, 5.79, 1.49, 17, 2582.88, 5.57, 1.45),
]
"""Model, batch and tokens, casts, operators before and after, S to fp32 and TF32, cast share in %, µs, S with 4 µs."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_worked_table_comes_out(row):
    kind, shape, casts, before, after, to_fp32, to_tf32, share, us, slow_fp32, slow_tf32 = row
    found, slowed = expected(kind, *shape), expected(kind, *shape, fixed_s=4e-6)
    assert (found.cast_count, found.call_count, found.lowered_count) == (casts, before, after)
    # Two decimals, with half a digit for the other order of rounding.
    for ratio, wanted in (
        (found.speed_up_ratio("fp32"), to_fp32), (found.speed_up_ratio("tf32"), to_tf32),
        (slowed.speed_up_ratio("fp32"), slow_fp32), (slowed.speed_up_ratio("tf32"), slow_tf32),
    ):  # fmt: skip
        assert ratio == pytest.approx(wanted, abs=0.0065)
    assert found.cast_ratio * 100 == pytest.approx(share, abs=0.6)
    assert found.lowered_s * 1e6 == pytest.approx(us, rel=3e-4)


def test_attention_stays_one_operator_of_16_bits_and_does_not_leak_into_its_mathematics():
    """Written out in fp32 inside, it would take 15 casts and be slower than TF32 (0.95 to 0.98)."""
    for batch in (8, 64):
        found = expected("encoder", batch, 512, explicit=False)
        assert found.cast_count == 10
        assert found.speed_up_ratio("tf32") > expected("encoder", batch, 512).speed_up_ratio("tf32") > 1.4


def test_the_parts_of_the_step_add_up_to_it():
    found = expected("encoder", 8, 512)
    for name in BASELINES:
        assert sum(part.baseline_s[name] for part in found.parts) == pytest.approx(found.baseline_s[name], rel=1e-12)
    assert sum(part.lowered_s + part.cast_s for part in found.parts) == pytest.approx(found.lowered_s, rel=1e-12)
    assert sum(cast.time_s for cast in found.casts) == pytest.approx(found.cast_s, rel=1e-12)


def test_a_larger_batch_never_lowers_the_speed_up_and_rates_limit_it():
    found = [expected("encoder", batch, 128) for batch in (1, 4, 16)]
    ratios = [one.speed_up_ratio("fp32") for one in found]
    assert ratios == sorted(ratios)
    assert [one.cast_ratio for one in found] == sorted((one.cast_ratio for one in found), reverse=True)
    assert all(one.speed_up_ratio("fp32") <= 989.5 / 67 for one in found)
    assert all(one.speed_up_ratio("tf32") <= 989.5 / 494.7 for one in found)


def test_bf16_casts_softmax_scores_and_fp16_does_not():
    by_format = {name: expected("encoder", 1, 128, autocast=name).cast_count for name in ("fp16", "bf16")}
    assert by_format == {"fp16": 11, "bf16": 12}


def test_the_trap_convolutions_are_in_tf32_by_default_and_products_are_not():
    conv, block = expected("resnet-18", 16), expected("encoder", 8, 512)
    assert conv.speed_up_ratio("default") == pytest.approx(conv.speed_up_ratio("tf32"), rel=0.01)
    assert block.speed_up_ratio("default") == pytest.approx(block.speed_up_ratio("fp32"), rel=1e-12)


@pytest.mark.parametrize(
    ("shape", "wanted"), [((1,), "does not pay"), ((16,), "pays only in a graph"), ((256,), "pays")]
)
def test_it_says_before_anyone_tries_whether_autocast_pays(shape, wanted):
    verdict = verdict_of(expected("resnet-18", *shape), expected("resnet-18", *shape, fixed_s=15e-6))
    assert verdict.verdict == wanted
    assert any("TF32 already" in reason for reason in verdict.reasons)


def test_a_step_that_was_not_captured_under_autocast_is_refused():
    with pytest.raises(SpecError, match="was not captured under autocast"):
        mixed_precision_of(step("encoder", 1, 1), step("encoder", 1, 1), H200)
