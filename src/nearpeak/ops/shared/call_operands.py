"""Tensor operands of framework calls: overload names, list calls, extents along a dimension."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Matcher, OnnxSite

OVERLOADS = (
    "default", "Tensor", "Scalar", "self", "out", "Tensor_out", "Scalar_out", "Tensor_Tensor", "Tensor_Scalar",
    "Scalar_Tensor", "ScalarSelf", "ScalarOther", "Tensor_mode", "Scalar_mode", "decimals", "grad_input", "self_scalar",
    "other_scalar", "x_scalar", "n_scalar", "input", "int",
)  # fmt: skip
"""Overload names under which ATen keeps element-wise operators."""

LIST_OVERLOADS = ("default", "List", "Scalar", "ScalarList", "Tensor", "ScalarAndTensor", "List_Scalar")
"""Overload names of ATen operators on lists of tensors."""


def overloads(*names: str) -> Iterator[str]:
    """Return every overload of the ATen operators `names` and of their in-place twins."""
    return (f"aten.{name}{twin}.{overload}" for name in names for twin in ("", "_") for overload in OVERLOADS)


def list_overloads(*names: str) -> Iterator[str]:
    """Return every overload of the list operators of `names` and of their in-place twins."""
    return (
        f"aten._foreach_{name}{twin}.{overload}" for name in names for twin in ("", "_") for overload in LIST_OVERLOADS
    )


def tensors_of(site: AtenSite) -> dict[str, Tensor]:
    """Return the tensor arguments by name in the order of the schema, elements of lists numbered; no results."""
    tensors: dict[str, Tensor] = {}
    for name, value in site.args.items():
        items = {f"{name}[{i}]": item for i, item in enumerate(value)} if isinstance(value, list) else {name: value}
        if name not in ("out", "grad_input"):
            tensors |= {key: item for key, item in items.items() if isinstance(item, Tensor)}
    return tensors


def onnx_operands(site: OnnxSite) -> tuple[Tensor, ...]:
    """Return the inputs that are tensors in memory: single constants travel with the launch."""
    return tuple(
        tensor
        for position, tensor in enumerate(site.inputs)
        if tensor is not None and not (position in site.constants and tensor.elements <= 1)
    )


def together(matcher: Matcher) -> Matcher:
    """Return the matcher of the list operator whose elements `matcher` claims.

    A list is one kernel over all elements of its tensors, and one per combination of formats where these differ.
    """

    def matched(site: AtenSite) -> tuple[Match, ...]:
        totals: dict[tuple[Any, ...], dict[str, int]] = {}
        for index in range(len(site.args["self"])):
            match = matcher(_element(site, index))
            assert isinstance(match, Match)
            extents = {name: value for name, value in match.arguments.items() if type(value) is int}
            others = tuple((name, value) for name, value in match.arguments.items() if name not in extents)
            total = totals.setdefault((match.op, match.phase, others), dict.fromkeys(extents, 0))
            for name, extent in extents.items():
                total[name] = total.get(name, 0) + extent
        return tuple(
            Match(op=op, phase=phase, arguments={**dict(others), **total})
            for (op, phase, others), total in totals.items()
        )

    return matched


def _element(site: AtenSite, index: int) -> AtenSite:
    """Return the call of a list operator on the tensors number `index`."""

    def element(value: Any) -> Any:
        return value[index] if isinstance(value, (list, tuple)) and index < len(value) else value

    args = {name: element(value) for name, value in site.args.items()}
    outputs = site.outputs[index : index + 1] or (args["self"],)
    return AtenSite(name=site.name, args=args, outputs=outputs)


def along(tensor: Tensor, dimensions: int | Sequence[int] | None) -> tuple[int, int]:
    """Return the elements left over and the elements taken together when `dimensions` are; all when none is named.

    >>> along(Tensor(shape=(2, 3, 4), dtype="fp32"), -1)
    (6, 4)
    """
    rank = len(tensor.shape)
    if dimensions is None or (not isinstance(dimensions, int) and not dimensions) or not rank:
        return 1, tensor.elements
    named = (dimensions,) if isinstance(dimensions, int) else dimensions
    taken = {dimension % rank for dimension in named}
    return (
        prod(extent for index, extent in enumerate(tensor.shape) if index not in taken),
        prod(extent for index, extent in enumerate(tensor.shape) if index in taken),
    )


def claimed(names: Iterator[str] | Sequence[str], matcher: Callable[..., Any]) -> Mapping[str, Matcher]:
    """Return the claims of one matcher."""
    return dict.fromkeys(names, matcher)
