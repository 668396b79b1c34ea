"""Sums of bounds by phase, operator or module of a step."""

from collections.abc import Iterable, Sequence

from nearpeak.core.answers.analysis import CaseRow, CaseTime, Share


def shares(rows: Sequence[CaseRow], times: Sequence[CaseTime], names: Iterable[str]) -> tuple[Share, ...]:
    """Return the parts of the step by name, largest first.

    Args:
        names: the part that each row belongs to.
    """
    count: dict[str, int] = {}
    limiters: dict[str, dict[str, float]] = {}
    for row, time, name in zip(rows, times, names, strict=True):
        part = limiters.setdefault(name, {})
        part[time.limiter] = part.get(time.limiter, 0.0) + time.bound_s * row.call_count
        count[name] = count.get(name, 0) + row.call_count
    total_s = sum(sum(part.values()) for part in limiters.values())
    parts = [
        Share(
            name=name, call_count=count[name], time_s=sum(part.values()), limiter_s=part,
            share_ratio=sum(part.values()) / total_s if total_s else 0.0,
        )
        for name, part in limiters.items()
    ]  # fmt: skip
    return tuple(sorted(parts, key=lambda share: (-share.time_s, share.name)))


def by_order(parts: tuple[Share, ...], order: Sequence[str]) -> tuple[Share, ...]:
    """Return the parts in the given order of names."""
    return tuple(sorted(parts, key=lambda share: order.index(share.name) if share.name in order else len(order)))
