"""Rules that give the value range and exact format of element-wise results from those of the operands."""

from collections.abc import Callable, Mapping
from math import ceil, floor, inf, isinf, prod

from nearpeak.bounds.value_facts.call_operands import FactSite, Operand
from nearpeak.bounds.value_facts.carriers import NARROWEST, carrier_of, level_of, multiplied, widened
from nearpeak.bounds.value_facts.value_fact import ANYTHING, Range, ValueFact, either, fact_of_number, tightened

_TRUTHS = frozenset((
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "isneginf", "isposinf", "logical_and",
    "logical_or", "logical_not", "logical_xor", "signbit",
))  # fmt: skip
"""Functions whose result is 0 or 1."""
_FIXED: Mapping[str, Range] = {
    "sign": (-1.0, 1.0), "sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0), "hardsigmoid": (0.0, 1.0), "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0), "erf": (-1.0, 1.0), "softsign": (-1.0, 1.0),
}  # fmt: skip
"""Ranges that do not depend on the operand's."""
_KEEPING = frozenset((
    "relu", "abs", "neg", "leaky_relu", "prelu", "hardshrink", "threshold", "nan_to_num", "copysign", "relu6",
    "clamp", "hardtanh", "minimum", "maximum", "deg2rad", "rad2deg",
))  # fmt: skip
"""Functions that keep values, change their sign, put a fixed number in their place or multiply them by one."""
_ROUNDED = ("round", "floor", "ceil", "trunc", "floor_divide", "trunc_divide")
_ZERO_AT_ZERO = _KEEPING | frozenset((
    "mul", "div", "gelu", "silu", "tanh", "sin", "erf", "mish", "elu", "square", "cube", "sqrt", "expm1", "log1p",
    "hardswish", "sign", "round", "floor", "ceil", "trunc", "gelu_tanh", "softsign", "celu", "selu",
))  # fmt: skip
"""Functions whose result is 0 where their first operand is."""


def elementwise_fact(site: FactSite) -> ValueFact:
    """Return the facts of the result of an element-wise call."""
    name = str(site.attribute("function"))
    if site.case.phase != "forward":
        return _gradient(site)
    if name in _TRUTHS and (site.dtype == "bool" or not name.startswith("logical_")):
        return ValueFact(NARROWEST, (0.0, 1.0), True, selects=_of_comparison(site) if name == "eq" else _common(site))
    if not site.operands:
        return ValueFact(carrier_of(site.dtype))
    rule = _RULES.get(name) or _RULES.get(site.packet) or (_kept if name in _KEEPING else _generic)
    fact = rule(site)
    first = site.operands[0]
    if first.fact.selects and (name in _ZERO_AT_ZERO or (name == "masked_fill" and site.numbers.get("value") == 0)):
        fact = fact._replace(selects=site.selects(first))
    elif name == "mul" and len(site.operands) > 1:
        fact = fact._replace(selects=site.selects(site.operands[1]))
    return fact._replace(repeated=all(_shares(operand, site) for operand in site.operands))


def _common(site: FactSite) -> tuple[int, ...]:
    """Return how sparse a condition is that holds only where an operand does."""
    sparse = [operand for operand in site.operands if operand.fact.selects]
    is_sparse = site.packet in ("logical_and", "__and__", "bitwise_and") or (
        site.packet in ("gt", "ne") and site.numbers.get("other") == 0
    )
    return site.selects(sparse[0]) if sparse and is_sparse else ()


def _gradient(site: FactSite) -> ValueFact:
    """Return the facts of a gradient: of a rectifier, the upstream one where it is not 0."""
    first = site.fact(0)
    carries = first is not None and site.attribute("function") in ("relu", "threshold", "hardtanh", "leaky_relu", "neg")
    return ValueFact(first.carrier) if carries and first else ValueFact(carrier_of(site.dtype))


def _of_comparison(site: FactSite) -> tuple[int, ...]:
    """Return along which strides a comparison with counted positions holds at most once."""
    if len(site.operands) != 2 or site.result is None:
        return ()
    for counted, other in (site.operands, site.operands[::-1]):
        if not counted.fact.counts or counted.layout is None or other.layout is None:
            continue
        for place in range(1, len(counted.layout.shape) + 1):
            moves = counted.layout.strides[-place] == counted.fact.counts and counted.layout.shape[-place] > 1
            still = place > len(other.layout.shape) or (
                other.layout.shape[-place] == 1 or other.layout.strides[-place] == 0
            )
            if moves and still:
                return (site.result.strides[-place],)
    return ()


def _generic(site: FactSite) -> ValueFact:
    """Return the facts of a function of which only the range is known."""
    span = _FIXED.get(str(site.attribute("function")), ANYTHING)
    return ValueFact(carrier_of(site.dtype), span, site.attribute("function") == "sign")


def _kept(site: FactSite) -> ValueFact:
    """Return the facts of values that are kept, replaced by a number, or turned in sign."""
    fact, name = site.operands[0].fact, str(site.attribute("function"))
    low, high = fact.range
    span = {
        "abs": (max(low, -high, 0.0), max(-low, high)), "neg": (-high, -low), "relu": (max(low, 0.0), max(high, 0.0)),
        "relu6": (min(max(low, 0.0), 6.0), min(max(high, 0.0), 6.0)),
    }.get(name)  # fmt: skip
    if span is not None:
        return fact._replace(range=span, difference=None, selects=(), counts=0)
    if name in ("clamp", "hardtanh", "minimum", "maximum"):
        return _clamped(site)
    return ValueFact(fact.carrier)


def _clamped(site: FactSite) -> ValueFact:
    """Return the facts of values between limits, numbers or tensors."""
    fact = site.operands[0].fact
    facts = [operand.fact for operand in site.operands[1:]]
    if len(facts) == 1 and site.packet in ("minimum", "maximum"):
        pick = min if site.packet == "minimum" else max
        merged = either(fact, facts[0])
        return merged._replace(range=(pick(fact.range[0], facts[0].range[0]), pick(fact.range[1], facts[0].range[1])))
    for limit in facts:
        fact = either(fact, limit)._replace(range=ANYTHING)
    floor_, ceiling = (
        next((site.numbers[name] for name in names if name in site.numbers), None)
        for names in (("min", "min_val"), ("max", "max_val"))
    )
    low, high = fact.range
    low, high = (low, high) if floor_ is None else (max(low, floor_), max(high, floor_))
    low, high = (low, high) if ceiling is None else (min(low, ceiling), min(high, ceiling))
    whole = fact.whole and all(limit is None or float(limit).is_integer() for limit in (floor_, ceiling))
    return ValueFact(fact.carrier, (low, high), whole)


def _chosen(site: FactSite) -> ValueFact:
    """Return the facts of where and masked_fill: what holds of either choice."""
    facts = [operand.fact for operand in site.operands if operand.name not in ("condition", "mask", "0")]
    facts += [fact_of_number(site.numbers[name]) for name in ("self", "other", "value") if name in site.numbers]
    fact = facts[0] if facts else ValueFact(carrier_of(site.dtype))
    for other in facts[1:]:
        fact = either(fact, other)
    fact = fact._replace(selects=(), counts=0, difference=None)
    condition, otherwise = site.operand("condition"), site.operand("other")
    zero = site.numbers.get("other") == 0 or (otherwise is not None and otherwise.fact.is_zero)
    return fact._replace(selects=site.selects(condition)) if condition and zero else fact


def _shares(operand: Operand, site: FactSite) -> bool:
    """Say whether one element of an operand serves several of the result: a factor or summand that neighbours share."""
    if operand.layout is not None and site.result is not None:
        return operand.fact.repeated or operand.distinct_count < prod(site.result.shape)
    return 2 * operand.bytes <= max(other.bytes for other in site.operands)


def _product(site: FactSite) -> ValueFact:
    """Return the facts of products: shared factors change no carrier."""
    first, second = site.operands[0].fact, site.fact(1)
    if second is None:
        return ValueFact(first.carrier)
    span = _times(first.range, second.range)
    whole = first.whole and second.whole
    for factor, other in ((first, second), (second, first)):
        if factor.whole and factor.range[0] >= -1 and factor.range[1] <= 1:  # signs and masks change no format
            return tightened(ValueFact(other.carrier, span, whole))
    carrier = _joined(site, second, lambda a, b: multiplied(a, b, carrier_of(site.dtype)))
    return tightened(ValueFact(carrier, span, whole))


def _quotient(site: FactSite) -> ValueFact:
    """Return the facts of a quotient by a number or by shared divisors; of others only what the format says."""
    if len(site.operands) == 1 and site.numbers.get("other"):
        fact, factor = site.operands[0].fact, 1 / site.numbers["other"]
        return ValueFact(fact.carrier, _times(fact.range, (factor, factor)))
    if len(site.operands) == 2 and _shares(site.operands[1], site):
        return ValueFact(site.operands[0].fact.carrier)
    return ValueFact(carrier_of(site.dtype))


def _joined(site: FactSite, second: ValueFact, join: Callable[[str, str], str]) -> str:
    """Return the carrier of both operands together; one whose elements neighbours share adds nothing to it."""
    first = site.operands[0].fact
    if len(site.operands) == 1:
        return first.carrier
    shared = [_shares(operand, site) for operand in site.operands[:2]]
    if all(shared):
        return min(first.carrier, second.carrier, key=level_of)
    if any(shared):
        return second.carrier if shared[0] else first.carrier
    return join(first.carrier, second.carrier)


def _sum(site: FactSite) -> ValueFact:
    """Return the facts of sums and differences; x + (q - x) is q, as straight-through estimators write it."""
    first, second = site.operands[0].fact, site.fact(1)
    if second is None:
        return ValueFact(carrier_of(site.dtype))
    factor = site.numbers.get("alpha", 1.0)
    minus = site.packet in ("sub", "subtract", "rsub") or site.attribute("function") in ("sub", "rsub")
    if len(site.operands) == 2 and factor == 1 and not minus:
        for term, other in (site.operands[:2], site.operands[1::-1]):
            if other.fact.difference is not None and other.fact.difference[1] == term.content:
                return ValueFact(NARROWEST, difference=(other.fact.difference[0], -1))  # resolved by the walk
    both = [set(site.selects(operand)) for operand in site.operands[:2]]
    both += both if len(both) == 1 and second.is_zero else []
    scaled = _times(second.range, (-factor, -factor) if minus else (factor, factor))
    span = (first.range[0] + scaled[0], first.range[1] + scaled[1])
    span = (-span[1], -span[0]) if site.packet == "rsub" else span
    carrier = _joined(site, second, lambda a, b: widened(a, b, carrier_of(site.dtype)))
    fact = tightened(ValueFact(carrier, span, first.whole and second.whole and float(factor).is_integer()))
    if len(both) == 2 and (sparse := both[0] & both[1]):  # data may pick the same places
        fact = fact._replace(selects=tuple(sorted(sparse)))
    if minus and factor == 1 and len(site.operands) == 2:
        return fact._replace(difference=(site.operands[0].content, site.operands[1].content))
    return fact


def _stepped(site: FactSite) -> ValueFact:
    """Return the facts of a step function: 0, 1, or what stands for 0."""
    middle = site.operands[1].fact if len(site.operands) > 1 else ValueFact(carrier_of(site.dtype))
    return tightened(either(ValueFact(NARROWEST, (0.0, 1.0), True), middle))


def _rounded(site: FactSite) -> ValueFact:
    """Return the facts of whole numbers next to the values."""
    fact = _quotient(site) if "divide" in str(site.attribute("function")) else site.operands[0].fact
    if fact.whole:
        return fact._replace(difference=None)
    low, high = (end if isinf(end) else end_of(end) for end, end_of in zip(fact.range, (floor, ceil), strict=True))
    return tightened(ValueFact(carrier_of(site.dtype), (low, high), True))


def _bits(site: FactSite) -> ValueFact:
    """Return the facts of bits that a mask leaves, or that are shifted down."""
    first, second = site.operands[0].fact, site.fact(1)
    if second is None or not (first.whole and second.whole):
        return ValueFact(carrier_of(site.dtype))
    if site.packet in ("bitwise_and", "__and__"):
        most = min((fact.range[1] for fact in (first, second) if fact.range[0] >= 0), default=inf)
        return tightened(ValueFact(carrier_of(site.dtype), (0.0, most) if most < inf else ANYTHING, True))
    shift, (low, high) = second.range, first.range
    if "right" in site.packet or "rshift" in site.packet:
        least = 2.0 ** max(0.0, min(shift[0], 64.0))
        ends = [end if isinf(end) else float(floor(end / least)) for end in (low, high)]
        return tightened(ValueFact(carrier_of(site.dtype), (min(ends[0], 0.0), max(ends[1], 0.0)), True))
    if shift[0] == shift[1]:
        return tightened(ValueFact(first.carrier, _times(first.range, (2.0 ** shift[0],) * 2), True))
    return ValueFact(carrier_of(site.dtype), whole=True)


def _remainder(site: FactSite) -> ValueFact:
    """Return the facts of what a division by a number leaves."""
    first, divisor = site.operands[0].fact, site.numbers.get("other")
    if not first.whole or not divisor or not float(divisor).is_integer():
        return ValueFact(carrier_of(site.dtype))
    most = abs(divisor) - 1
    return tightened(
        ValueFact(carrier_of(site.dtype), (-most if first.range[0] < 0 or divisor < 0 else 0.0, most), True)
    )


def _power(site: FactSite) -> ValueFact:
    """Return the facts of squares and cubes, which take twice as many bits, or more."""
    fact = site.operands[0].fact
    carrier = multiplied(fact.carrier, fact.carrier, carrier_of(site.dtype))
    even = str(site.attribute("function")) == "square"
    top = max(abs(fact.range[0]), abs(fact.range[1]))
    power = 2 if even else 3
    if not even:
        carrier = multiplied(carrier, fact.carrier, carrier_of(site.dtype))
    return tightened(ValueFact(carrier, (0.0 if even else -(top**power), top**power), fact.whole))


def _times(left: Range, right: Range) -> Range:
    ends = [0.0 if 0 in (a, b) else a * b for a in left for b in right]
    return min(ends), max(ends)


_RULES: Mapping[str, Callable[[FactSite], ValueFact]] = {
    **dict.fromkeys(("mul", "multiply"), _product),
    **dict.fromkeys(("div", "divide", "true_divide"), _quotient),
    **dict.fromkeys(("add", "sub", "subtract", "rsub"), _sum),
    **dict.fromkeys(("where", "masked_fill"), _chosen),
    **dict.fromkeys(_ROUNDED, _rounded),
    "heaviside": _stepped,
    **dict.fromkeys(("bitwise_and", "__and__", "__rshift__", "__lshift__", "bitwise_right_shift",
                     "bitwise_left_shift", "right_shift", "left_shift"), _bits),
    **dict.fromkeys(("remainder", "fmod"), _remainder),
    **dict.fromkeys(("square", "cube"), _power),
}  # fmt: skip
"""Rules by operator or function; others keep values, or are known by their format alone."""
