"""Rules that give the value range and exact format of each operator family's results, and what products use of them."""

from collections.abc import Callable, Mapping
from functools import reduce
from math import inf, prod

from nearpeak.bounds.value_facts.call_operands import FactSite, Operand
from nearpeak.bounds.value_facts.carriers import NARROWEST, carrier_of, carrier_of_integers, level_of, narrower, summed
from nearpeak.bounds.value_facts.elementwise_rules import elementwise_fact
from nearpeak.bounds.value_facts.value_fact import (
    ANYTHING,
    ValueFact,
    either,
    fact_of_format,
    fact_of_number,
    tightened,
)
from nearpeak.ops import OPS

_POSITIONS = ("index", "indices", "mask", "offsets", "dim", "repeats", "tensor_indices_or_sections")
"""Arguments that say where elements are, not what they are."""
_FILLS: Mapping[str, float] = {
    "zeros": 0, "zeros_like": 0, "new_zeros": 0, "zero": 0, "ones": 1, "ones_like": 1, "new_ones": 1,
}  # fmt: skip
_REAL = frozenset(("norm", "product", "attention", "convolution", "optimizer"))
"""Families whose results are real numbers of which only the stored format is known."""
_REAL_OPERATORS = frozenset(
    ("collective", "grid_sample", "interpolate", "random", "scan", "segment_reduce", "embedding_bag")
)


def result_fact(site: FactSite) -> ValueFact:
    """Return what is known of the first result of a call; that of an operator without a rule may be anything narrow.

    A call that no rule covers may give what the narrowest format holds, which makes later products cheapest.
    """
    rule = _moved if site.packet.removeprefix("_").startswith("upsample_nearest") else _RULES.get(site.case.op)
    if rule is not None:
        return tightened(rule(site))
    operator = OPS[site.case.op]
    if operator.family in _REAL or site.case.op in _REAL_OPERATORS:
        return ValueFact(carrier_of(site.dtype))
    return ValueFact(NARROWEST)


def product_carriers(site: FactSite) -> tuple[str, str] | None:
    """Return the carriers of the two narrowest factors of a product; none where the call forms no products.

    An operator that multiplies several operands forms its cheapest products from the narrowest ones.
    """
    factors = [operand.fact for operand in _factors(site) if operand.fact.range[0] != operand.fact.range[1]]
    if len(factors) < 2:
        return None
    carriers = sorted((fact.carrier for fact in factors), key=level_of)
    return carriers[0], carriers[1]


def zero_factor(site: FactSite) -> bool:
    """Say whether a product has a factor that is 0 everywhere."""
    return site.case.op in _FACTORS and any(operand.fact.is_zero for operand in _factors(site))


_FACTORS: Mapping[str, tuple[str, ...]] = {
    "gemm": ("mat1", "mat2", "batch1", "batch2", "mat", "vec", "tensor", "vec1", "vec2"),
    "conv": ("input", "weight", "grad_output"), "conv_transpose": ("input", "weight", "grad_output"),
}  # fmt: skip
"""Names of what is multiplied; `self` too where no other name is a first factor."""
_NO_FACTORS = ("bias", "mask", "scale", "offs", "self_bias", "running_mean", "running_var")


def _factors(site: FactSite) -> list[Operand]:
    """Return the operands that a product multiplies."""
    names = _FACTORS.get(site.case.op)
    if names is not None and site.operands and site.operands[0].layout is None:
        return list(site.operands[:2])
    if names is not None:
        named = [operand for operand in site.operands if operand.name in names]
        return named if len(named) > 1 else [*(o for o in site.operands if o.name == "self"), *named]
    if OPS[site.case.op].family not in ("product", "attention", "convolution"):
        return []
    return [
        operand for operand in site.operands
        if not operand.name.startswith(_NO_FACTORS)
        and (operand.layout is None or operand.layout.dtype.startswith(("fp", "bf")))
    ]  # fmt: skip


def _fill(site: FactSite) -> ValueFact:
    """Return the facts of a tensor that the program makes of numbers."""
    number = _FILLS.get(site.packet)
    if number is None and site.packet in ("full", "full_like", "new_full", "scalar_tensor", "fill"):
        number = next((site.numbers[name] for name in ("fill_value", "s", "value") if name in site.numbers), None)
    if number is not None:
        return fact_of_number(number)
    if site.packet == "eye" and site.result is not None:
        return ValueFact(NARROWEST, (0.0, 1.0), True, selects=site.result.strides[-1:])
    if site.packet == "arange" and site.result is not None:
        whole = all(value.is_integer() for name, value in site.numbers.items() if name in ("start", "end", "step"))
        last = [site.numbers.get("start", 0.0), site.numbers.get("end", float(site.result.shape[0]))]
        return ValueFact(carrier_of(site.dtype), (min(last), max(last)), whole, counts=site.result.strides[0])
    return ValueFact(carrier_of(site.dtype) if site.packet in ("linspace", "logspace") else NARROWEST)


def _moved(site: FactSite) -> ValueFact:
    """Return the facts of elements that are moved, picked, repeated or written among others."""
    data = [operand for operand in site.operands if not operand.name.startswith(_POSITIONS)] or list(site.operands[:1])
    if site.operands and site.operands[0].layout is None:
        data = list(site.operands) if site.case.op == "copy" else list(site.operands[:1])
    if site.packet == "copy":  # into a tensor whose earlier values are gone
        data = [operand for operand in data if operand.name == "src"] or data
    if not data:
        return ValueFact(NARROWEST)
    fact = reduce(either, (operand.fact for operand in data))
    if site.packet in ("constant_pad_nd", "tril", "triu", "im2col"):
        fact = either(fact, fact_of_number(site.numbers.get("value", 0.0)))
    if len(data) == 1 and site.result is not None and data[0].layout is not None:
        repeated = data[0].fact.repeated or data[0].distinct_count < prod(site.result.shape)
        fact = fact._replace(repeated=repeated)
    same = len(data) == 1 and site.case.op in ("copy", "cast", "transfer", "dropout") and _same_shape(site, data[0])
    if same:
        fact = fact._replace(
            selects=site.selects(data[0]), difference=data[0].fact.difference, counts=_counts(site, data[0])
        )
    return fact


def _same_shape(site: FactSite, operand: Operand) -> bool:
    return operand.layout is None or site.result is None or operand.layout.shape == site.result.shape


def _counts(site: FactSite, operand: Operand) -> int:
    counts = site.selects(operand._replace(fact=operand.fact._replace(selects=(operand.fact.counts,))))
    return counts[0] if operand.fact.counts and len(counts) == 1 else 0


def _picked(site: FactSite) -> ValueFact:
    """Return the facts of picked elements: rows of an identity are one-hot."""
    fact = _moved(site)
    table = site.operands[0]
    layout, result = table.layout, site.result
    rows = fact.selects or table.fact.selects
    if not rows or layout is None or result is None or site.packet not in ("index", "index_select", "embedding"):
        return fact
    if layout.shape[-1:] == result.shape[-1:] and layout.strides[-1] in rows and len(layout.shape) > 1:
        last = result.strides[-1:] if site.packet != "index_select" or site.numbers.get("dim") == 0 else ()
        return fact._replace(selects=last)
    return fact


def _scattered(site: FactSite) -> ValueFact:
    """Return the facts of elements that were written among others; few among zeros at chosen positions are sparse."""
    fact = _moved(site)
    if site.packet in ("index_add", "scatter_add", "scatter_reduce", "index_reduce") or site.attribute("accumulate"):
        fact = fact._replace(carrier=carrier_of(site.dtype), range=ANYTHING, whole=False)
    elif "value" in site.numbers:
        fact = either(fact, fact_of_number(site.numbers["value"]))
    before = site.operand("self", "input")
    if before is None or not before.fact.is_zero or site.result is None:
        return fact
    index, rank = site.operand("index"), len(site.result.shape)
    if index is not None and index.layout is not None and len(index.layout.shape) == rank and "dim" in site.numbers:
        dim = int(site.numbers["dim"]) % max(rank, 1)
        if index.layout.shape[dim] < site.result.shape[dim]:
            return fact._replace(selects=(site.result.strides[dim],))
    places = [operand for operand in site.operands if operand.name.startswith("indices[")]
    if len(places) == rank > 1 and site.packet == "index_put":
        open_ = [s for s, place in zip(site.result.strides, places, strict=True) if not place.fact.counts]
        return fact._replace(selects=tuple(open_))
    return fact


def _one_hot(site: FactSite) -> ValueFact:
    last = site.result.strides[-1:] if site.result is not None else (1,)
    return ValueFact(NARROWEST, (0.0, 1.0), True, selects=tuple(last))


def _quantised(site: FactSite) -> ValueFact:
    """Return the facts of codes: what their format holds."""
    dtypes = dict(site.case.dtypes)
    return fact_of_format(dtypes.get("out_dtype", site.dtype))


def _dequantised(site: FactSite) -> ValueFact:
    """Return the facts of codes times shared scales."""
    dtypes = dict(site.case.dtypes)
    codes = site.operands[0].fact.carrier if site.operands else carrier_of(dtypes["dtype"])
    return ValueFact(narrower(codes, carrier_of(dtypes["dtype"])))


def _fake_quantised(site: FactSite) -> ValueFact:
    """Return the facts of values rounded to a grid: as many as the range of integers has; 8 bits where it is open."""
    low, high = site.numbers.get("quant_min"), site.numbers.get("quant_max")
    open_ = low is None or high is None
    return ValueFact("int8" if open_ else carrier_of_integers((high or 0.0) - (low or 0.0)))


def _reduced(site: FactSite) -> ValueFact:
    """Return the facts of a reduction: of extremes those of the elements, of sums more bits."""
    fact, function = site.operands[0].fact if site.operands else ValueFact(NARROWEST), str(site.attribute("function"))
    if function in ("any", "all"):
        return ValueFact(NARROWEST, (0.0, 1.0), True)
    if function in ("max", "min", "amax", "amin", "min_max", "max_index", "min_index"):
        return fact._replace(selects=(), counts=0, difference=None)
    if function in ("argmax", "argmin"):
        return ValueFact(carrier_of(site.dtype), (0.0, float(_count(site))), True)
    if function in ("sum", "mean"):
        count = _count(site)
        span = (fact.range[0] * count, fact.range[1] * count) if function == "sum" else fact.range
        carrier = summed(fact.carrier, count, carrier_of(site.dtype))
        return ValueFact(carrier, span, fact.whole and function == "sum", selects=_left_sparse(site))
    return ValueFact(carrier_of(site.dtype))


def _left_sparse(site: FactSite) -> tuple[int, ...]:
    """Return along which strides sums of selections stay sparse: data may pick one place in all that are added up."""
    operand, result = site.operands[0] if site.operands else None, site.result
    if operand is None or operand.layout is None or result is None or not operand.fact.selects:
        return ()
    layout, rank = operand.layout, len(operand.layout.shape)
    sparse: set[int] | None = None
    for axis in range(rank):  # those that may have been added up
        left_axes = [place for place in range(rank) if place != axis]
        seen = result.shape if len(result.shape) < rank else (*result.shape[:axis], *result.shape[axis + 1 :])
        strides = result.strides if len(result.shape) < rank else (*result.strides[:axis], *result.strides[axis + 1 :])
        if seen == tuple(layout.shape[place] for place in left_axes):
            left = {
                new
                for place, new in zip(left_axes, strides, strict=True)
                if layout.strides[place] in operand.fact.selects
            }
            sparse = left if sparse is None else sparse & left
    return tuple(sorted(sparse or ()))


def _count(site: FactSite) -> int:
    axes = dict(site.case.axes)
    return int(axes.get("reduced", 0) or axes.get("window", 0) or 1 << 30)


def _placed(site: FactSite) -> ValueFact:
    """Return the facts of places among sorted limits: whole numbers from 0 to how many there are."""
    limits = site.operand("boundaries", "sorted_sequence")
    most = float(limits.layout.shape[-1]) if limits is not None and limits.layout and limits.layout.shape else inf
    return ValueFact(carrier_of(site.dtype), (0.0, most), True)


def _pooled(site: FactSite) -> ValueFact:
    """Return the facts of averages over windows, which divide their sums by shared numbers."""
    return ValueFact(summed(site.operands[0].fact.carrier, 1 << 8, carrier_of(site.dtype)))


_MOVING = (
    "copy", "cast", "transfer", "dropout", "edge_pad", "im2col", "masked_select", "masked_scatter", "max_pool",
    "adaptive_max_pool", "fractional_max_pool", "max_unpool", "kthvalue", "topk", "mode", "unique",
)  # fmt: skip
_RULES: Mapping[str, Callable[[FactSite], ValueFact]] = {
    "elementwise": elementwise_fact, "fill": _fill, "scatter": _scattered, "one_hot": _one_hot,
    "quantise": _quantised, "dequantise": _dequantised, "fake_quantise": _fake_quantised, "reduce": _reduced,
    "searchsorted": _placed,
    **dict.fromkeys(_MOVING, _moved), **dict.fromkeys(("gather", "embedding"), _picked),
    **dict.fromkeys(("avg_pool", "adaptive_avg_pool"), _pooled),
}  # fmt: skip
"""Rules by operator of the catalogue."""
