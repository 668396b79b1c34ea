"""Proofs from an operator's definition that a mutant is equivalent: few possible values, invariances."""

import dis
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.ops.shared.live_pairs import Band, band_live
from nearpeak.ops.shared.torch_names import torch_format
from nearpeak.validation.mutants import elementwise_equivalence, extent_equivalence, pooling_equivalence
from nearpeak.validation.mutants.function_mutants import epsilons_added
from nearpeak.validation.mutants.input_mutants import BLOCK
from nearpeak.validation.mutants.mutant import Mutant
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import declared_formats, draw_inputs
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.running.implementation_run import imported_torch

Arguments = Mapping[str, Any]


def of_values(case: Case, mutant: Mutant) -> str:
    """A change that leaves every possible value of a result unchanged, tried on all of them, changes nothing.

    A permutation of elements changes nothing where there is one possible value.
    """
    name = mutant.where.partition("[")[0]
    make = _VALUES.get(case.op)
    possible = {} if make is None else make(arguments_of(case))
    wanted = [name] if name else list(declared_formats(case))
    if mutant.inputs is not None and not mutant.of_gradient:
        single = all(spec in possible and np.size(possible[spec]) == 1 for spec in declared_formats(case))
        return "whatever the inputs, the definition allows one value" if single and declared_formats(case) else ""
    if mutant.of_gradient or any(spec not in possible for spec in wanted):
        return ""
    if mutant.row in _OF_RESULTS and all(np.size(possible[spec]) == 1 for spec in wanted):
        same = mutant.row not in _WITH_ZEROS or not any(np.any(possible[spec]) for spec in wanted)
        return "the definition allows one value, of which it makes the same" if same else ""
    for spec in wanted:
        values = imported_torch().as_tensor(possible[spec]).to(declared_formats(case)[spec])
        draw = draw_inputs(case, 0, "normal")
        drawn_within = draw is not None and bool(
            np.isin(draw.expected[spec].rounded * 1.0, widened(values) * 1.0).all()
        )
        if not drawn_within:
            return ""
        if mutant.moves is not None and len(values.unique()) == 1:
            continue
        if mutant.changes is None or not bool((mutant.changes(values.clone()) == values).all()):
            return ""
    counted = " and ".join(f"{len(possible[spec]):,} values of {spec}" for spec in wanted)
    return f"tried on all {counted} that the definition allows, it changes none"


_WITH_ZEROS = ("zero kernel", "tile zeroed")
_OF_RESULTS = (*_WITH_ZEROS, "stale output", "columns swapped")
"""Mistakes that compose their results of right elements, or of zeros."""


def _products(arguments: Arguments) -> dict[str, Any]:
    """Return every product of a quantised number and a scale, where both formats have one byte."""
    formats = [torch_format(str(arguments[name])) for name in ("dtype", "scale_dtype")]
    if any(not dtype.is_floating_point or dtype.itemsize > 1 for dtype in formats):
        return {}
    torch = imported_torch()
    codes = torch.arange(256, dtype=torch.uint8)
    number, scale = (widened(codes.view(dtype)) for dtype in formats)
    number, scale = (dtype[np.isfinite(dtype)] for dtype in (number, scale))
    return {"y": np.unique(np.outer(number, scale[scale > 0]))}


def _counts(most: str) -> Callable[[Arguments], dict[str, Any]]:
    return lambda arguments: {"y": np.arange(int(arguments[most]) + 1)}


def _factors(arguments: Arguments) -> dict[str, Any]:
    """Return the elements of the permutation of an LU factorisation, and of the lower factor of a single row."""
    if arguments["function"] not in ("lu_parts", "lu_unpacked"):
        return {}
    return {"y0": np.ones(1), "y1": np.ones(1)} if arguments["m"] == 1 else {"y0": np.arange(2)}


def _reduced(arguments: Arguments) -> dict[str, Any]:
    """Return counts, and the positions that one element can have."""
    function = str(arguments["function"])
    if function in _POSITIONS:
        return {_POSITIONS[function]: np.zeros(1)} if arguments["reduced"] == 1 else {}
    return _counts("reduced")(arguments) if function in ("norm_0", "count_nonzero") else {}


_POSITIONS = {"argmax": "y", "argmin": "y", "max_index": "second", "min_index": "second"}
"""By reduction: which output holds positions."""


def _targets(arguments: Arguments) -> dict[str, Any]:
    """Return the values of the mask of target classes."""
    return {"is_target": np.arange(2)} if arguments["function"] == "multilabel_margin" else {}


def _of_one_key(arguments: Arguments) -> dict[str, Any]:
    """Return every value of a one-byte format: where each sequence has one key, its value is the result."""
    stored = torch_format(str(arguments["kv_dtype"]))
    if arguments["tokens"] > arguments["batch"] or stored.itemsize > 1:
        return {}
    return {"output": _finite(stored)}


def _of_one_pair(arguments: Arguments) -> dict[str, Any]:
    """Return every value of a one-byte format: where each query sees one key, the result is that key's value."""
    stored = torch_format(str(arguments["kv_dtype"]))
    band = Band(*(arguments[name] for name in ("left", "right", "chunk", "causal", "align")))
    live = band_live(int(arguments["q"]), int(arguments["kv"]), band)
    if live.pairs > live.queries or arguments["sinks"] or stored.itemsize > 1:
        return {}
    return {"output": _finite(stored)}


def _finite(stored: Any) -> Any:
    """Return all finite values of a format of one byte."""
    values = widened(imported_torch().arange(256, dtype=imported_torch().uint8).view(stored))
    return values[np.isfinite(values)]


def _written(arguments: Arguments) -> dict[str, Any]:
    """Return the 1 that overwrites a table's only row."""
    replaces = arguments["scalar"] and not arguments["accumulate"]
    return {"table": np.ones(1)} if replaces and arguments["table_rows"] == 1 <= arguments["rows"] else {}


_VALUES: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    "scan": lambda axes: {"indices": np.zeros(1)} if axes["length"] == 1 else {},
    "softmax": lambda axes: {"y": np.zeros(1) if axes["log"] else np.ones(1)} if axes["columns"] == 1 else {},
    "one_hot": lambda axes: {"y": np.ones(1) if axes["classes"] == 1 else np.arange(2)},
    "histogram": lambda axes: {} if axes["weighted"] else _counts("elements")(axes),
    "random": lambda _: {"y": np.ones(1)},
    "dropout": lambda _: {"mask": np.ones(1)},
    "decomposition": _factors,
    "dequantise": _products,
    "cdist": lambda axes: _counts("k")(axes) if str(axes["norm"]) == "0" else {},
    "reduce": _reduced,
    "elementwise": elementwise_equivalence.values,
    "margin_loss": _targets,
    "paged_attention": _of_one_key,
    "attention": _of_one_pair,
    "scatter": _written,
}
"""By operator: possible values of outputs with counts, permutations, constants, or products of narrow formats. Random
operators are validated with degenerate distributions: ones, and masks that keep everything."""


def of_invariance(case: Case, mutant: Mutant) -> str:
    """Return the theorem by which the operator's definition is invariant under the mutant's change; empty if none."""
    for choice in ("", *(str(value) for _, value in case.attributes)):
        for where in (mutant.where, mutant.where.partition("[")[0]):
            if reason := _INVARIANT.get((case.op, choice, mutant.row, where), ""):
                return reason
    return ""


_ROTATED, _TRANSPOSED, _TWICE = "wrong group or row", "operand transposed", "tile counted twice"
_SYMMETRIC = "the matrices are drawn as halves of a sum with their transposes, which is the same, bit by bit"
_SINGULAR = "A and P A Q, with permutations P and Q, have the same singular values"
_EXACT_DOUBLE = "doubling is exact and keeps order, ties, zeros and the ratio of areas"
_INVARIANT: dict[tuple[str, str, str, str], str] = {
    **{
        ("decomposition", name, _TRANSPOSED, "a"): _SYMMETRIC
        for name in ("eigh", "eigh_values", "ldl")
    },
    ("decomposition", "eig_values", _TRANSPOSED, "a"): "a matrix and its transpose have one characteristic polynomial",
    ("decomposition", "singular_values", _TRANSPOSED, "a"): "a matrix and its transpose have the same singular values",
    ("decomposition", "singular_values", _ROTATED, "a[1]"): _SINGULAR,
    ("decomposition", "singular_values", _ROTATED, "a[2]"): _SINGULAR,
    ("decomposition", "qr_right", _ROTATED, "a[1]"): "R'R = A'A, to which the order of A's rows is nothing",
    ("decomposition", "lu_unpacked", _ROTATED, "operand_1[1]"): "the same two rows exchanged twice stay where they are",
    ("kfac_inverse", "", _TRANSPOSED, "factor"): "factors are given symmetric, products with their transposes",
    ("multinomial", "", "columns swapped", "y"): "one category of each row has all the weight, and all samples name it",
    ("multinomial", "", _TWICE, "weights[0]"): "weights count by their ratio within a row",
    ("nonzero", "", _TWICE, "x"): _EXACT_DOUBLE,
    **{("non_max_suppression", "", _TWICE, where): _EXACT_DOUBLE for where in ("boxes[0]", "scores[0]", "scores[1]")},
    ("non_max_suppression", "", _ROTATED, "boxes[2]"): "corners in turn are the same box with its axes exchanged",
    **{
        ("vector_search", "cosine", _TWICE, where): "doubling is exact, and cosines are of directions alone"
        for where in ("queries[0]", "vectors[0]", "centroids[0]")
    },
    **{("reduce", name, _TWICE, "x[0]"): _EXACT_DOUBLE for name in ("argmax", "argmin")},
    **{
        ("reduce", name, "ties to the last", where): "whether one or all are true does not turn on which one"
        for name in ("any", "all")
        for where in ("", "x")
    },
    ("quantise", "delayed", _ROTATED, "history[0]"): "the next scale is of the largest of the history, in any order",
    ("elementwise", "mantissa", _TWICE, "a[0]"): "doubling is exact and moves the exponent, not the mantissa",
    **elementwise_equivalence.INVARIANT,
    ("optimizer", "rprop", _TWICE, "o[0]"): "of the gradient before, the rule reads the sign alone",
}  # fmt: skip
"""By operator, attribute, mistake and place: why the result is the same. In each entry, whole rows are doubled."""


def of_place(case: Case, mutant: Mutant) -> str:
    """An attribute that the definition never reads decides the memory of results, not their values.

    A mutant that ignores it computes another case with the same definition, inputs and outputs.
    """
    operator, arguments = OPS[case.op], arguments_of(case)
    if not mutant.ignores or not never_reads(operator.reference, mutant.ignores):
        return ""
    if operator.inputs(**arguments) != operator.inputs(**{**arguments, mutant.ignores: False}):
        return ""
    return f"the definition never reads {mutant.ignores}: it says where the result lies, not what it is"


def never_reads(call: Callable[..., Any], name: str) -> bool:
    """Return whether neither a function nor its callees can read its argument `name`.

    >>> never_reads(lambda x, **_: x, "y"), never_reads(lambda x, **rest: str(rest), "y")
    (True, False)
    """
    parameters = inspect.signature(call).parameters
    rest = next((parameter.name for parameter in parameters.values() if parameter.kind is parameter.VAR_KEYWORD), None)
    read = {instruction.argval for instruction in dis.get_instructions(call) if instruction.opname.startswith("LOAD")}
    return name not in parameters and rest is not None and rest not in read


def of_one(case: Case, mutant: Mutant) -> str:
    """Mean and sum of a single element are that element."""
    draw = draw_inputs(case, 0, "normal")
    if mutant.row not in ("sum for mean", "mean for sum") or draw is None:
        return ""
    if all(tensor.numel() == 1 for tensor in draw.tensors.values()):
        return "mean and sum of one element are the element"
    if "reduction" not in draw.arguments:
        return ""
    arrays = {name: widened(tensor) for name, tensor in draw.tensors.items()}
    single, *others = (
        np.asarray(OPS[case.op].reference(arrays, **{**draw.arguments, "reduction": reduction})["y"])
        for reduction in ("none", "mean", "sum")
    )
    if single.size == 1 and all(single.item() == reduction.item() for reduction in others):  # a weighted mean differs
        return "mean and sum of the loss of one row are that loss"
    return ""


def of_shared(case: Case, mutant: Mutant) -> str:
    """Elements computed from one number are all equal; its gradient sums the upstream gradient in any order."""
    draw = draw_inputs(case, 0, "normal")
    if case.op != "elementwise" or mutant.moves is None or draw is None:
        return ""
    if mutant.of_gradient and mutant.row != "upstream reversed":
        return ""
    is_shared = all(tensor.numel() == 1 for tensor in draw.tensors.values())
    return "all elements are made of one number, and are the same" if is_shared and draw.tensors else ""


def of_epsilon(case: Case, mutant: Mutant) -> str:
    """In fp16, whose smallest numbers are far larger than epsilon, adding it inside or outside the root is the same."""
    if mutant.row != "epsilon inside the root" or set(dict(case.dtypes).values()) != {"fp16"}:
        return ""
    torch = imported_torch()
    numbers = torch.arange(0x7C00, dtype=torch.int16).view(torch.float16)
    added = epsilons_added(case) or _EPSILONS.get(case.op, frozenset())
    if added and all(bool(((numbers + epsilon).sqrt() == numbers.sqrt() + epsilon).all()) for epsilon in added):
        return f"of all {len(numbers):,} numbers of fp16 the root is the same, epsilon added before or after it"
    return ""


_EPSILONS = {"adamw": frozenset({1e-8})}
"""Epsilons that the PyTorch call passes to kernels that add them internally, by operator."""


def of_reflectors(case: Case, mutant: Mutant) -> str:
    """Householder reflectors are stored below the diagonal: other elements of the input are never read."""
    arguments, name = arguments_of(case), mutant.where.partition("[")[0]
    takes_reflectors = str(arguments.get("function", "")).startswith("reflectors_")
    if case.op != "decomposition" or not takes_reflectors or mutant.inputs is None or name != "a":
        return ""
    if (draw := draw_inputs(case, 0, "normal")) is None:
        return ""
    before, count = draw.tensors["a"], min(arguments["m"], arguments["n"])
    after = mutant.inputs({key: tensor.clone() for key, tensor in draw.tensors.items()})["a"]
    if before.shape == after.shape and not bool((before != after)[..., :count].tril(-1).any()):
        return "it changes nothing below the diagonal of the reflectors' columns, where alone they are stored"
    return ""


def of_conversion(case: Case, mutant: Mutant) -> str:
    """PyTorch rounds fp64 to 16 and 8 bits through fp32: checked on both sides of every midpoint of a binade.

    Rounding is monotone, so that results can only change next to a midpoint.
    """
    formats = dict(case.dtypes)
    narrow = {"fp16": 10, "bf16": 7, "fp8_e4m3": 3, "fp8_e5m2": 2}.get(formats.get("out_dtype", ""))
    if case.op != "cast" or mutant.row != "computed in fewer bits" or formats["dtype"] != "fp64" or narrow is None:
        return ""
    torch = imported_torch()
    middles = 1 + (torch.arange(2**narrow, dtype=torch.float64) + 0.5) * 2.0**-narrow
    beside = torch.cat([middles + sign * 2.0**-52 for sign in (-1, 0, 1)])
    dtype = torch_format(formats["out_dtype"])
    if torch.equal(beside.to(dtype).double(), beside.float().to(dtype).double()):
        return f"PyTorch's own conversion goes through fp32, tried beside all {len(middles):,} middles of a binade"
    return ""


def of_counted(case: Case, mutant: Mutant) -> str:
    """Counts of non-zero numbers depend on nothing else, and bf16 has the exponents of fp32.

    bf16 rounds nothing above 2^-134, half its smallest number, to zero; smaller numbers are subnormal in fp32, and may
    be flushed to zero. fp64 has normal numbers there, so that there is no proof.
    """
    chosen = {str(value) for _, value in case.attributes} & {"norm_0", "count_nonzero"}
    if case.op != "reduce" or mutant.row != "computed in fewer bits" or dict(case.dtypes).get("dtype") != "fp32":
        return ""
    return "bf16 has the exponents of fp32: only subnormal numbers, which may be flushed, become zero" if chosen else ""


def of_flat(case: Case, mutant: Mutant) -> str:
    """The gradient of a piecewise constant function is zero for every upstream gradient."""
    chosen = {str(value) for _, value in case.attributes} & _FLAT.get(case.op, frozenset())
    if mutant.of_gradient and case.op == "vector_search" and extent_equivalence.are_numbers(arguments_of(case)):
        return "the cosine of two numbers is a sign, constant wherever it has a derivative, which is 0"
    if mutant.of_gradient and chosen:
        return f"{min(chosen)} is constant wherever it has a derivative, which is 0"
    return ""


_FLAT = {
    "elementwise": frozenset(
        {"floor", "ceil", "round", "trunc", "sign", "heaviside", "floor_divide", "trunc_divide", "sgn"}
    ),
    "cdist": frozenset({"0"}),
}
"""Piecewise constant functions by operator."""


def of_apart(case: Case, mutant: Mutant) -> str:
    """Results of a product with summands in one block only are never rounded by the accumulator.

    Products are polynomials: a partial sum that is 0 for drawn numbers is 0 for all.
    """
    draw = draw_inputs(case, 0, "normal")
    if mutant.row != "sums in fewer bits" or draw is None or set(map(str, declared_formats(case).values())) != _BF16:
        return ""
    name, _, dimension = mutant.where.removesuffix("]").partition("[")
    arrays = {key: widened(tensor) for key, tensor in draw.tensors.items()}
    along = np.moveaxis(arrays[name], int(dimension), 0)
    met: dict[str, Any] = {}
    for start in range(0, len(along), BLOCK):
        share = np.zeros_like(along)
        share[start : start + BLOCK] = along[start : start + BLOCK]
        results = OPS[case.op].reference({**arrays, name: np.moveaxis(share, 0, int(dimension))}, **draw.arguments)
        for key, value in results.items():
            met[key] = met.get(key, 0) + (np.asarray(value) != 0)
    apart = all(np.all(count <= 1) for count in met.values())
    return f"no result has summands in two blocks of {BLOCK}, so that nothing is added" if apart else ""


_BF16 = {"torch.bfloat16"}


ARGUMENTS: tuple[Callable[[Case, Mutant], str], ...] = (
    of_values,
    extent_equivalence.of_extents,
    of_place,
    of_one,
    of_shared,
    of_epsilon,
    of_reflectors,
    of_conversion,
    of_counted,
    of_flat,
    of_apart,
    *pooling_equivalence.ARGUMENTS,
)
