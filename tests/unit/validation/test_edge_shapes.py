"""The contract where an axis is 1 or shared: what tells a wrong kernel there, what changes nothing, what is right."""

import pytest
from tests.sampling import first_of_each, long

import nearpeak
from nearpeak.validation import pytorch, validate
from nearpeak.validation.comparison.torch_baseline import judged
from nearpeak.validation.inputs.rounds import rounds_of
from nearpeak.validation.mutants import killed_by, mutants_of, reason_for_equivalence
from nearpeak.validation.mutants.equivalence import PROVED
from nearpeak.validation.mutants.legitimate_variants import variants_of
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.running.implementation_run import run

torch = pytest.importorskip("torch")
SEEDS = [0, *map(long, (1, 2, 3))]
POOL = {"batch": 1, "channels": 1, "w": 5, "kw": 2, "sw": 3, "pw": 1, "ph_end": 1, "ceil": True, "dtype": "fp16"}
FP4 = {"rows": 2, "columns": 6, "block_rows": 1, "block_columns": 1, "scale_dtype": "fp8_e4m3", "tensor_scale": True,
       "dtype": "fp32", "out_dtype": "fp4_e2m1"}  # fmt: skip


def mutant(case, name):
    return {one.name: one for one in mutants_of(case)}[name]


KILLED = [
    ("fake_quantise", {"channels": 1, "columns": 7, "mask": True, "scalars": True, "dtype": "bf16"},
     "columns swapped mask"),
    ("reduce", {"outputs": 1, "reduced": 8, "function": "any", "dtype": "bool"}, "constant kernel"),
    ("reduce", {"outputs": 1, "reduced": 8, "function": "any", "dtype": "fp32"}, "constant kernel"),
    ("reduce", {"outputs": 1, "reduced": 8, "function": "all", "dtype": "fp32"}, "constant kernel"),
    ("batch_norm", {"batch": 2, "channels": 1, "spatial": 7, "dtype": "fp16"}, "epsilon outside the root"),
    ("masked_select", {"elements": 1, "dtype": "fp32"}, "gradient zero"),
    ("pq_search", {"queries": 1, "vectors": 5, "dim": 4, "parts": 1, "k": 1, "dtype": "fp16"},
     "last slice dropped codebooks[1]"),
    ("reduce", {"outputs": 3, "reduced": 2, "function": "min_index", "dtype": "fp32"}, "tile zeroed second"),
    ("elementwise", {"elements": 9, "a": 9, "function": "sinh", "dtype": "fp32"}, "columns swapped y"),
    ("layer_norm", {"rows": 3, "hidden": 2, "dtype": "fp32"}, "upstream reversed"),
    *(
        (op, arguments | {"affine": False, "dtype": "bf16"}, name)
        for op, arguments in (
            ("group_norm", {"batch": 3, "channels": 1, "spatial": 2, "groups": 1}),
            ("layer_norm", {"rows": 1, "hidden": 2}),
        )
        for name in ("gradient zero", "gradient by the wrong count")
    ),
    *(
        ("histogram", {"elements": elements, "bins": bins, "dtype": "fp32"}, "computed in fewer bits")
        for elements, bins in ((1, 1), (1, 2), (2, 2), (64, 2))
    ),
    ("embedding_bag", {"tokens": 128, "bags": 1, "dim": 3, "vocab": 5, "mode": "max", "dtype": "fp64"},
     "wrong group or row weight[0]"),
    ("masked_scatter", {"elements": 12, "sources": 5, "dtype": "fp32"}, "wrong group or row source[0]"),
    *(
        ("attention", {"batch": 2, "heads": heads, "q": 13, "kv": 3, "dim": dim, "causal": True, "align": "lower_right",
                       "mask": "alibi", "dtype": "fp16"}, "computed in fewer bits")
        for heads, dim in ((2, 64), (1, 4))
    ),
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("op", "arguments", "name"), first_of_each(KILLED), ids=lambda part: part if isinstance(part, str) else ""
)
def test_wrong_kernels_are_killed_with_any_seed(op, arguments, name, seed):
    case = nearpeak.case(op, **arguments)
    assert killed_by(case, mutant(case, name).implementation(), seed=seed)


REDUCED = {"outputs": 3, "reduced": 1, "dtype": "fp16"}
PROOFS = [
    *(
        ("reduce", REDUCED | {"function": "min_index"}, name)
        for name in ("tile zeroed second", "columns swapped second", "ties to the last")
    ),
    *(("reduce", REDUCED | {"function": "argmin"}, name) for name in ("zero kernel", "stale output", "tile zeroed y")),
    ("reduce", REDUCED | {"function": "max_index"}, "min_index for max_index function"),
    ("reduce", REDUCED | {"function": "sum"}, "mean for sum function"),
    ("elementwise", {"elements": 9, "a": 1, "function": "sinh", "dtype": "bf16"}, "columns swapped y"),
    ("elementwise", {"elements": 9, "a": 1, "function": "sinh", "dtype": "bf16"}, "upstream reversed"),
    ("layer_norm", {"rows": 3, "hidden": 1, "dtype": "fp32"}, "upstream reversed"),
    ("cast", {"elements": 7, "read": 1, "dtype": "fp32", "out_dtype": "bf16"}, "computed in fewer bits"),
    ("attention", {"batch": 2, "heads": 4, "q": 1, "kv": 6, "dim": 4, "kv_heads": 2, "right": 1, "dtype": "fp16",
                   "kv_dtype": "fp8_e4m3"}, "bits lost output"),
    ("max_pool", POOL, "ceil mode dropped"),
    *(
        ("varlen_attention", {"tokens": 12, "heads": 2, "dim": 4, "sequences": 3, "left": 1, "dtype": "fp16"} | one,
         "wrong group or row offsets[0]")
        for one in ({"causal": True}, {"right": 1})
    ),
    *(
        ("scan", {"rows": 3, "length": 1, "function": "max", "dtype": "fp64"}, name)
        for name in ("tile zeroed indices", "columns swapped indices")
    ),
    *(
        ("scatter", {"rows": 5, "width": 3, "table_rows": 7, "accumulate": True, "dtype": "fp32"} | one,
         "wrong group or row source[0]")
        for one in ({"table_rows": 1}, {"indices": 1})
    ),
    *(
        ("softmax", {"rows": 3, "columns": 1, "log": log, "dtype": "fp32"}, name)
        for log in (False, True)
        for name in ("bits lost y", "computed in fewer bits")
    ),
    ("gather", {"rows": 9, "width": 1, "table_rows": 3, "indices": 1, "dtype": "fp32"}, "upstream reversed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arguments", "name"), first_of_each(PROOFS), ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_changes_nothing_is_proved(op, arguments, name):
    case = nearpeak.case(op, **arguments)
    found = mutant(case, name)
    assert not killed_by(case, found.implementation(), seed=1)
    assert reason_for_equivalence(case, found, seed=2).startswith(PROVED)


RIGHT = [
    ("reduce", {"outputs": 1, "reduced": 8, "function": "prod", "dtype": "fp16"}),
    ("reduce", {"outputs": 20, "reduced": 9, "function": "prod", "dtype": "fp16"}),
    ("cross", {"vectors": 5, "a": 1, "b": 1, "dtype": "fp64"}),
    ("avg_pool", {"batch": 1, "channels": 2, "w": 7, "kw": 2, "h": 7, "kh": 2, "pd_end": 1, "ceil": True,
                  "dtype": "fp64"}),
    ("max_pool", POOL),
    ("max_pool", {"batch": 1, "channels": 2, "w": 6, "kw": 2, "h": 6, "kh": 2, "ph_end": 3, "dtype": "fp16"}),
    ("masked_scatter", {"elements": 12, "sources": 5, "mask": 4, "dtype": "bf16"}),
    *(
        ("vector_search", {"queries": 20, "vectors": 60, "dim": 4, "k": 5, "lists": 6, "probes": 2, "metric": "cosine",
                           "dtype": dtype})
        for dtype in ("fp16", "bf16")
    ),
    *(
        ("vector_search", {"queries": 4, "vectors": 9, "dim": 1, "k": 3, "lists": 5, "probes": 2, "metric": metric,
                           "dtype": "bf16"})
        for metric in ("l2", "ip", "cosine")
    ),
    ("pointwise_loss", {"elements": 9, "weight": 1, "dtype": "fp16"}),
    ("pointwise_loss", {"elements": 9, "weight": 9, "function": "huber", "reduction": "none", "dtype": "fp32"}),
    ("quantise", FP4),
    ("paged_attention", {"batch": 2, "heads": 4, "tokens": 7, "pages": 4, "dim": 4, "page": 2, "kv_heads": 2,
                         "dtype": "fp32"}),  # as many heads as sequences, whose lengths differ
    ("ctc_loss", {"batch": 2, "time": 3, "classes": 9, "labels": 5, "dtype": "fp32"}),  # no path: infinite
]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("op", "arguments"), first_of_each(RIGHT), ids=lambda part: part if isinstance(part, str) else ""
)
def test_pytorch_s_own_is_right(op, arguments, seed):
    case = nearpeak.case(op, **arguments)
    found = validate(case, pytorch(case), seed=seed)
    assert found.status == "PASS", found.reason


def test_a_mean_far_from_0_that_fp32_rounds_moves_whole_groups():
    case = nearpeak.case("group_norm", batch=3, channels=257, spatial=9, groups=1, affine=False, dtype="fp16")
    (variant,) = (one for one in variants_of(case) if one.name == "fp32 inside, rounded once")
    found = validate(case, variant, seed=1)
    assert found.status == "PASS", found.reason


def test_a_block_of_zeros_is_quantised_to_zeros():
    case = nearpeak.case("quantise", **FP4)
    x = torch.tensor([[0.0, 1.0, 0.0, -2.0, 0.5, 0.0], [0.0] * 6])
    found = pytorch(case).call({"x": x}, **dict(case.axes), **dict(case.dtypes), **dict(case.attributes))
    assert found["q"].tolist() == [[0x70, 0xF0, 0x07], [0, 0, 0]]


def test_the_gradient_of_a_product_that_underflows_may_be_made_of_it_and_no_wrong_one_may():
    case = nearpeak.case("reduce", outputs=20, reduced=9, function="prod", dtype="fp16")
    for name in ("gradient by the wrong count", "upstream reversed"):
        assert killed_by(case, mutant(case, name).implementation(), seed=1)


def test_slopes_are_positive_as_digits_of_biases_that_grow_with_distance_are_lost_in_fp16():
    case = nearpeak.case("attention", batch=1, heads=8, q=4, kv=4, dim=4, mask="alibi", dtype="fp16")
    for asked in rounds_of(case, 0):
        assert (asked.tensors["slope"] > 0).all(), asked.distribution


def test_scores_far_below_0_may_be_stored_in_16_bits():
    case = nearpeak.case("paged_attention", batch=2, heads=64, tokens=31, pages=4, dim=512, page=8, dtype="bf16")
    one = draw_inputs(case, 4, "deep")
    found = judged("V7", run(pytorch(case), one.tensors, one.arguments).outputs, one, "deep inputs")
    assert found.status == "PASS", found.reason
