"""Proofs that a mutant is equivalent, from the operator's definition and the axes of the case alone."""

from functools import cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.ops.shared.attention_reference import SOFT_CAP
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.comparison.ties import canonical, ranked
from nearpeak.validation.mutants import definition_identities, program_equivalence
from nearpeak.validation.mutants.mutant import Mutant
from nearpeak.validation.oracle.autograd_gradients import live_outputs
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import declared_formats, draw_inputs
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.oracle.gradient_oracle import upstream_of
from nearpeak.validation.running.implementation_run import imported_torch

_WITHOUT_INPUTS = ("writes beside its output", "changes an input")


def argument_for(case: Case, mutant: Mutant) -> str:
    """Return why `mutant` gives the same results for all inputs; empty where no proof is known."""
    simple = (
        _of_moves,
        _of_empty,
        _of_formats,
        _of_unread,
        _of_range,
        _of_extremes,
        _of_windows,
        _of_single,
        _of_nothing_below,
    )
    arguments = (
        *simple,
        _of_choice,
        _of_units,
        _of_form,
        *definition_identities.ARGUMENTS,
        *program_equivalence.ARGUMENTS,
    )
    return next((reason for argument in arguments if (reason := argument(case, mutant))), "")


def _of_moves(case: Case, mutant: Mutant) -> str:
    """A permutation is the identity if it leaves every position of a tensor of the same shape in place."""
    draw = draw_inputs(case, 0, "normal")
    if mutant.moves is None or draw is None:
        return ""
    name = mutant.where.partition("[")[0]
    shapes = {key: expected.values.shape for key, expected in draw.expected.items()}
    shapes |= {key: tuple(tensor.shape) for key, tensor in draw.tensors.items()}
    if not mutant.of_gradient:
        shapes = {name: shapes[name]} if name in shapes else {}
    else:
        live, upstream = live_outputs(draw), upstream_of(draw, draw.seed) or {}
        shapes = {key: tuple(expected.shape) for key, expected in upstream.items() if key in live}
    torch = imported_torch()
    places = [torch.arange(int(np.prod(shape))).reshape(shape) for shape in shapes.values()]
    if places and all(bool((mutant.moves(array.clone()) == array).all()) for array in places):
        described = " and ".join(str(list(shape)) for shape in shapes.values())
        return f"it leaves every element of {described} in its place"
    return ""


def _of_empty(case: Case, mutant: Mutant) -> str:
    """A mistake in inputs changes nothing where there are none, or where all are outputs too."""
    names = set(OPS[case.op].inputs(**arguments_of(case)))
    if mutant.row == _WITHOUT_INPUTS[0] and not names:
        return "there is no input beside which it could write"
    if mutant.row == _WITHOUT_INPUTS[1] and names <= declared_formats(case).keys():
        return "every input is an output, which may change"
    return ""


def _of_formats(case: Case, mutant: Mutant) -> str:
    """Bit truncation leaves formats alone that it does not know; a format without a sign has none to flip."""
    dtype = declared_formats(case).get(mutant.where)
    if mutant.row == "sign of one row" and dtype is imported_torch().float8_e8m0fnu:
        return f"{dtype} has no sign"
    known = ("float64", "float32", "bfloat16", "float16")
    if mutant.row == "bits lost" and dtype is not None and str(dtype).removeprefix("torch.") not in known:
        return f"it leaves {dtype} as it is"
    return ""


def _of_unread(case: Case, mutant: Mutant) -> str:
    """An argument that neither the call nor its callees read cannot change the result."""
    if mutant.ignores and definition_identities.never_reads(OPS[case.op].torch_call, mutant.ignores):
        return f"the call never reads {mutant.ignores}: the tensors that it is given say the same"
    return ""


def _of_range(case: Case, mutant: Mutant) -> str:
    """Exponentials of scores that are capped cannot overflow."""
    attributes = dict(case.attributes)
    if mutant.row != "no maximum subtracted" or not attributes.get("softcap") or attributes.get("mask") == "float":
        return ""
    torch = imported_torch()
    keys = max(dict(case.axes).get("kv", 1), 1) + 1
    largest = min(
        torch.finfo(torch_format(value)).max for _, value in case.dtypes if torch_format(value).is_floating_point
    )
    if np.log(keys) + SOFT_CAP < np.log(max(float(largest), float(torch.finfo(torch.float32).max))):
        return f"scores stay below {SOFT_CAP:g}, and {keys} exponentials of them below the largest number of fp32"
    return ""


_LARGEST = ("max_pool", "adaptive_max_pool")


def _of_extremes(case: Case, mutant: Mutant) -> str:
    """A maximum that is the same with the changed elements set very high and very low does not depend on them."""
    draw = draw_inputs(case, 0, "normal")
    if case.op not in _LARGEST or mutant.inputs is None or mutant.moves is not None or draw is None:
        return ""
    reference, name = OPS[case.op].reference, mutant.where.partition("[")[0]
    before = draw.tensors[name].double()
    changed = (mutant.inputs({key: tensor.clone() for key, tensor in draw.tensors.items()})[name] != before).numpy()
    results = []
    for end in (-1e30, 1e30):
        array = np.where(changed, end, before.numpy())
        results.append(reference({name: array}, **draw.arguments))
    if all(np.array_equal(results[0][key], results[1][key]) for key in results[0]):
        return "no window reaches what it changes: made largest of all, it is no maximum"
    return ""


def _of_windows(case: Case, mutant: Mutant) -> str:
    """Maxima of windows stay the same if each element moves to a position in the same windows.

    The windows of an element are those whose maximum it is when it is the largest of all.
    """
    draw, name = draw_inputs(case, 0, "normal"), mutant.where.partition("[")[0]
    if case.op not in _LARGEST or mutant.moves is None or mutant.inputs is None or mutant.of_gradient or draw is None:
        return ""
    shape = tuple(draw.tensors[name].shape)
    places = imported_torch().arange(int(np.prod(shape))).reshape(shape)
    pairs = [(at, of) for at, of in enumerate(mutant.moves(places).reshape(-1).tolist()) if at != of]
    if any(expected.values.dtype.kind != "f" for expected in draw.expected.values()) or len(pairs) > _MOST_MOVED:
        return ""

    @cache
    def reached(at: int) -> tuple[bytes, ...]:
        array = np.zeros(shape)
        array.flat[at] = 1.0
        return tuple(
            expected.tobytes() for expected in OPS[case.op].reference({name: array}, **draw.arguments).values()
        )

    if all(reached(at) == reached(of) for at, of in pairs):
        return "the same windows hold each element and the one that takes its place"
    return ""


_MOST_MOVED = 20_000
"""Most elements that are tried one by one."""


def _of_single(case: Case, mutant: Mutant) -> str:
    """Positions along a dimension of one element are all 0, also when permuted or zeroed."""
    source, draw = OPS[case.op].tolerance.picks.get(mutant.where), draw_inputs(case, 0, "normal")
    if source is None or draw is None or mutant.row not in _AT_ZERO:
        return ""
    if ranked(case, draw.tensors, source).shape[-1] != 1:
        return ""
    return f"{mutant.where} are positions in a dimension of one element, all 0"


def _of_nothing_below(case: Case, mutant: Mutant) -> str:
    """Non-negative integers below 1 are all 0, in any order."""
    name = mutant.where.partition("[")[0]
    numerics, arguments = OPS[case.op].tolerance, arguments_of(case)
    if mutant.inputs is None or mutant.of_gradient or name not in numerics.below or OPS[case.op].valid is not None:
        return ""
    whole = not torch_format(_inputs(case)[name].dtype).is_floating_point
    return f"{name} holds positions below 1, which are all 0" if whole and numerics.limit(name, arguments) == 1 else ""


_AT_ZERO = ("tile zeroed", "columns swapped")


def argument_for_all(case: Case, mutant: Mutant) -> str:
    """Return why agreement at drawn points implies agreement everywhere; empty where it does not.

    Both sides are analytic functions of the drawn numbers: if they differ anywhere, they agree only on a set of measure
    zero, which random numbers hit with probability 0 (for polynomials, Schwartz 1980, J. ACM 27).
    """
    if known := definition_identities.of_invariance(case, mutant):
        return known
    if not _inputs(case) and not OPS[case.op].draws:
        return "the operator reads nothing, so that there is no other answer"
    if mutant.moves is not None and mutant.where.partition("[")[0] in _UNORDERED.get(case.op, ()):
        return "the operator is defined on its elements in any order, and they are only moved"
    if not analytic(case) or mutant.row in _NOT_ANALYTIC:
        return _of_independence(case, mutant) if analytic(case) else ""
    whole = [name for name, t in _inputs(case).items() if not torch_format(t.dtype).is_floating_point]
    if any(mutant.where.partition("[")[0] == name for name in whole):
        return ""
    return "analytic in what is drawn, so that it holds everywhere" + (f" for each {whole[0]} drawn" if whole else "")


def _of_independence(case: Case, mutant: Mutant) -> str:
    """Analytic results that are the same for other drawn inputs do not depend on these, nor on their rounding."""
    first, other = (draw_inputs(case, seed, "normal") for seed in (0, 1))
    if mutant.inputs is None or mutant.of_gradient or first is None or other is None:
        return ""
    names = mutant.inputs({key: tensor.clone() for key, tensor in first.tensors.items()}).keys()
    arrays = {key: widened(tensor) for key, tensor in first.tensors.items()}
    redrawn = {name: widened(other.tensors[name]) for name in names}
    if not names or any(np.any(redrawn[name] == arrays[name]) for name in names):
        return ""
    left, right = (
        OPS[case.op].reference(dict(inputs), **first.arguments) for inputs in (arrays, {**arrays, **redrawn})
    )
    same = all(np.allclose(left[key], right[key], rtol=_SUM_RATIO, atol=0.0) for key in left)
    return f"analytic in what is drawn, and the same whatever {' and '.join(names)} are" if same else ""


def _inputs(case: Case) -> dict[str, Any]:
    return OPS[case.op].inputs(**arguments_of(case))


def analytic(case: Case) -> bool:
    """Return whether the results are analytic functions of the float inputs: no comparison, magnitude or rounding.

    >>> from nearpeak.ops import case
    >>> summed, largest = (case("reduce", outputs=2, reduced=3, dtype="fp32", function=one) for one in ("sum", "max"))
    >>> analytic(summed), analytic(largest)
    (True, False)
    """
    chosen = {str(value) for _, value in case.attributes}
    # The nearest position depends on the extents, not on the interpolated values.
    compares = _COMPARES - {"nearest"} if case.op == "interpolate" else _COMPARES
    return case.op in _ANALYTIC and not chosen & compares


_UNORDERED = {
    "isin": ("t",), "histogram": ("x",), "reduce": ("x",), "kthvalue": ("x",), "unique": ("x",), "mode": ("x",),
    "pdist": ("x",),
}  # fmt: skip
"""Inputs that are sets, sorted before use, or reduced independently of order."""
_NOT_ANALYTIC = ("bits lost", "NaN swallowed", "computed in fewer bits", "inputs in TF32", "sums in fewer bits")
_COMPARES = frozenset({
    "max", "min", "max_index", "min_index", "argmax", "argmin", "min_max", "any", "all", "count", "median", "norm",
    "abs", "l1", "smooth_l1", "huber", "hinge", "relu", "rnn_relu", "nearest", "amax", "amin",
})  # fmt: skip
_ANALYTIC = frozenset({
    "adamw", "adaptive_avg_pool", "attention", "avg_pool", "batch_norm", "cast", "collective", "conv",
    "conv_transpose", "copy", "cross", "cross_entropy", "ctc_loss", "delta_rule", "dequantise", "edge_pad", "embedding",
    "embedding_bag", "fft", "gather", "gemm", "group_norm", "grouped_gemm", "im2col", "interpolate", "kfac_factor",
    "kfac_precondition", "layer_norm", "lbfgs", "linalg", "linear_attention", "linear_cross_entropy",
    "local_response_norm", "masked_scatter", "masked_select", "max_unpool", "muon", "nll_loss", "paged_attention",
    "recurrent", "reduce", "rms_norm", "rotary_embedding", "scaled_gemm", "scan", "segment_reduce", "selective_scan",
    "sgd", "softmax", "ssd_scan", "transfer", "trilinear", "varlen_attention", "weight_norm", "wkv",
})  # fmt: skip
"""Operators made of sums, products, quotients, roots and exponentials alone, unless an attribute compares."""


def _of_choice(case: Case, mutant: Mutant) -> str:
    """The canonical form removes signs and orders that every implementation may choose.

    Only sums over columns in another order may round differently.
    """
    draw = draw_inputs(case, 0, "normal")
    if OPS[case.op].canonical is None or mutant.of_gradient or mutant.row not in _CHOICES or draw is None:
        return ""
    wanted = {name: expected.values for name, expected in draw.expected.items()}
    calls = (OPS[case.op].torch_call, mutant.make())
    copies = ({name: tensor.clone() for name, tensor in draw.tensors.items()} for _ in calls)
    answers = (call(tensors, **draw.arguments) for call, tensors in zip(calls, copies, strict=True))
    wide = (
        {name: expected.double() if expected.is_floating_point() else expected for name, expected in ans.items()}
        for ans in answers
    )
    right, other = (canonical(case, expected, wanted) for expected in wide)
    near = imported_torch().allclose
    same = all(near(right[name], other[name], rtol=0.0, atol=_SUM_RATIO) for name in wanted)
    return f"it changes the {_CHOICES[mutant.row]} of {mutant.where} alone, which is open" if same else ""


_CHOICES = {"sign of one row": "sign", "columns swapped": "order"}
_SUM_RATIO = 1e-12
"""Effect of summation order on products of unit columns in fp64; another column changes them by far more."""


def _of_units(case: Case, mutant: Mutant) -> str:
    """A unit column of one element is 1 or -1, which every format holds."""
    draw = draw_inputs(case, 0, "normal")
    if mutant.row != "bits lost" or mutant.of_gradient or draw is None or case.op != "decomposition":
        return ""
    if mutant.where not in _BASES.get(str(dict(case.attributes)["function"]), ()):
        return ""
    is_single = draw.expected[mutant.where].values.shape[-2:] == (1, 1)
    return f"{mutant.where} is a basis of one element, 1 or -1" if is_single else ""


_BASES = {"qr": ("y0",), "qr_complete": ("y0",), "svd": ("y0", "y2"), "svd_full": ("y0", "y2"), "eigh": ("y1",)}
"""Outputs of decompositions that are orthonormal."""


def _of_form(case: Case, mutant: Mutant) -> str:
    """A structured input may have only one valid value: a change that keeps it changes nothing."""
    draw, other = (draw_inputs(case, seed, "normal") for seed in (0, 1))
    if OPS[case.op].valid is None or mutant.inputs is None or mutant.of_gradient or draw is None or other is None:
        return ""
    name, same = mutant.where.partition("[")[0], imported_torch().equal
    first, second = draw.tensors.get(name), other.tensors.get(name)
    if first is None or second is None or first.is_floating_point() or not same(first, second):
        return ""
    changed = mutant.inputs({key: tensor.clone() for key, tensor in draw.tensors.items()})[name]
    return f"{name} has one valid value, which it leaves" if same(changed, first) else ""
