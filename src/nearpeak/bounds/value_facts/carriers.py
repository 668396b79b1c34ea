"""Narrow number formats that carry the values of wider tensors exactly, and the matrix work of products of two such."""

from collections.abc import Mapping

from nearpeak.core.work.dtype import dtype_of

_LEVELS: Mapping[str, int] = {
    "bool": 0, "int4": 1, "fp4_e2m1": 1, "int8": 2, "fp8_e4m3": 2, "bf16": 3, "fp16": 3, "fp32": 4, "fp64": 5,
}  # fmt: skip
"""Carriers by width: each holds the values of those on lower levels; numbers of 4 bits also fit those of 8, scaled."""
_HOLDS: Mapping[str, str] = {
    "int2": "bool", "uint2": "bool", "uint4": "int4", "fp4_e2m1_x2": "fp4_e2m1", "uint8": "int8",
    "fp8_e5m2": "fp8_e4m3", "fp8_e4m3fnuz": "fp8_e4m3", "fp8_e5m2fnuz": "fp8_e4m3", "fp8_e8m0": "bf16",
    "int16": "bf16", "uint16": "bf16", "int32": "fp32", "uint32": "fp32", "int64": "fp32", "uint64": "fp32",
    "complex32": "fp16", "complex64": "fp32", "complex128": "fp64",
}  # fmt: skip
"""Carriers of the other formats. Integers of 16 bits are two of 8, whose four products take as long as one of bf16."""
_COMMON = {1: "int4", 2: "bf16", 3: "bf16"}
"""The format in which products of two different carriers of one level are formed, or one that is no slower."""
_SINGLE = 4
"""The level of fp32, from which on units form products as several of narrower parts."""
_INTEGERS = ((1, "bool"), (15, "int4"), (255, "int8"), (4096, "bf16"))
"""Carriers of whole numbers by the width of their range; what all share is added once."""
WIDEST = "fp64"
NARROWEST = "bool"


def carrier_of(dtype: str) -> str:
    """Return the carrier of every value of a number format; of bytes without arithmetic, the narrowest.

    A scheme of a quantised product stands for both of its factors, so that its carrier is that of the wider one.

    >>> carrier_of("uint8"), carrier_of("float16"), carrier_of("int4_weight_only"), carrier_of("nvfp4")
    ('int8', 'fp16', 'bf16', 'fp4_e2m1')
    """
    form = dtype_of(dtype)
    if form.scheme is not None:
        return max((carrier_of(side.dtype) for side in (form.scheme.a, form.scheme.b)), key=level_of)
    name = form.name
    return name if name in _LEVELS else _HOLDS.get(name, NARROWEST)


def level_of(carrier: str) -> int:
    """Return the place of a carrier among those of rising width."""
    return _LEVELS[carrier]


def carrier_of_integers(width: float) -> str:
    """Return the carrier of whole numbers whose largest is that much above their least.

    >>> carrier_of_integers(255), carrier_of_integers(float("inf"))
    ('int8', 'fp64')
    """
    return next((carrier for most, carrier in _INTEGERS if width <= most), WIDEST)


def narrower(left: str, right: str) -> str:
    """Return the narrower of two carriers of the same values."""
    return min(left, right, key=level_of)


def common(left: str, right: str) -> str:
    """Return a carrier of values of either kind: the wider, or of two on one level the one that both fit.

    >>> common("int8", "bf16"), common("int8", "fp8_e4m3")
    ('bf16', 'bf16')
    """
    if level_of(left) == level_of(right):
        return left if left == right else _COMMON[level_of(left)]
    return max(left, right, key=level_of)


def widened(left: str, right: str, most: str) -> str:
    """Return a carrier of sums of values of either kind, no wider than `most`, in which they are stored."""
    return narrower(_raised(common(left, right), 1), most)


def multiplied(left: str, right: str, most: str) -> str:
    """Return a carrier of products of two values: that of one where the other is 0 or 1, else twice as wide."""
    if NARROWEST in (left, right):
        return common(left, right)
    return narrower(_raised(common(left, right), 1 if level_of(common(left, right)) < 3 else 2), most)


def summed(carrier: str, count: int, most: str) -> str:
    """Return a carrier of sums of `count` values; the bits that a format has beyond the next narrower hold 16."""
    steps = 0
    while count > 1 and steps < _SINGLE:
        steps, count = steps + 1, count // 16
    return narrower(_raised(carrier, steps), most)


def _raised(carrier: str, steps: int) -> str:
    by_level = {0: "bool", 1: "int4", 2: "int8", 3: "bf16", 4: "fp32", 5: "fp64"}
    return by_level[min(level_of(carrier) + steps, 5)] if steps else carrier


def narrowed_products(flop: Mapping[str, int], first: str, second: str) -> dict[str, int]:
    """Return FLOP by kind with the matrix work in the narrowest format that forms the products of both carriers.

    Where one factor alone is narrow, the parts of the wide one are multiplied by it undivided: two products instead of
    the three that single precision takes (Ootomo and Yokota 2022, arXiv:2203.03341, with one factor exact), which is
    half of the work at either rate.

    >>> narrowed_products({"matrix.fp32": 8}, "bf16", "int8")
    {'matrix.bf16': 8}
    >>> narrowed_products({"matrix.fp32": 8}, "bf16", "fp32")
    {'matrix.fp32': 4, 'matrix.bf16': 4}
    """
    narrowed: dict[str, int] = {}
    wide, narrow = common(first, second), narrower(first, second)
    for kind, count in flop.items():
        family, _, dtype = kind.partition(".")
        if family != "matrix" or level_of(carrier_of(dtype)) < level_of(wide):
            shares = {kind: count}
        elif level_of(wide) >= _SINGLE > level_of(narrow):
            exact = kind if level_of(carrier_of(dtype)) == level_of(wide) else f"matrix.{wide}"
            shares = {exact: count - count // 2, "matrix.bf16": count // 2}
        else:
            same = level_of(carrier_of(dtype)) == level_of(wide)
            shares = {kind if same else f"matrix.{wide}": count}
        for name, share in shares.items():
            narrowed[name] = narrowed.get(name, 0) + share
    return narrowed
