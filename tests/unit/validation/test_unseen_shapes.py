"""What shapes that nobody chose have shown: wrong kernels that passed, right ones that were refused, missing proofs."""

from dataclasses import replace

import pytest
from tests.sampling import first_of_each, long

import nearpeak
from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.validation import pytorch, validate
from nearpeak.validation.checks.v09_gradients import _exposed, gradient_rounds
from nearpeak.validation.comparison.output_comparison import mask_fault
from nearpeak.validation.comparison.ties import matched_ties
from nearpeak.validation.inputs.rounds import _shown, obligations_of, rounds_of
from nearpeak.validation.mutants import killed_by, mutants_of, reason_for_equivalence
from nearpeak.validation.mutants.equivalence import PROVED
from nearpeak.validation.mutants.legitimate_variants import variants_of
from nearpeak.validation.mutants.torch_defects import defect
from nearpeak.validation.oracle.float64_oracle import draw_inputs
from nearpeak.validation.running.trial import Trial

torch = pytest.importorskip("torch")

KILLED = [
    ("margin_loss", {"rows": 6, "classes": 127, "function": "multilabel_margin", "reduction": "none", "dtype": "fp64"},
     "columns swapped is_target"),
    ("quantise", {"rows": 8, "columns": 12, "block_rows": 3, "dtype": "bf16", "out_dtype": "fp8_e5m2"},
     "one element wrong q"),
    ("scatter", {"rows": 65, "width": 3, "table_rows": 7, "scalar": True, "dtype": "fp64"},
     "last slice dropped table[0]"),
    ("recurrent", {"batch": 2, "steps": 5, "features": 3, "hidden": 80, "cell": "rnn_tanh", "dtype": "bf16"},
     "gradient by the wrong count"),
    ("trilinear", {"batch": 6, "out": 1, "left": 5, "right": 100, "dtype": "bf16"}, "sums in fewer bits right[1]"),
    ("vector_search", {"queries": 5, "vectors": 17, "dim": 13, "k": 7, "dtype": "bf16"}, "one element wrong positions"),
    ("vector_search", {"queries": 1, "vectors": 128, "dim": 6, "k": 3, "lists": 127, "probes": 2, "dtype": "fp16"},
     "last slice dropped vectors[0]"),
    ("mode", {"rows": 7, "columns": 257, "dtype": "bf16"}, "last slice dropped x[1]"),
    ("embedding_bag", {"tokens": 2, "bags": 33, "dim": 127, "vocab": 6, "touched_rows": 6, "dtype": "fp16"},
     "wrong group or row index[0]"),
    ("batch_norm", {"batch": 33, "channels": 4, "spatial": 16, "train": True, "running": False, "dtype": "bf16"},
     "variance by n - 1"),
    ("scaled_gemm", {"m": 2, "n": 200, "k": 8, "dtype": "int8_tensor", "b_dtype": "int8", "out_dtype": "bf16"},
     "gradient zero"),
    ("histogram", {"elements": 2, "bins": 32, "dtype": "fp32"}, "columns swapped y"),
    ("nll_loss", {"rows": 7, "classes": 7, "reduction": "sum", "dtype": "bf16"}, "NaN swallowed y"),
    ("lbfgs", {"parameters": 128, "history": 8, "dtype": "bf16"}, "last slice dropped changes[1]"),
    ("decomposition", {"batch": 3, "m": 3, "n": 17, "function": "svd_full", "dtype": "fp32"}, "one element wrong y2"),
    ("cast", {"elements": 1, "dtype": "fp64", "out_dtype": "int8"}, "computed in fewer bits"),
    ("cast", {"elements": 8, "dtype": "fp32", "out_dtype": "bool"}, "computed in fewer bits"),
    ("scatter", {"rows": 200, "width": 64, "table_rows": 5, "indices": 16, "scalar": True, "dtype": "fp16"},
     "NaN swallowed table"),
    ("batch_norm", {"batch": 64, "channels": 1, "spatial": 80, "train": True, "running": False, "dtype": "bf16"},
     "variance by n - 1"),
    ("isin", {"elements": 7, "tests": 64, "dtype": "fp64"}, "last slice dropped t[0]"),
    ("fake_quantise", {"channels": 48, "columns": 2, "learnable": True, "dtype": "fp32"}, "last slice dropped zero[0]"),
    ("fractional_max_pool", {"batch": 1, "channels": 2, "w": 7, "kw": 2, "ow": 3, "h": 2, "kh": 2, "dtype": "fp64"},
     "operand transposed samples"),
    ("grouped_gemm", {"m": 200, "n": 24, "k": 9, "groups": 2, "split": "k", "accumulate": True, "dtype": "bf16",
                      "out_dtype": "fp32"}, "wrong group or row offsets[0]"),
    ("decomposition", {"batch": 2, "m": 13, "n": 64, "function": "lu_parts", "dtype": "fp32"}, "bits lost y1"),
    ("searchsorted", {"rows": 1, "values": 3, "boundaries": 7, "dtype": "fp32"}, "tile counted twice boundaries[1]"),
    ("searchsorted", {"rows": 1, "values": 1, "boundaries": 1, "dtype": "fp64"}, "computed in fewer bits"),
    ("vector_search", {"queries": 2, "vectors": 257, "dim": 1, "k": 4, "metric": "cosine", "dtype": "fp16"},
     "columns swapped positions"),
    ("batch_norm", {"batch": 65, "channels": 4, "spatial": 5, "train": True, "dtype": "bf16"}, "variance by n - 1"),
    ("dequantise", {"rows": 5, "columns": 33, "block_rows": 5, "block_columns": 33, "dtype": "fp8_e4m3",
                    "out_dtype": "bf16"}, "computed in fewer bits"),
    ("histogram", {"elements": 5, "bins": 64, "dtype": "int64"}, "columns swapped y"),
    ("segment_reduce", {"rows": 2, "segments": 5, "width": 9, "dtype": "bf16"}, "wrong group or row x[0]"),
    ("linalg", {"batch": 2, "n": 80, "right": 17, "function": "lu_solve", "dtype": "fp32"}, "bits lost y"),
    long("linalg", {"batch": 2, "n": 80, "function": "determinant", "dtype": "fp64"}, "one element wrong y"),
    ("elementwise", {"elements": 6, "a": 1, "b": 6, "function": "heaviside", "dtype": "bf16"},
     "last slice dropped b[0]"),
    ("elementwise", {"elements": 200, "a": 200, "b": 200, "function": "heaviside", "dtype": "fp32"}, "bits lost y"),
    ("elementwise", {"elements": 200, "a": 200, "b": 200, "function": "heaviside", "dtype": "fp32"},
     "computed in fewer bits"),
    ("attention", {"batch": 1, "heads": 6, "q": 4, "kv": 4, "dim": 6, "left": 3, "causal": True, "mask": "bool",
                   "softcap": True, "sinks": True, "dtype": "bf16"}, "choice ignored softcap"),
    ("masked_scatter", {"elements": 13, "sources": 1, "dtype": "fp64"}, "only the first upstream element used"),
    *(
        ("multinomial", {"rows": 1, "categories": categories, "samples": 12, "dtype": "fp32"}, f"{row} weights[1]")
        for categories in (2, 5)
        for row in ("tile counted twice", "last slice dropped")
    ),
    ("embedding_bag", {"tokens": 33, "bags": 200, "dim": 20, "vocab": 8, "touched_rows": 6, "dtype": "fp64"},
     "mean for sum mode"),
    ("optimizer", {"parameters": 9, "rule": "radam", "dtype": "fp64"}, "bits lost p"),
    *(
        ("optimizer", {"parameters": 10, "rule": "rmsprop", "dtype": "bf16", "state_dtype": "fp32"}, name)
        for name in ("bits lost v", "computed in fewer bits")
    ),
    ("sgd", {"parameters": 1, "decay": True, "dtype": "bf16"}, "choice ignored decay"),
    ("fake_quantise", {"channels": 6, "columns": 128, "mask": True, "scalars": True, "dtype": "fp16"},
     "columns swapped mask"),
    ("scatter", {"rows": 31, "width": 12, "table_rows": 33, "in_place": True, "dtype": "fp16"},
     "last slice dropped table[0]"),
    ("scatter", {"rows": 24, "width": 17, "table_rows": 3, "scalar": True, "dtype": "fp64"},
     "last slice dropped table[0]"),
    long("varlen_attention", {"tokens": 31, "heads": 1, "dim": 4, "sequences": 257, "causal": True, "dtype": "fp16"},
     "wrong group or row offsets[0]"),
    ("optimizer", {"parameters": 1, "rule": "adadelta", "dtype": "fp16"}, "epsilon inside the root"),
]  # fmt: skip


def mutant(case, name):
    return {one.name: one for one in mutants_of(case)}[name]


@pytest.mark.parametrize(
    ("op", "arguments", "name"), first_of_each(KILLED, count=16), ids=lambda part: part if isinstance(part, str) else ""
)
def test_wrong_kernels_at_unseen_shapes_are_killed(op, arguments, name):
    case = nearpeak.case(op, **arguments)
    assert killed_by(case, mutant(case, name).implementation(), seed=1)


RIGHT = [
    long("selective_scan", {"batch": 2, "tokens": 257, "channels": 3, "state": 4, "dtype": "fp16"}),
    ("vector_search", {"queries": 48, "vectors": 128, "dim": 4, "k": 3, "lists": 127, "probes": 17, "dtype": "fp64"}),
    ("scaled_gemm", {"m": 9, "n": 32, "k": 2, "dtype": "int8_weight_only", "out_dtype": "bf16"}),
    ("segment_reduce", {"rows": 9, "segments": 12, "width": 3, "dtype": "bf16"}),
    ("segment_reduce", {"rows": 2, "segments": 5, "width": 3, "function": "max", "dtype": "fp32"}),
    long("ctc_loss", {"batch": 2, "time": 80, "classes": 16, "labels": 1, "dtype": "fp32"}),
    ("ctc_loss", {"batch": 32, "time": 2, "classes": 5, "labels": 2, "dtype": "fp32"}),
    long("pq_search", {"queries": 5, "vectors": 127, "dim": 48, "parts": 8, "k": 31, "dtype": "fp16"}),
    ("vector_search", {"queries": 7, "vectors": 65, "dim": 33, "k": 64, "lists": 2, "probes": 2, "dtype": "fp64"}),
    ("vector_search", {"queries": 4, "vectors": 40, "dim": 5, "k": 9, "dtype": "bf16", "metric": "cosine"}),
    ("vector_search", {"queries": 3, "vectors": 20, "dim": 1, "k": 8, "dtype": "fp32", "metric": "cosine"}),
    long("vector_search", {"queries": 2, "vectors": 257, "dim": 1, "k": 4, "dtype": "fp16", "metric": "cosine"}),
    ("wkv", {"batch": 40, "tokens": 1, "channels": 64, "dtype": "fp16"}),
    ("kthvalue", {"rows": 3, "columns": 7, "k": 2, "dtype": "fp32"}),
    ("weight_norm", {"rows": 127, "columns": 1, "dtype": "fp32"}),
    ("selective_scan", {"batch": 2, "tokens": 4, "channels": 128, "state": 17, "softplus": False, "skip": False,
                        "ended": True, "dtype": "fp16"}),
    ("conv_transpose", {"batch": 1, "in_channels": 2, "out_channels": 127, "w": 6, "kw": 3, "sw": 3, "pw": 5, "dw": 5,
                        "pw_end": 0, "ow": 128, "bias": True, "dtype": "bf16"}),
    long("recurrent", {"batch": 2, "steps": 48, "features": 3, "hidden": 4, "cell": "gru", "dtype": "bf16"}),
    long("recurrent", {"batch": 2, "steps": 32, "features": 3, "hidden": 17, "cell": "gru", "dtype": "bf16"}),
    ("histogram", {"elements": 127, "bins": 65, "dtype": "fp32"}),
    ("histogram", {"elements": 20, "bins": 200, "dtype": "fp64"}),
    long("adaptive_avg_pool", {"batch": 1, "channels": 80, "w": 7, "ow": 127, "d": 5, "h": 4, "od": 9, "oh": 2,
                               "dtype": "fp16"}),
    ("conv_transpose", {"batch": 1, "in_channels": 6, "out_channels": 5, "w": 16, "kw": 7, "h": 16, "kh": 7,
                        "dtype": "fp16"}),
    ("elementwise", {"function": "nextafter", "elements": 257, "dtype": "fp64"}),
    ("elementwise", {"function": "nextafter", "elements": 33, "dtype": "bf16"}),
    ("layer_norm", {"rows": 200, "hidden": 2, "dtype": "fp32"}),
    ("layer_norm", {"rows": 200, "hidden": 2, "dtype": "fp64"}),
    ("group_norm", {"batch": 200, "channels": 1, "spatial": 2, "groups": 1, "dtype": "fp64"}),
    ("batch_norm", {"batch": 2, "channels": 48, "spatial": 1, "train": True, "dtype": "fp64"}),
    ("mode", {"rows": 31, "columns": 2, "dtype": "bf16"}),
    ("paged_attention", {"batch": 3, "heads": 4, "tokens": 50, "pages": 5, "dim": 24, "kv_heads": 2, "dtype": "bf16"}),
    ("paged_attention", {"batch": 3, "heads": 4, "tokens": 150, "pages": 12, "dim": 32, "kv_heads": 2,
                         "dtype": "bf16"}),
    ("segment_reduce", {"rows": 128, "segments": 3, "width": 80, "function": "max", "dtype": "fp16"}),
    ("non_max_suppression", {"batch": 2, "boxes": 9, "classes": 2, "dtype": "fp32"}),
    ("linalg", {"batch": 2, "n": 120, "function": "determinant", "dtype": "fp64"}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arguments"), first_of_each(RIGHT, count=8))
def test_right_kernels_at_unseen_shapes_are_accepted(op, arguments):
    case = nearpeak.case(op, **arguments)
    # On some processors PyTorch's own kernel is wrong for NaN.
    assert validate(case, pytorch(case), seed=1).status == "PASS" or defect(case, pytorch(case), seed=1)


def test_a_transposed_convolution_that_loses_bits_of_each_channel_is_refused_where_pytorch_stores_every_tap():
    case = nearpeak.case("conv_transpose", batch=1, in_channels=64, out_channels=4, w=5, kw=3, h=5, kh=3, dtype="fp16")
    (lost,) = (one for one in mutants_of(case) if one.name == "sums in fewer bits input[1]")
    assert killed_by(case, lost.implementation(), seed=1)


@pytest.mark.long
def test_a_single_loss_is_not_measured_against_one_that_is_right_by_luck():
    case = nearpeak.case("linear_cross_entropy", rows=200, hidden=2, classes=128, grad_input=True, dtype="bf16")
    (backwards,) = (one for one in variants_of(case) if one.name == "rows of extent 200 in reverse")
    assert validate(case, backwards, seed=1).status == "PASS"
    off = replace(
        backwards, call=lambda tensors, **given: {**(y := backwards.call(tensors, **given)), "y": y["y"] * 1.03}
    )
    assert validate(case, off, seed=1).failed


def test_scale_and_shift_in_fp16_are_right_and_statistics_in_bf16_are_not():
    case = nearpeak.case("batch_norm", batch=1, channels=5, spatial=33, train=False, running=True, dtype="fp16")
    # PyTorch's kernel for channels-last inputs on a CPU stores both.
    (by_columns,) = (one for one in variants_of(case) if one.name == "matrices by columns")
    assert validate(case, by_columns, seed=1).status == "PASS"
    assert killed_by(case, mutant(case, "computed in fewer bits").implementation(), seed=1)


def test_a_single_sum_may_be_as_far_off_as_that_of_pytorch_in_another_round():
    case = nearpeak.case("cross_entropy", rows=257, classes=7, dtype="fp16")
    (backwards,) = (one for one in variants_of(case) if one.name == "rows of extent 257 in reverse")
    assert validate(case, backwards, seed=1).status == "PASS"
    off = replace(backwards, call=lambda tensors, **given: {"y": backwards.call(tensors, **given)["y"] * 1.01})
    assert validate(case, off, seed=1).failed


def test_labels_need_a_class_beside_the_blank():
    case = nearpeak.case("ctc_loss", batch=2, time=8, classes=1, labels=2, dtype="fp32")
    with pytest.raises(SpecError, match="labels=2 contradicts"):
        validate(case, pytorch(case), seed=1)


PROOFS = [
    ("one_hot", {"rows": 6, "classes": 1, "dtype": "fp64"}, "constant kernel"),
    ("one_hot", {"rows": 6, "classes": 1, "dtype": "fp64"}, "operand ignored index"),
    ("vector_search", {"queries": 3, "vectors": 9, "dim": 1, "k": 4, "dtype": "fp32", "metric": "cosine"},
     "gradient zero"),
    ("vector_search", {"queries": 3, "vectors": 9, "dim": 4, "k": 4, "dtype": "fp32", "metric": "cosine"},
     "tile counted twice queries[0]"),
    ("interpolate", {"planes": 1, "w": 2, "ow": 9, "dtype": "bf16", "mode": "linear"}, "columns swapped y"),
    ("margin_loss", {"rows": 4, "classes": 5, "function": "multilabel_margin", "reduction": "none", "dtype": "fp64"},
     "bits lost is_target"),
    ("margin_loss", {"rows": 1, "classes": 16, "dtype": "fp32", "reduction": "mean"}, "sum for mean reduction"),
    ("non_max_suppression", {"batch": 1, "boxes": 2, "classes": 2, "dtype": "fp64"}, "wrong group or row boxes[1]"),
    ("scatter", {"rows": 65, "width": 8, "table_rows": 7, "scalar": True, "dtype": "fp64"},
     "wrong group or row index[0]"),
    ("scatter", {"rows": 1, "width": 3, "table_rows": 20, "in_place": True, "dtype": "bf16"},
     "choice ignored in_place"),
    ("unique", {"elements": 2, "inverse": True, "counts": True, "dtype": "int64"}, "columns swapped counts"),
    ("avg_pool", {"batch": 5, "channels": 2, "w": 31, "kw": 3, "h": 3, "kh": 5, "sh": 3, "ph": 1, "pw": 1,
                  "ceil": True, "count_padding": False, "dtype": "fp64"}, "padding left out ph"),
    ("max_pool", {"batch": 4, "channels": 3, "w": 1, "kw": 2, "sw": 3, "pw": 1, "ceil": True, "dtype": "fp16"},
     "padding left out pw"),
    ("margin_loss", {"rows": 12, "classes": 6, "labels": 2, "function": "multilabel_margin", "dtype": "fp64"},
     "upstream reversed"),
    ("decomposition", {"batch": 2, "m": 5, "n": 1, "function": "svd_full", "dtype": "fp32"}, "bits lost y2"),
    ("paged_attention", {"batch": 1, "heads": 4, "tokens": 12, "pages": 4, "dim": 4, "page": 3, "kv_heads": 2,
                         "dtype": "fp64", "kv_dtype": "fp8_e4m3"}, "wrong group or row table[0]"),
    ("fractional_max_pool", {"batch": 1, "channels": 2, "w": 7, "kw": 2, "ow": 3, "h": 2, "kh": 2, "dtype": "fp64"},
     "wrong group or row input[2]"),
    ("segment_reduce", {"rows": 3, "segments": 1, "width": 20, "function": "max", "dtype": "fp32"},
     "wrong group or row x[0]"),
    ("vector_search", {"queries": 6, "vectors": 24, "dim": 6, "k": 8, "lists": 2, "probes": 2, "dtype": "fp32"},
     "wrong group or row list_of[0]"),
    ("weight_norm", {"rows": 6, "columns": 1, "dtype": "fp16"}, "bits lost norm"),
    ("decomposition", {"batch": 2, "m": 9, "n": 3, "function": "qr_complete", "dtype": "fp32"}, "columns swapped y0"),
    ("decomposition", {"batch": 12, "m": 6, "n": 128, "function": "qr_right", "dtype": "fp32"},
     "wrong group or row a[1]"),
    ("histogram", {"elements": 64, "bins": 1, "weighted": True, "dtype": "int64", "out_dtype": "fp64"},
     "wrong group or row weights[0]"),
    ("nll_loss", {"rows": 200, "classes": 7, "reduction": "mean", "dtype": "bf16"}, "sums in fewer bits x[0]"),
    ("attention", {"batch": 6, "heads": 13, "q": 12, "kv": 5, "dim": 4, "causal": True, "align": "lower_right",
                   "mask": "alibi", "dtype": "bf16"}, "computed in fewer bits"),
    ("varlen_attention", {"tokens": 1, "heads": 1, "dim": 4, "sequences": 3, "dtype": "fp16"},
     "wrong group or row offsets[0]"),
    ("attention", {"batch": 1, "heads": 2, "q": 3, "kv": 1, "dim": 4, "causal": True, "align": "lower_right",
                   "mask": "alibi", "dtype": "fp16"}, "computed in fewer bits"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("op", "arguments", "name"), first_of_each(PROOFS, count=10), ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_changes_nothing_at_unseen_shapes_is_proved(op, arguments, name):
    case = nearpeak.case(op, **arguments)
    found = mutant(case, name)
    assert not killed_by(case, found.implementation(), seed=1)
    assert reason_for_equivalence(case, found, seed=2).startswith(PROVED)


def test_pytorch_keeps_the_sums_of_this_loss_in_bf16_as_a_proof_says():
    x, target = -torch.full((300, 2), 1.0078125, dtype=torch.bfloat16), torch.zeros(300, dtype=torch.int64)
    sums = [float(torch.nn.functional.nll_loss(one, target, reduction="sum").bfloat16()) for one in (x, x.float())]
    assert sums == [304.0, 302.0]


@pytest.mark.parametrize(
    ("op", "arguments", "name"),
    [
        ("nll_loss", {"rows": 200, "classes": 7, "reduction": "mean", "dtype": "fp32"}, "sums in fewer bits x[0]"),
        ("attention", {"batch": 2, "heads": 3, "q": 12, "kv": 5, "dim": 4, "causal": True, "align": "lower_right",
                       "mask": "alibi", "dtype": "fp32"}, "computed in fewer bits"),
        ("attention", {"batch": 1, "heads": 2, "q": 3, "kv": 2, "dim": 4, "mask": "alibi", "dtype": "fp16"},
         "computed in fewer bits"),
        ("non_max_suppression", {"batch": 1, "boxes": 5, "classes": 2, "dtype": "fp64"}, "wrong group or row boxes[1]"),
        ("varlen_attention", {"tokens": 6, "heads": 1, "dim": 4, "sequences": 3, "dtype": "fp64"},
         "operand ignored offsets"),
        ("interpolate", {"planes": 2, "w": 5, "ow": 9, "dtype": "bf16", "mode": "linear"}, "columns swapped y"),
        ("margin_loss", {"rows": 2, "classes": 16, "dtype": "fp32", "reduction": "mean"}, "sum for mean reduction"),
        ("max_pool", {"batch": 4, "channels": 3, "w": 2, "kw": 2, "sw": 3, "pw": 1, "ceil": True, "dtype": "fp16"},
         "padding left out pw"),
        ("margin_loss", {"rows": 12, "classes": 6, "labels": 2, "function": "multilabel_margin", "reduction": "none",
                         "dtype": "fp64"}, "upstream reversed"),
        ("decomposition", {"batch": 2, "m": 5, "n": 2, "function": "svd_full", "dtype": "fp32"}, "bits lost y2"),
        ("decomposition", {"batch": 2, "m": 9, "n": 8, "function": "qr_complete", "dtype": "fp32"},
         "columns swapped y0"),
        ("max_pool", {"batch": 3, "channels": 2, "w": 2, "kw": 1, "h": 3, "kh": 2, "dtype": "fp64"},
         "wrong group or row input[2]"),
    ],
)  # fmt: skip
def test_no_proof_reaches_further_than_its_argument(op, arguments, name):
    case = nearpeak.case(op, **arguments)
    assert killed_by(case, mutant(case, name).implementation(), seed=1)
    assert reason_for_equivalence(case, mutant(case, name), seed=1) == ""


def test_positions_are_right_by_the_values_that_they_name():
    values = torch.tensor([[1.0, 1.05, 3.0, 9.0]])
    apart = torch.full((1, 4), 0.04)
    wanted = [[0, 1, 2]]
    for got, right in (([1, 0, 2], wanted[0]), ([0, 1, 3], [0, 1, 3]), ([1, 1, 2], [1, 1, 2]), ([0, 1, 4], [0, 1, 4])):
        assert matched_ties(torch.tensor([got]), values, wanted, apart).tolist() == [right]
    assert matched_ties(torch.tensor([[1, 0, 2]]), values, wanted).tolist() == [[1, 0, 2]]
    nowhere = torch.tensor([[0, -1, -1]])
    assert matched_ties(nowhere, torch.tensor([[1.0, torch.inf, torch.inf]]), [[0, -1, -1]], apart[:, :3]).equal(
        nowhere
    )


@pytest.mark.parametrize("change", ["scaled", "of another choice"])
def test_a_gradient_is_judged_at_the_positions_of_its_own_call(change):
    case = nearpeak.case("vector_search", queries=5, vectors=60, dim=4, k=20, dtype="bf16")

    def wrong(tensors, **arguments):
        found = dict(OPS["vector_search"].torch_call(tensors, **arguments))
        y = found["distances"]
        other = 1.25 * y if change == "scaled" else y.flip(-1)
        return {**found, "distances": y.detach() + (other - other.detach())}

    failed = [one.check for one in validate(case, wrong, seed=1).results if one.failed]
    assert failed == ["V9"]


@pytest.mark.parametrize("order", [True, False])
@pytest.mark.parametrize(("op", "axes"), [("topk", {"columns": 40, "k": 6}), ("kthvalue", {"columns": 40, "k": 6})])
def test_a_gradient_is_that_of_either_of_equal_values(op, axes, order):
    case = nearpeak.case(op, rows=5, dtype="bf16", **axes)

    def sorted_stably(tensors, k, **_):
        x, descends = tensors["x"], op == "topk"
        turned = x if order else x.flip(-1)
        at = torch.sort(turned, dim=-1, descending=descends, stable=True).indices
        at = at if order else x.shape[-1] - 1 - at
        at = at[:, :k] if op == "topk" else at[:, k - 1 : k]
        found = {"values": x.gather(-1, at), "indices": at}
        return found if op == "topk" else {name: one[:, 0] for name, one in found.items()}

    assert validate(case, sorted_stably, seed=11).status == "PASS"


def test_a_state_that_starts_from_zeros_is_not_a_product_with_an_infinity():
    k = torch.zeros(1, 3, 1)
    k[0, 0] = -torch.inf
    tensors = {"k": k, "v": torch.ones(1, 3, 1), "w": torch.zeros(1), "u": torch.zeros(1)}
    for y in (
        OPS["wkv"].torch_call(tensors, ended=False, dtype="fp32", state_dtype="fp32")["y"].numpy(),
        OPS["wkv"].reference({name: one.numpy() for name, one in tensors.items()}, ended=False)["y"],
    ):
        assert (y[0, 1:] == 1).all()


def test_what_an_exact_result_is_at_the_end_of_its_format_is_not_infinite():
    case = nearpeak.case("quantise", rows=8, columns=12, block_rows=3, dtype="bf16", out_dtype="fp8_e5m2")
    one = draw_inputs(case, 1, "normal").expected["q"]
    got = one.rounded.copy()
    assert mask_fault(got, one) == ""
    got.flat[abs(got).argmax()] *= torch.inf
    assert "infinity differs" in mask_fault(got, one)


def test_rows_of_an_input_that_only_its_nan_tells_are_not_reversed():
    case = nearpeak.case("wkv", batch=8, tokens=1, channels=6, dtype="fp32")
    names = {one.name for one in variants_of(case)}
    assert "rows of extent 6 in reverse" not in names
    assert "rows of extent 8 in reverse" in names


def test_rows_are_reversed_only_where_sequences_of_any_length_allow_it():
    case = nearpeak.case("varlen_attention", tokens=12, heads=2, dim=4, sequences=100, causal=True, dtype="bf16")
    assert "rows of extent 12 in reverse" not in {one.name for one in variants_of(case)}


def test_every_row_of_a_table_matters_where_most_rounds_overwrite_it():
    case = nearpeak.case("scatter", rows=65, width=3, table_rows=7, scalar=True, dtype="fp64")
    asked = rounds_of(case, 3)
    wanted = {part for part in obligations_of(asked[0]) if part[0] == "table"}
    assert wanted == set().union(*(_shown(one, wanted) for one in asked))


@pytest.mark.parametrize("cell", ["rnn_tanh", "gru"])
def test_gradients_of_wide_recurrences_are_told_from_wrong_ones(cell):
    case = nearpeak.case("recurrent", batch=2, steps=5, features=3, hidden=80, cell=cell, dtype="bf16")
    asked = gradient_rounds(Trial(case=case, implementation=pytorch(case), seed=1))
    told = [_exposed(one, 1) for one in asked]
    assert all(any(one[name] for one in told) for name in told[0])


def test_rows_that_are_broadcast_to_all_are_not_computed_in_two_tiles():
    for rows in (2, 3):
        case = nearpeak.case("dequantise", rows=rows, columns=5, dtype="fp8_e4m3")
        assert f"two tiles of extent {rows}, last first" not in {one.name for one in variants_of(case)}
