"""Rows of Nsight Compute's CSV pages: metrics in SI units with their original text, rules with typed estimates."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_FACTORS = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {
    "ns": 1e-9,
    "nsecond": 1e-9,
    "us": 1e-6,
    "usecond": 1e-6,
    "ms": 1e-3,
    "msecond": 1e-3,
    "s": 1.0,
    "second": 1.0,
}
_GROUPS = "'\u2019 \u00a0\u202f"
"""What separates thousands where neither a comma nor a point does."""
_POINT = re.compile(rf"[+-]?(?:\d+|\d{{1,3}}(?:[,{_GROUPS}]\d{{3}})+)?(?:\.\d+)?(?:[eE][+-]?\d+)?")
_COMMA = re.compile(rf"[+-]?(?:\d+|\d{{1,3}}(?:[.{_GROUPS}]\d{{3}})+)?(?:,\d+)?(?:[eE][+-]?\d+)?")
_DROPPED = str.maketrans("", "", _GROUPS + ",")
_TURNED = str.maketrans(",", ".", _GROUPS + ".")
_PARTS = re.compile(r"([^(]*?)\s*(?:\((.*)\))?")
_COUNTED = ("byte", "hz", "cycle", "inst", "block", "thread", "register", "sector", "request", "warp")


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuMetric:
    """One metric of one kernel; the same name may stand in several sections with other units."""

    section: str
    """Section as the file shows it."""
    item: str
    """Item of the section's body, empty where the file has none."""
    name: str
    """Name of the metric."""
    unit: str
    """Unit as the file prints it."""
    text: str
    """Value as the file prints it."""
    value: float | None
    """Value in the base unit; none where it is not available or is no number."""
    base_unit: str
    """Unit of `value`: s, byte, byte/s, hz, or the file's own where it has no prefix."""
    values: tuple[float, ...] = ()
    """Instances behind an aggregate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuRule:
    """What a rule of Nsight Compute says of a kernel."""

    section: str
    """Identifier of the section."""
    name: str
    """Name of the rule."""
    kind: str
    """`OPT`, `INF` or `WRN`."""
    text: str
    """What it says."""
    scope: str
    """`global` (of the whole kernel), `local` (of that part), or empty: estimates are never added up."""
    speedup_ratio: float | None
    """Estimated share of the time that could be saved; none where the rule states none."""


def has_decimal_comma(texts: Iterable[str]) -> bool:
    """Say whether numbers are printed with a decimal comma: more of them can be read so alone than with a point alone.

    >>> has_decimal_comma(["1.234,56", "12", "n/a"]), has_decimal_comma(["1,234.56", "6,340"])
    (True, False)
    """
    votes = 0
    for text in texts:
        first = text.partition("(")[0].strip()
        if "," in first or "." in first:
            votes += (_COMMA.fullmatch(first) is not None) - (_POINT.fullmatch(first) is not None)
    return votes > 0


def si(text: str, unit: str, *, comma: bool = False) -> tuple[float | None, str, tuple[float, ...]]:
    """Return (value in the base unit, base unit, instances) of a cell.

    Args:
        comma: whether a comma stands before the decimals, as in German.

    >>> si("1,002.5", "us")[:2]
    (0.0010025, 's')
    >>> si("1.002,5", "us", comma=True)[:2], si("6,34", "us")[0]
    ((0.0010025, 's'), None)
    >>> si("3,760 (48; 48)", "Kbyte/second")
    (3760000.0, 'byte/s', (48000.0, 48000.0))
    >>> si("n/a", "%")
    (None, '%', ())
    """
    factor, base = unit_of(unit)
    match = _PARTS.fullmatch(text.strip())
    value = _number(match[1], comma=comma) if match else None
    if match is None or value is None:
        return None, base, ()
    instances = (_number(part, comma=comma) for part in (match[2] or "").split(";"))
    scaled = value / round(1 / factor) if factor < 1 else value * factor
    return scaled, base, tuple(instance * factor for instance in instances if instance is not None)


def _number(text: str, *, comma: bool) -> float | None:
    text = text.strip()
    if not text or not (_COMMA if comma else _POINT).fullmatch(text):
        return None
    try:
        return float(text.translate(_TURNED if comma else _DROPPED))
    except ValueError:  # a sign or an exponent alone
        return None


def unit_of(unit: str) -> tuple[float, str]:
    """Return (factor, base unit) of a unit as the file prints it.

    >>> unit_of("Gbyte/s"), unit_of("nsecond"), unit_of("%"), unit_of("Ghz")
    ((1000000000.0, 'byte/s'), (1e-09, 's'), (1.0, '%'), (1000000000.0, 'hz'))
    """
    if unit in _SECONDS:
        return _SECONDS[unit], "s"
    over, slash, under = unit.partition("/")
    for word in _COUNTED:
        head = over.lower()
        if head.endswith(word) and over[: -len(word)] in _FACTORS:
            divisor, base = unit_of(under) if slash else (1.0, "")
            return _FACTORS[over[: -len(word)]] / divisor, word + (f"/{base}" if slash else "")
    return 1.0, unit


def metric_of(cells: Mapping[str, str], *, comma: bool) -> NcuMetric:
    """Return the metric of a row."""
    unit, text = cells.get("Metric Unit", ""), cells.get("Metric Value", "")
    value, base, many = si(text, unit, comma=comma)
    return NcuMetric(
        section=cells.get("Section Name", ""), item=cells.get("Body Item Label", ""), name=cells.get("Metric Name", ""),
        unit=unit, text=text, value=value, base_unit=base, values=many,
    )  # fmt: skip


def rule_of(cells: Mapping[str, str], *, comma: bool) -> NcuRule:
    """Return the rule of a row."""
    estimate = si(cells.get("Estimated Speedup", ""), "%", comma=comma)[0]
    return NcuRule(
        section=cells.get("Section Name", ""), name=cells.get("Rule Name", ""), kind=cells.get("Rule Type", ""),
        text=cells.get("Rule Description", ""), scope=cells.get("Estimated Speedup Type", ""),
        speedup_ratio=None if estimate is None else estimate / 100,
    )  # fmt: skip


def raw_metrics(
    header: Sequence[str], units: Sequence[str], row: Sequence[str], first: int, *, comma: bool
) -> Iterator[NcuMetric]:
    """Yield the metrics of a row of the raw page, where each metric has a column."""
    for name, unit, text in zip(header[first:], units[first:], row[first:], strict=False):
        value, base, many = si(text, unit, comma=comma)
        yield NcuMetric(section="", item="", name=name, unit=unit, text=text, value=value, base_unit=base, values=many)
