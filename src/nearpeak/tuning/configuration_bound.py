"""Proved lower bound of a configuration's time, from the traffic, arithmetic and blocks that its parameters imply."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.tuning.space import Configuration, TuningSpace
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.exchange.axis_expression import evaluate


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastWork:
    """Expressions over parameters and axes that say the least work of a configuration."""

    dram_bytes: str = ""
    """Bytes that must cross the device memory, whatever caches hold."""
    flop: str = ""
    """Arithmetic that it executes, padding included."""
    unit: str = ""
    """Execution unit of that arithmetic, as the target names it: `vector.fp32`."""
    blocks: str = ""
    """Blocks of equal work that each run on one multiprocessor."""


def configuration_bound(
    work: LeastWork, space: TuningSpace, axes: Mapping[str, Any], target: Target | None, case_bound_s: float | None
) -> Callable[[Configuration], float]:
    """Return the function from a configuration to its bound in seconds; 0 where nothing is known.

    T ≥ max(bound of the case, bytes / bandwidth, ceil(blocks / P) · (flop / blocks) / (rate / P)) on P multiprocessors:
    the fullest of them executes at least ceil(blocks / P) blocks.

    Raises:
        SpecError: an expression is none over whole-numbered parameters and axes, or its value is negative.
        NotModelledError: the target states no rate of the unit.
    """
    base_s = case_bound_s or 0.0
    if target is None or not (work.dram_bytes or work.flop):
        return lambda _: base_s
    bandwidth = target.dram.bandwidth_bytes_per_s
    rate = target.highest_flop_per_s(work.unit) if work.flop else 0.0

    def bound_s(configuration: Configuration) -> float:
        values = {**axes, **space.named(configuration)}
        terms_s = [base_s]
        if work.dram_bytes and bandwidth:
            terms_s.append(_count(work.dram_bytes, values) / bandwidth)
        if work.flop and rate:
            flop, blocks = _count(work.flop, values), _count(work.blocks, values) if work.blocks else 0
            fullest_ratio = -(-blocks // target.sm_count) * target.sm_count / blocks if blocks else 1.0
            terms_s.append(flop * fullest_ratio / rate)
        return max(terms_s)

    return bound_s


def _count(text: str, values: Mapping[str, Any]) -> int:
    count = evaluate(text, {name: value for name, value in values.items() if isinstance(value, int)})
    if count < 0:
        raise SpecError(f"bound {text!r}: is {count} for a configuration; work is not negative")
    return int(count)
