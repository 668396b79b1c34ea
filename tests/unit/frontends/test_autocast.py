"""Autocast as CUDA builds run it: the same lists, the same casts, weights cast once, the fp16 scaler."""

from collections import Counter

import pytest
from tests.sampling import in_turn

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import nearpeak  # noqa: E402
from nearpeak.core.work.capture_options import CaptureOptions  # noqa: E402
from nearpeak.errors import CaptureError, SpecError  # noqa: E402
from nearpeak.frontends.torch import autocast as _autocast  # noqa: E402
from nearpeak.frontends.torch.module_capture import capture_torch  # noqa: E402

CAST = "aten._to_copy.default"


def captured(build, *shapes, autocast="bf16", **options):
    def inputs():
        return tuple(torch.rand(*shape) for shape in shapes), {}

    return capture_torch(build, inputs, CaptureOptions(autocast=autocast, **options), name="model")


def casts(workload, phase="forward"):
    return sum(call.operator == CAST and call.phase == phase for call in workload.calls)


def layers(count, *, frozen=False):
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(count))).requires_grad_(not frozen)


class Block(nn.Module):
    """A pre-norm encoder block with biases everywhere and frozen weights."""

    def __init__(self, explicit):
        super().__init__()
        self.explicit, wide = explicit, 64
        self.first, self.second = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)
        self.requires_grad_(False)

    def forward(self, x):
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        attend = functional.scaled_dot_product_attention
        mixed = (q @ k.transpose(-1, -2) / 4).softmax(-1) @ v if self.explicit else attend(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Names(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        first = out[0] if isinstance(out, (tuple, list)) else out
        if not (func.is_view or "prim" in str(func) or "_unsafe_view" in str(func) or "empty" in str(func)):
            self.seen.append((str(func), str(first.dtype)))
        return out


def on_fake_cuda(function, shapes, dtype, first):
    """Return what PyTorch's own CUDA stage dispatches; without gradients it needs no GPU."""
    seen = Names()
    with FakeTensorMode(), torch.no_grad():
        tensors = [
            torch.empty(s, device="cuda", dtype=first if i == 0 else torch.float32) for i, s in enumerate(shapes)
        ]
        before = torch.get_autocast_dtype("cuda")
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", dtype)
        try:
            with seen:
                function(*tensors)
        finally:
            torch.set_autocast_enabled("cuda", False)
            torch.set_autocast_dtype("cuda", before)
            torch.clear_autocast_cache()
    return seen.seen


def on_fake_cpu(function, shapes, dtype, first):
    """Return what the replaced CPU stage dispatches."""
    seen = Names()
    with _autocast.autocast_of_cuda(), FakeTensorMode(), torch.no_grad():
        tensors = [torch.empty(s, dtype=first if i == 0 else torch.float32) for i, s in enumerate(shapes)]
        with torch.autocast("cuda", dtype=dtype), seen:
            function(*tensors)
    return seen.seen


SQUARE, ROWS, IMAGE = (8, 8), (4, 8), (2, 3, 8, 8)
UNARY = (
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan relu sigmoid tanh abs sqrt sum prod"
)
CALLS = {
    **{name: (getattr(torch, name), [ROWS]) for name in UNARY.split()},
    "mm": (torch.mm, [SQUARE, SQUARE]), "matmul": (torch.matmul, [ROWS, SQUARE]), "mv": (torch.mv, [SQUARE, (8,)]),
    "linear": (functional.linear, [ROWS, SQUARE, (8,)]), "addmm": (torch.addmm, [ROWS, ROWS, SQUARE]),
    "bmm": (torch.bmm, [(2, 4, 8), (2, 8, 4)]), "baddbmm": (torch.baddbmm, [(2, 4, 4), (2, 4, 8), (2, 8, 4)]),
    "einsum": (lambda a, b: torch.einsum("ij,jk->ik", a, b), [SQUARE, SQUARE]),
    "conv2d": (functional.conv2d, [IMAGE, (4, 3, 3, 3), (4,)]),
    "conv_transpose2d": (functional.conv_transpose2d, [IMAGE, (3, 4, 3, 3)]),
    "prelu": (functional.prelu, [ROWS, (1,)]), "pow": (lambda a: a**2, [ROWS]),
    "softplus": (functional.softplus, [ROWS]),
    "layer_norm": (lambda a, w: functional.layer_norm(a, (8,), w), [ROWS, (8,)]),
    "group_norm": (lambda a: functional.group_norm(a, 3), [IMAGE]),
    "softmax": (lambda a: a.softmax(-1), [ROWS]), "log_softmax": (lambda a: a.log_softmax(-1), [ROWS]),
    "softmax_in_fp32": (lambda a: functional.softmax(a, -1, dtype=torch.float32), [ROWS]),
    "cumsum": (lambda a: a.cumsum(0), [ROWS]), "cumprod": (lambda a: a.cumprod(0), [ROWS]),
    "sum_dim": (lambda a: a.sum(-1), [ROWS]), "norm": (lambda a: a.norm(), [ROWS]),
    "norm_dim": (lambda a: a.norm(dim=1), [ROWS]), "vector_norm": (torch.linalg.vector_norm, [ROWS]),
    "mse_loss": (functional.mse_loss, [ROWS, ROWS]), "l1_loss": (functional.l1_loss, [ROWS, ROWS]),
    "smooth_l1_loss": (functional.smooth_l1_loss, [ROWS, ROWS]), "huber_loss": (functional.huber_loss, [ROWS, ROWS]),
    "bce_with_logits": (functional.binary_cross_entropy_with_logits, [ROWS, ROWS]),
    "kl_div": (functional.kl_div, [ROWS, ROWS]), "cosine": (functional.cosine_similarity, [ROWS, ROWS]),
    "logsumexp": (lambda a: a.logsumexp(-1), [ROWS]), "cdist": (torch.cdist, [ROWS, ROWS]),
    "bilinear": (lambda a: functional.interpolate(a, scale_factor=2, mode="bilinear"), [IMAGE]),
    "nearest": (lambda a: functional.interpolate(a, scale_factor=2), [IMAGE]),
    "addcmul": (torch.addcmul, [ROWS, ROWS, ROWS]), "addcdiv": (torch.addcdiv, [ROWS, ROWS, ROWS]),
    "atan2": (torch.atan2, [ROWS, ROWS]), "dot": (torch.dot, [(8,), (8,)]), "add": (torch.add, [ROWS, ROWS]),
    "cat": (lambda a, b: torch.cat([a, b]), [ROWS, ROWS]), "gelu": (functional.gelu, [ROWS]),
    "max_pool": (lambda a: functional.max_pool2d(a, 2), [IMAGE]), "mean": (torch.mean, [ROWS]),
    "fft": (torch.fft.rfft, [ROWS]), "pad": (lambda a: functional.pad(a, (1, 1), mode="reflect"), [ROWS]),
}  # fmt: skip


@pytest.mark.parametrize(("name", "lower"), in_turn(CALLS, [torch.bfloat16, torch.float16]), ids=str)
def test_a_call_makes_the_casts_of_the_cuda_build(name, lower):
    function, shapes = CALLS[name]
    for first in (torch.float32, lower):
        if name == "fft" and first is lower:
            continue  # no CPU kernel takes 16 bits
        assert on_fake_cpu(function, shapes, lower, first) == on_fake_cuda(function, shapes, lower, first)


def test_the_lists_are_those_of_the_installed_pytorch():
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    registered = {n.removeprefix("aten::").split(".")[0] for n in names if has(n, "AutocastCUDA")}
    lists = (_autocast.LOWER, _autocast.SINGLE, _autocast.SINGLE_OUTPUT, _autocast.WIDEST, _autocast.BANNED, {"norm"})
    assert registered == set().union(*lists)
    assert sum(map(len, lists)) == len(registered)  # no name stands in two lists


@pytest.mark.parametrize("autocast", ["bf16", "fp16"])
def test_frozen_layers_cast_weights_biases_and_the_first_input(autocast):
    assert casts(captured(lambda: layers(3, frozen=True), (2, 8), autocast=autocast)) == 2 * 3 + 1


@pytest.mark.parametrize(("explicit", "autocast", "count"), [
    (True, "fp16", 11),  # 4 weights, 4 biases, 2 layer-norm outputs, the softmax's output
    (True, "bf16", 12),  # bf16 has no softmax that reads 16 bits and gives fp32: its input is cast too
    (False, "fp16", 10), (False, "bf16", 10),
])  # fmt: skip
def test_an_encoder_block_has_the_documented_number_of_casts(explicit, autocast, count):
    assert casts(captured(lambda: Block(explicit), (2, 16, 64), autocast=autocast)) == count


def test_a_weight_used_twice_is_cast_once_if_trained_and_twice_if_frozen():
    class Twice(nn.Linear):
        def forward(self, x):
            return super().forward(super().forward(x))

    assert casts(captured(lambda: Twice(8, 8, bias=False), (2, 8))) == 2
    assert casts(captured(lambda: Twice(8, 8, bias=False).requires_grad_(False), (2, 8))) == 3


def test_training_casts_each_gradient_back_and_steps_in_fp32():
    workload = captured(lambda: layers(2), (2, 8), step="train")
    assert (casts(workload), casts(workload, "backward")) == (5, 4)
    update = workload.calls[-1].case
    assert (update.op, dict(update.dtypes)["dtype"]) == ("adamw", "fp32")


def test_fp16_scales_the_loss_and_checks_the_gradients_and_bf16_does_not():
    found = {name: captured(lambda: layers(2), (2, 8), step="train", autocast=name) for name in ("fp16", "bf16")}
    check = "aten._amp_foreach_non_finite_check_and_unscale_.default"
    counts = {name: Counter(call.operator for call in workload.calls) for name, workload in found.items()}
    assert (counts["fp16"][check], counts["bf16"][check]) == (1, 0)
    assert not found["fp16"].uncovered_counts()
    case = next(call.case for call in found["fp16"].calls if call.operator == check)
    assert dict(case.axes)["elements"] == 2 * (64 + 8)


def test_regions_that_the_model_opens_itself_work_without_a_gpu():
    class Mixed(nn.Linear):
        def forward(self, x):
            with torch.autocast("cuda", dtype=torch.float16):
                y = super().forward(x)
                with torch.autocast("cuda", enabled=False):
                    return super().forward(y.float())

    workload = captured(lambda: Mixed(8, 8), (2, 8), autocast=None)
    formats = [dict(c.case.dtypes)["dtype"] for c in workload.calls if c.case.op == "gemm"]
    assert formats == ["fp16", "fp32"]


def test_recurrent_layers_and_attention_run_whole_in_the_lower_format():
    workload = captured(lambda: nn.LSTM(8, 8), (4, 2, 8))
    assert [dict(c.case.dtypes)["dtype"] for c in workload.calls if c.case.op == "recurrent"] == ["bf16"]
    workload = captured(lambda: functional.scaled_dot_product_attention, *[(1, 2, 8, 16)] * 3)
    assert [(c.operator, c.case.dtypes[0][1]) for c in workload.calls][-1] == ("nearpeak.attention.default", "bf16")


def test_what_autocast_bans_is_refused_with_what_to_use():
    with pytest.raises(CaptureError, match=r"binary_cross_entropy is unsafe to autocast; use .*_with_logits"):
        captured(lambda: lambda x: functional.binary_cross_entropy(x, x), (2, 8))


def test_other_formats_are_refused_and_nothing_is_left_changed():
    with pytest.raises(SpecError, match="autocast 'fp8': lowers to bf16 or fp16"):
        nearpeak.capture(layers(1), inputs=(torch.ones(2, 8),), autocast="fp8")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.softmax(torch.ones(2, 2, dtype=torch.bfloat16), 0).dtype == torch.bfloat16
