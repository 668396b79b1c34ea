"""Proofs that a mutant is equivalent because of the case's extents and attributes."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.validation.mutants.mutant import Mutant
from nearpeak.validation.oracle.expected_results import arguments_of

Arguments = Mapping[str, Any]


def of_extents(case: Case, mutant: Mutant) -> str:
    """Return why the change has no effect for the extents and attributes of this case; empty if it may have one."""
    if mutant.of_gradient:
        holds, reason = _OF_GRADIENTS.get((case.op, mutant.row), (None, ""))
        return reason if holds is not None and holds(arguments_of(case)) else ""
    for where in (mutant.where, mutant.where.partition("[")[0]):
        holds, reason = _OF_EXTENTS.get((case.op, mutant.row, where), (None, ""))
        if holds is not None and holds(arguments_of(case)):
            return reason
    return ""


def _of_ones(arguments: Arguments) -> bool:
    """Return whether ones are written and every index is used equally often."""
    rows, indices = arguments["rows"], arguments["indices"]
    equally = rows % indices == 0 if arguments["accumulate"] else rows >= indices
    return bool(arguments["scalar"] and equally)


def _writes_all(arguments: Arguments) -> bool:
    """Return whether rows with distinct positions fill the table."""
    chosen = any(arguments[flag] for flag in ("accumulate", "scalar"))
    return bool(not chosen and arguments["rows"] == arguments["table_rows"])


def are_numbers(arguments: Arguments) -> bool:
    """Return whether the case computes cosines of one-element vectors."""
    return bool(arguments["metric"] == "cosine" and arguments["dim"] == 1)


def _is_spanned(arguments: Arguments, axis: str) -> bool:
    """Return whether windows span the whole axis and no positions are returned."""
    return bool(arguments["d"] == 1 and arguments[f"k{axis}"] == arguments[axis] and not arguments["indices"])


_OF_GRADIENTS: dict[tuple[str, str], tuple[Callable[[Arguments], bool], str]] = {
    ("layer_norm", "upstream reversed"): (
        lambda axes: bool(axes["hidden"] == 1),
        "one element is its own mean: only the bias has a gradient, a sum of what comes from above in any order",
    ),
}
"""By operator and mistake: when a gradient is the same, and why."""
_IGNORED, _ROTATED = "operand ignored", "wrong group or row"
_TRANSPOSED, _TWICE = "operand transposed", "tile counted twice"
_ONE_PART = "one part is all of them, and begins at the first"
_OF_EXTENTS: dict[tuple[str, str, str], tuple[Callable[[Arguments], bool], str]] = {
    ("non_max_suppression", _ROTATED, "boxes[1]"): (
        lambda axes: bool(axes["boxes"] == 2),
        "of two boxes either overlaps the other by the same share, and scores, which stay, say which is first",
    ),
    **{
        ("non_max_suppression", row, where): (
            lambda axes: bool(axes["boxes"] == 1),
            "the one box of an image is kept",
        )
        for row in (_IGNORED, _ROTATED, "last slice dropped", "last tile dropped", _TWICE)
        for where in ("boxes", "boxes[0]", "boxes[2]", "scores", "scores[0]", "scores[1]")
    },
    ("elementwise", "computed in fewer bits", ""): (
        lambda axes: bool(axes["function"] == "heaviside" and not axes["b"]),
        "rounding keeps the sign, and the result at 0 is a number of the case",
    ),
    ("non_max_suppression", "columns swapped", "y"): (
        lambda axes: bool(axes["boxes"] == axes["classes"] == 1),
        "class and position are 0, whichever of them stands first",
    ),
    **{
        ("scatter", row, "table"): (_writes_all, "every row of the table is written, so that nothing of it is read")
        for row in (_IGNORED, _ROTATED, "last slice dropped", "last tile dropped", _TWICE, _TRANSPOSED)
    },
    ("scatter", _ROTATED, "source[0]"): (
        lambda axes: bool(axes["accumulate"] and 1 in (axes["table_rows"], axes["indices"])),
        "all rows are added to the same one, in any order",
    ),
    ("scatter", _ROTATED, "index"): (_of_ones, "the same ones are written to the same rows, in another order"),
    ("vector_search", "computed in fewer bits", ""): (
        lambda axes: are_numbers(axes) and axes["dtype"] == "fp32",
        "of numbers a cosine reads the sign, which rounding to bf16, of the same exponents, leaves alone",
    ),
    **{
        ("vector_search", row, where): (
            lambda axes: bool(axes["lists"] and axes["probes"] == axes["lists"]),
            "all lists are looked into, so that it is no matter which vectors they hold",
        )
        for row in (_IGNORED, _ROTATED, "last slice dropped", "last tile dropped", _TWICE, _TRANSPOSED)
        for where in ("centroids", "list_of")
    },
    ("vector_search", "bits lost", "distances"): (are_numbers, "a cosine of numbers is 1 or -1, which few bits hold"),
    ("paged_attention", _ROTATED, "table"): (
        lambda axes: bool(axes["batch"] == axes["q"] == 1 and axes["tokens"] % axes["page"] == 0),
        "one query sees all keys of full pages, in any order",
    ),
    ("varlen_attention", _ROTATED, "offsets"): (
        lambda axes: bool(
            not axes["cross"]
            and (axes["tokens"] == 1 or (axes["left"] == 1 and (axes["causal"] or axes["right"] == 1)))
        ),
        "each token sees itself alone, whichever sequence it is in",
    ),
    **{
        ("fractional_max_pool", _ROTATED, f"input[{place}]"): (
            partial(_is_spanned, axis=axis),
            "every window spans this dimension, and what is largest in it is so in any order",
        )
        for place, axis in ((2, "h"), (3, "w"))
    },
    **{
        ("reduce", row, where): (lambda axes: bool(axes["reduced"] == 1), "of one element all of them are that one")
        for row, where in (
            ("mean for sum", "function"),
            ("sum for mean", "function"),
            ("min_index for max_index", "function"),
            ("ties to the last", ""),
        )
    },
    ("segment_reduce", _ROTATED, "x[0]"): (
        lambda axes: bool(axes["segments"] == 1),
        "one segment holds all rows, in any order",
    ),
    ("weight_norm", "bits lost", "norm"): (
        lambda axes: bool(axes["columns"] == 1 and axes["dtype"] in ("fp16", "bf16")),
        "the norm of one number is its magnitude, and half the bits of fp32 hold those of 16 bits",
    ),
    ("unique", "columns swapped", "counts"): (
        lambda axes: bool(axes["elements"] <= 2),
        "two elements are two values, each counted once, or one",
    ),
    ("linalg", _ROTATED, "a"): (
        lambda axes: bool(axes["function"] == "determinant" and axes["n"] % 2),
        "a cycle of an odd number of rows or columns is an even permutation, which keeps the determinant",
    ),
    ("embedding_bag", _ROTATED, "index"): (
        lambda axes: bool(axes["bags"] == 1 and not axes["weighted"]),
        "one bag holds all rows, and what it adds up or compares is in any order",
    ),
    ("histogram", _ROTATED, "weights"): (
        lambda axes: bool(axes["bins"] == 1),
        "the one bin adds up all weights, in any order",
    ),
    ("nll_loss", "sums in fewer bits", "x[0]"): (
        lambda axes: bool(axes["dtype"] == "bf16" and axes["reduction"] != "none"),
        "PyTorch's own keeps the sums of this loss in bf16 (LossNLL.cpp), and this does so in another order",
    ),
    ("attention", "computed in fewer bits", ""): (
        lambda axes: bool(axes["dtype"] == "bf16" and axes["mask"] == "alibi"),
        "PyTorch's own rounds slope times distance to bf16; both roundings are within the two that an operand may have",
    ),
    ("embedding_bag", _IGNORED, "offsets"): (lambda axes: bool(axes["bags"] == 1), _ONE_PART),
}
"""By operator, mistake and input: when it changes nothing, and why."""
