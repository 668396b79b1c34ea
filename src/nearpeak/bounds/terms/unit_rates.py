"""Rates of the execution units that may do a piece of work, and the fastest of them."""

from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError


def matrix_rate(target: Target, dtype: str, policy: str, *, documented: bool = False) -> tuple[str, float]:
    """Return the fastest permitted unit for products of `dtype`, and its FLOP/s.

    Args:
        policy: `strict` admits units at least as accurate as the format, and narrower ones that add up enough
            partial products; `tf32` also TF32 for fp32; `hard` every unit.
        documented: rates as the documents state them, instead of at the highest permitted clock.

    Raises:
        NotModelledError: the target states no peak that the policy permits, or has a permitted unit of unknown rate.

    >>> from nearpeak.targets import target_of
    >>> matrix_rate(target_of("h100_sxm"), "bf16", "strict", documented=True)
    ('tensor.bf16', 989400000000000.0)
    """
    return _matrix_rate(Same(target), dtype, policy, documented)


@lru_cache(maxsize=1 << 10)
def _matrix_rate(same: "Same[Target]", dtype: str, policy: str, documented: bool) -> tuple[str, float]:
    target, units = same.held, _permitted(same.held, dtype, policy)
    # Libraries of a measured CPU do not split products into ones of int8, so that its rate matters to integers alone.
    unknown = [u for u, count in units.items() if u in target.unstated and (count == 1 or not target.measured)]
    if unknown and next(iter(units)) not in target.peaks:  # a slower unit's rate would make the bound too high
        cure = f'copy its TOML file, add [peak."{unknown[0]}"] and name that file as the target'
        cure = "run 'nearpeak calibrate roofs', which measures it" if target.measured else cure
        what = "no measurement" if target.measured else "no document"
        raise NotModelledError(
            f"{target.name}: {what} states the rate of {unknown[0]}, which forms products of {dtype}, so that no time "
            f"is proved; {cure}"
        )
    return _fastest(target, units, f"products of {dtype}", documented)


def vector_rate(target: Target, dtype: str) -> tuple[str, float]:
    """Return the fastest vector unit for element-wise arithmetic on `dtype`, and its FLOP/s."""
    return _vector_rate(Same(target), dtype)


@lru_cache(maxsize=1 << 8)
def _vector_rate(same: "Same[Target]", dtype: str) -> tuple[str, float]:
    return _fastest(same.held, dict.fromkeys(DTYPES[dtype].vector_units, 1), f"vector work on {dtype}", False)


def _permitted(target: Target, dtype: str, policy: str) -> dict[str, int]:
    """Return the permitted units with the number of partial products each needs."""
    if policy == "hard":
        return dict.fromkeys(target.peaks, 1)
    row = DTYPES[dtype]
    units = dict.fromkeys(row.matrix_units, 1)
    if policy == "tf32":
        units |= dict.fromkeys(row.faster_units, 1)
    return units | {unit: products for unit, products in row.split_units if unit not in units}


def _fastest(target: Target, units: dict[str, int], what: str, documented: bool) -> tuple[str, float]:
    rate_of = target.flop_per_s if documented else target.highest_flop_per_s
    # Of equally fast units the one named first counts, exact ones before split ones.
    rates = [
        (rate_of(u) / products, -index, u) for index, (u, products) in enumerate(units.items()) if u in target.peaks
    ]
    if not rates:
        raise NotModelledError(f"{target.name}: no peak for {what}; it states {', '.join(sorted(target.peaks))}")
    rate, _, unit = max(rates)
    return (unit if units[unit] == 1 else f"{unit} in {units[unit]} products"), rate
