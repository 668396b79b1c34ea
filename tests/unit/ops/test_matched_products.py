"""Matrix products of PyTorch with ignored operands, and gradients of normalisations that are not asked for."""

import pytest
import torch

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops import OPS, AtenSite, aten_matchers, case, work_of


def tensor(*shape, dtype="fp32", strides=None):
    return Tensor(shape=shape, dtype=dtype, strides=strides)


def matched(name, outputs, /, **args):
    """The match of a call and its case."""
    op, matcher = aten_matchers()[f"aten.{name}"]
    match = matcher(
        AtenSite(name=f"aten.{name}", args=args, outputs=outputs if isinstance(outputs, tuple) else (outputs,))
    )
    return match, OPS[match.op or op].case(match.phase, **match.arguments)


ADDED = {
    "addmm.default": {"self": tensor(4, 6), "mat1": tensor(4, 5), "mat2": tensor(5, 6)},
    "addmm_.default": {"self": tensor(4, 6), "mat1": tensor(4, 5), "mat2": tensor(5, 6)},
    "baddbmm.default": {"self": tensor(2, 4, 6), "batch1": tensor(2, 4, 5), "batch2": tensor(2, 5, 6)},
    "baddbmm_.default": {"self": tensor(2, 4, 6), "batch1": tensor(2, 4, 5), "batch2": tensor(2, 5, 6)},
    "addbmm.default": {"self": tensor(4, 6), "batch1": tensor(2, 4, 5), "batch2": tensor(2, 5, 6)},
    "addmv.default": {"self": tensor(4), "mat": tensor(4, 5), "vec": tensor(5)},
    "addr.default": {"self": tensor(4, 6), "vec1": tensor(4), "vec2": tensor(6)},
}


@pytest.mark.parametrize("name", ADDED)
def test_beta_zero_leaves_the_bias_unread(name):
    args = ADDED[name]
    match, product = matched(name, args["self"], **args, beta=0, alpha=1)
    _, added = matched(name, args["self"], **args, beta=1, alpha=1)
    assert match.touched_bytes == {"self": 0}
    assert work_of(added).read_bytes - work_of(product).read_bytes == args["self"].bytes
    assert product.record().get("bias", False) is False


@pytest.mark.parametrize("name", ADDED)
def test_alpha_zero_leaves_the_factors_unread(name):
    args = ADDED[name]
    match, made = matched(name, args["self"], **args, beta=1, alpha=0)
    assert made.op == "copy"
    assert match.touched_bytes == {key: 0 for key in args if key != "self"}
    match, made = matched(name, args["self"], **args, beta=0, alpha=0)
    assert (made.op, match.touched_bytes) == ("fill", dict.fromkeys(args, 0))


@pytest.mark.parametrize(
    ("bias", "elements"),
    [(tensor(6), 0), (tensor(4, 6), 24), (tensor(4, 1), 4), (tensor(4, 6, strides=(0, 1)), 0), (tensor(1), 1)],
)
def test_a_bias_counts_its_distinct_elements(bias, elements):
    _, made = matched("addmm.default", tensor(4, 6), self=bias, mat1=tensor(4, 5), mat2=tensor(5, 6), beta=1, alpha=1)
    assert made.record()["bias_elements"] == elements
    assert work_of(made).read_bytes == 4 * (4 * 5 + 5 * 6 + bias.distinct)


def test_empty_products_are_cases_without_work():
    for name, a, b, out in (
        ("mm.default", tensor(0, 5), tensor(5, 6), tensor(0, 6)),
        ("bmm.default", tensor(0, 4, 5), tensor(0, 5, 6), tensor(0, 4, 6)),
    ):
        _, made = matched(name, out, self=a, mat2=b)
        assert (work_of(made).read_bytes, work_of(made).total_flop) == (0, 0)


@pytest.mark.parametrize("name", ["mm.out", "bmm.out", "_int_mm.default", "mv.default", "dot.default", "vdot.default",
                                  "addmv.default", "addr.default", "addmm_.default", "baddbmm_.default"])  # fmt: skip
def test_overload_of_a_product_is_claimed_and_exists(name):
    packet, overload = name.split(".")
    assert f"aten.{name}" in aten_matchers()
    assert overload in getattr(torch.ops.aten, packet).overloads()


def test_an_empty_operand_broadcast_with_a_scalar_tensor_is_no_contradiction():
    _, made = matched("add.Tensor", tensor(0), self=tensor(0), other=tensor(1))
    assert work_of(made).read_bytes == 0


LAYER = {"grad_out": tensor(4, 8), "input": tensor(4, 8), "normalized_shape": [8], "mean": tensor(4, 1),
         "rstd": tensor(4, 1), "weight": tensor(8), "bias": tensor(8)}  # fmt: skip
GROUP = {"grad_out": tensor(2, 4, 8), "input": tensor(2, 4, 8), "mean": tensor(2, 2), "rstd": tensor(2, 2),
         "weight": tensor(4), "N": 2, "C": 4, "HxW": 8, "group": 2}  # fmt: skip
BATCH = {"grad_out": tensor(2, 4, 8), "input": tensor(2, 4, 8), "weight": tensor(4), "running_mean": tensor(4),
         "running_var": tensor(4), "save_mean": tensor(4), "save_invstd": tensor(4), "train": True}  # fmt: skip
NORMS = [
    ("native_layer_norm_backward.default", LAYER, (8,)),
    ("native_group_norm_backward.default", GROUP, (4,)),
    ("native_batch_norm_backward.default", BATCH, (4,)),
]


@pytest.mark.parametrize(("name", "args", "params"), NORMS)
def test_gradients_of_a_normalisation_that_are_not_asked_for_cost_nothing(name, args, params):
    size = args["input"].bytes
    match, made = matched(name, tensor(*params), **args, output_mask=[False, True, True])
    assert match.touched_bytes["weight"] == 0
    assert "input" not in match.touched_bytes
    assert (work_of(made).read_bytes, work_of(made).write_bytes) == (2 * size, 2 * 4 * params[0])
    match, made = matched(name, tensor(*params), **args, output_mask=[False, False, True])
    assert match.touched_bytes["input"] == match.touched_bytes["weight"] == 0
    assert (work_of(made).read_bytes, work_of(made).write_bytes) == (size, 4 * params[0])
    match, made = matched(name, args["input"], **args, output_mask=[True, False, False])
    assert work_of(made).write_bytes == size


def test_root_mean_square_gradient_of_the_weight_alone_leaves_the_weight_unread():
    args = {k: v for k, v in LAYER.items() if k not in ("mean", "bias")}
    match, made = matched("_fused_rms_norm_backward.default", tensor(8), **args, output_mask=[False, True])
    assert match.touched_bytes == {"rstd": 0, "weight": 0}
    assert work_of(made).write_bytes == 4 * 8


def test_running_statistics_keep_their_own_format():
    half = {"input": tensor(2, 4, 8, dtype="bf16"), "weight": tensor(4, dtype="bf16"), "bias": tensor(4, dtype="bf16")}
    stats = dict.fromkeys(("running_mean", "running_var"), tensor(4, dtype="bf16"))
    _, made = matched("native_batch_norm.default", half["input"], **half, **stats, training=False)
    assert work_of(made).read_bytes == 2 * (64 + 4 * 4)
    assert work_of(case("batch_norm", batch=2, channels=4, spatial=8, dtype="bf16")).read_bytes == 2 * 72 + 4 * 8


def test_attention_gradient_reads_no_output():
    shape = (1, 2, 4, 8)
    made = case("attention", "backward", batch=1, heads=2, q=4, kv=4, dim=8, dtype="fp32")
    assert work_of(made).read_bytes == 4 * tensor(*shape).bytes
    names = ("grad_out", "query", "key", "value", "out")
    match, again = matched(
        "_scaled_dot_product_flash_attention_for_cpu_backward.default", (tensor(*shape),) * 3,
        **dict.fromkeys(names, tensor(*shape)), logsumexp=tensor(1, 2, 4), dropout_p=0.0, is_causal=False,
    )  # fmt: skip
    assert again == made
    assert match.touched_bytes == {"out": 0, "logsumexp": 0}
