"""Interval arithmetic for partly data-dependent masks: lower and upper bounds of each element."""

from collections.abc import Callable, Mapping
from typing import Any

DATA_LIMIT = 1e6
"""Assumed magnitude limit of data, so that adding data cannot unmask a pair."""


class Span:
    """A tensor with elementwise bounds `low` and `high`; methods that move elements apply to both bounds."""

    def __init__(self, low: Any, high: Any) -> None:
        """Set the two bounds, tensors of one shape and number format."""
        self.low, self.high = low, high

    def __getattr__(self, name: str) -> Any:
        """Return an attribute that both bounds share, or a method that applies to both."""
        low = getattr(self.low, name)
        if not callable(low):
            return low
        high = getattr(self.high, name)

        def moved(*args: Any, **kwargs: Any) -> Span:
            return Span(low(*map(low_of, args), **kwargs), high(*map(high_of, args), **kwargs))

        return moved


def low_of(value: Any) -> Any:
    """Return the lower bound; other values are returned unchanged."""
    if isinstance(value, list):
        return [low_of(item) for item in value]
    return value.low if isinstance(value, Span) else value


def high_of(value: Any) -> Any:
    """Return the upper bound; other values are returned unchanged."""
    if isinstance(value, list):
        return [high_of(item) for item in value]
    return value.high if isinstance(value, Span) else value


def has_span(values: Any) -> bool:
    """Return whether a span is among the arguments."""
    return any(isinstance(v, Span) or (isinstance(v, list) and has_span(v)) for v in values)


def anything(dtype: Any) -> Span:
    """Return the zero-dimensional span of arbitrary data in a number format.

    >>> import torch
    >>> anything(torch.bool).high
    tensor(True)
    """
    import torch

    if dtype == torch.bool:
        low, high = False, True
    elif dtype.is_floating_point:
        high = min(DATA_LIMIT, torch.finfo(dtype).max / 4)
        low = -high
    else:  # a quarter of the bits leaves room for sums and products
        low, high = max(torch.iinfo(dtype).min, -(2**30)), min(torch.iinfo(dtype).max, 2**30)
    return Span(torch.tensor(low, dtype=dtype), torch.tensor(high, dtype=dtype))


def rule_of(packet: str) -> str:
    """Return the base name of an operator with a rule for spans, else an empty string."""
    base = packet if packet.startswith("_") else packet.removesuffix("_")
    return base if base in _RULES else ""


def span_of(func: Any, args: list[Any], kwargs: Mapping[str, Any], dtype: Any) -> Any:
    """Return the span of an operator's result; the span of arbitrary data if no rule applies."""
    import torch

    packet = func._schema.name.split("::")[1]
    base = rule_of(packet)
    rule = _RULES.get(base)
    if rule is None or has_span(kwargs.values()) or not _orderly(base, args, kwargs):
        return anything(dtype)
    if base != packet:
        func = getattr(getattr(torch.ops.aten, base), func._overloadname)
    low, high = rule(func, args, dict(kwargs))
    if not low.dtype.is_floating_point:
        return Span(low, high)
    # Data cannot unmask a pair; NaN counts as data.
    most = anything(low.dtype).high
    low, high = torch.where(low.isnan(), -most, low), torch.where(high.isnan(), most, high)
    return Span(low, torch.where(low == high, high, high.minimum(most)))


def _orderly(base: str, args: list[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the operator is monotonic, as its rule assumes, for these number formats and options."""
    import torch

    dtypes = [value.dtype for value in args if isinstance(value, (Span, torch.Tensor))]
    if base in _LOGICAL:
        return all(dtype == torch.bool for dtype in dtypes)
    if base in ("add", "sub", "rsub", "mul", "neg"):  # smaller whole numbers run over
        wide = all(d.is_floating_point or d in (torch.bool, torch.int64) for d in dtypes)
        return wide and len(args) <= 2 and kwargs.get("alpha", 1) == 1
    if base in ("index", "index_select", "gather"):
        return not has_span(args[1:])
    cut = kwargs.get("dtype")
    return not (base == "_to_copy" and cut is not None and not cut.is_floating_point and cut != torch.bool
                and dtypes[0].is_floating_point)  # fmt: skip


_Ends = tuple[Any, Any]


def _rising(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    """The result increases with every argument."""
    return func(*map(low_of, args), **kwargs), func(*map(high_of, args), **kwargs)


def _falling(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    """The result decreases with the only argument."""
    return func(high_of(args[0]), **kwargs), func(low_of(args[0]), **kwargs)


def _difference(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    """The result increases with the first and decreases with the second argument: first - second, first > second."""
    first, second, *rest = args
    low = func(low_of(first), high_of(second), *rest, **kwargs)
    return low, func(high_of(first), low_of(second), *rest, **kwargs)


def _turned(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    """The result increases with the second and decreases with the first argument: first < second."""
    first, second, *rest = args
    low = func(high_of(first), low_of(second), *rest, **kwargs)
    return low, func(low_of(first), high_of(second), *rest, **kwargs)


def _product(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    """The bounds are among the products of bounds."""
    corners = [func(first, second, **kwargs) for first in _ends(args[0]) for second in _ends(args[1])]
    low, high = corners[0], corners[0]
    for corner in corners[1:]:
        low, high = low.minimum(corner), high.maximum(corner)
    return low, high


def _equality(_func: Any, args: list[Any], _kwargs: dict[str, Any]) -> _Ends:
    """Numbers may be equal where their spans overlap, and are equal where both are known and equal."""
    import torch

    low, high = (torch.as_tensor(end) for end in _ends(args[0]))
    below, above = (torch.as_tensor(end) for end in _ends(args[1]))
    meet = (low <= above) & (below <= high)
    return meet & (low == high) & (below == above), meet


def _inequality(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    low, high = _equality(func, args, kwargs)
    return ~high, ~low


def _choice(_func: Any, args: list[Any], _kwargs: dict[str, Any]) -> _Ends:
    """Both values are possible where the condition is data."""
    return _chosen(args[0], args[1], args[2])


def _filled(_func: Any, args: list[Any], _kwargs: dict[str, Any]) -> _Ends:
    """The fill value where the condition holds, else the former element."""
    import torch

    dtype = args[0].dtype
    value = Span(*(torch.as_tensor(end, dtype=dtype) for end in _ends(args[2])))
    return _chosen(args[1], value, args[0])


def _chosen(condition: Any, yes: Any, no: Any) -> _Ends:
    import torch

    never, always = ~high_of(condition), low_of(condition)
    bounds = []
    for end, choose in ((low_of, torch.minimum), (high_of, torch.maximum)):
        if_true, if_false = end(yes), end(no)
        either = torch.where(always, if_true, if_false)
        mixed = torch.where(~always & ~never, choose(*torch.broadcast_tensors(*_alike(if_true, if_false))), either)
        bounds.append(mixed)
    return bounds[0], bounds[1]


def _alike(first: Any, second: Any) -> tuple[Any, Any]:
    import torch

    first, second = torch.as_tensor(first), torch.as_tensor(second)
    dtype = torch.result_type(first, second)
    return first.to(dtype), second.to(dtype)


def _cast(func: Any, args: list[Any], kwargs: dict[str, Any]) -> _Ends:
    """Conversions keep the order; conversion to bool tests for nonzero."""
    import torch

    low, high = _rising(func, args, kwargs)
    if low.dtype != torch.bool or args[0].dtype == torch.bool:
        return low, high
    below, above = args[0].low, args[0].high
    return (below > 0) | (above < 0), (below != 0) | (above != 0)


def _ends(value: Any) -> _Ends:
    return low_of(value), high_of(value)


_Rule = Callable[[Any, list[Any], dict[str, Any]], _Ends]
_LOGICAL = frozenset(("logical_and", "logical_or", "logical_not", "bitwise_and", "bitwise_or", "bitwise_not",
                      "__and__", "__or__", "all", "any"))  # fmt: skip
_MOVERS = ("clone", "cat", "stack", "repeat", "flip", "roll", "index", "index_select", "gather", "constant_pad_nd",
           "copy", "tril", "triu", "lift_fresh_copy")  # fmt: skip
_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("add", "minimum", "maximum", "clamp", "clamp_min", "clamp_max", "relu", "all", "any"), _rising),
    **dict.fromkeys(("logical_and", "logical_or", "bitwise_and", "bitwise_or", "__and__", "__or__"), _rising),
    **dict.fromkeys(_MOVERS, _rising),
    **dict.fromkeys(("logical_not", "bitwise_not", "neg"), _falling),
    **dict.fromkeys(("sub", "gt", "ge"), _difference),
    **dict.fromkeys(("rsub", "lt", "le"), _turned),
    "mul": _product, "eq": _equality, "ne": _inequality, "where": _choice, "masked_fill": _filled, "_to_copy": _cast,
}  # fmt: skip
