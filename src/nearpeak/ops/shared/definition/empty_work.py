"""A decorator that sets the work of a case to zero where its output is empty."""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps

from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty


def free_when_empty(rule: Callable[..., Work]) -> Callable[..., Work]:
    """Return the rule of work with all counts 0 where nothing is written, for single cases and columns alike.

    Rules whose outputs' extent is data, such as the positions of what is not zero, keep their reads.

    >>> free_when_empty(lambda elements: Work(read_bytes=8, write_bytes=elements))(0).read_bytes
    0
    """

    @wraps(rule)
    def guarded(*args: object, **arguments: object) -> Work:
        work = rule(*args, **arguments)
        written = work.write_bytes
        return replace(
            work,
            flop={unit: unless_empty(written, count) for unit, count in work.flop.items()},
            recompute_flop={unit: unless_empty(written, count) for unit, count in work.recompute_flop.items()},
            special_count=unless_empty(written, work.special_count),
            read_bytes=unless_empty(written, work.read_bytes),
        )

    return guarded
