"""Matching of Einsum nodes to matrix products, reductions or copies."""

from math import prod
from typing import Any

from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Value


def from_onnx(site: OnnxSite) -> Match:
    """Match Einsum; an index that only one operand has and the result lacks is summed before the product."""
    operands = [tensor for tensor in site.inputs if tensor is not None]
    terms, result = _letters(str(site.attributes["equation"]).replace(" ", ""), operands)
    extents = {
        axis: size for term, x in zip(terms, operands, strict=True) for axis, size in zip(term, x.shape, strict=True)
    }
    if len(operands) == 1:
        return _alone(operands[0], terms[0], extents, site.outputs[0])
    if len(operands) != 2:
        raise NotModelledError(f"einsum: no rule for {len(operands)} operands; the order of the products is open")
    left, right, output = set(terms[0]), set(terms[1]), set(result)
    counts: dict[str, Value] = {
        name: prod(extents[axis] for axis in sorted(axes))
        for name, axes in (("batch", left & right & output), ("m", left & output - right), ("n", right & output - left),
                           ("k", (left & right) - output))
    }  # fmt: skip
    out: dict[str, Value] = {"dtype": operands[0].dtype, "out_dtype": site.outputs[0].dtype}
    return Match(arguments=counts | out)


def _alone(x: Tensor, term: str, extents: dict[str, int], out: Tensor) -> Match:
    """Return the sum over the indices that the result lacks; of equal indices only the diagonal is met."""
    met = prod(extents[axis] for axis in sorted(set(term)))
    touched = {"0": x.bytes // max(1, x.elements) * met}
    if met == out.elements:
        moved: dict[str, Value] = {"elements": out.elements, "dtype": x.dtype}
        return Match(op="copy", arguments=moved, touched_bytes=touched)
    summed: dict[str, Value] = {"outputs": out.elements, "dtype": x.dtype}
    return Match(op="reduce", arguments=summed | {"reduced": met // max(1, out.elements)}, touched_bytes=touched)


def _letters(equation: str, operands: list[Tensor]) -> tuple[list[str], str]:
    """Return the indices of each operand and of the result, an ellipsis spelled out in capitals from the right.

    >>> _letters("...ij,jk", [Tensor(shape=(2, 3, 4), dtype="fp32"), Tensor(shape=(4, 5), dtype="fp32")])
    (['Zij', 'jk'], 'Zik')
    """
    operand_terms, arrow, result = equation.partition("->")
    terms: list[str] = []
    for term, tensor in zip(operand_terms.split(","), operands, strict=True):
        hidden = len(tensor.shape) - len(term.replace("...", ""))
        terms.append(term.replace("...", _CAPITALS[len(_CAPITALS) - hidden :] if hidden else ""))
    widest = max(
        (
            term.count("...") and len(x.shape) - len(term) + 3
            for term, x in zip(operand_terms.split(","), operands, strict=True)
        ),
        default=0,
    )
    if not arrow:
        joined = "".join(terms)
        once: Any = sorted(axis for axis in set(joined) if joined.count(axis) == 1 and axis.islower())
        return terms, _CAPITALS[len(_CAPITALS) - widest :] * (widest > 0) + "".join(once)
    return terms, result.replace("...", _CAPITALS[len(_CAPITALS) - widest :] if widest else "")


_CAPITALS = "QRSTUVWXYZ"
