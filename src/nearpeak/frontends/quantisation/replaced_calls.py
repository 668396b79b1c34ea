"""Replacement of calls of a workload by others, with references by position renumbered."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import accumulate

from nearpeak.core.work.workload import Buffer, Call, Workload

Replacements = Mapping[int, Sequence[Call]]
"""Calls that take the place of the one at a position."""


def with_replaced_calls(workload: Workload, replacements: Replacements, buffers: Sequence[Buffer]) -> Workload:
    """Return the workload with other calls in some places.

    What is known of the elements of a call's operands goes with the first call of the same operator that has a form;
    where there is none, it is dropped: it names tensors of a form.

    Args:
        buffers: all storages, the new ones behind those of the workload.

    >>> call = Call(case=None, operator="f", phase="forward")
    >>> step = Workload(name="s", step="forward", calls=(call, call), groups=((0, 1),))
    >>> with_replaced_calls(step, {0: (call, call)}, ()).groups
    ((0, 1, 2),)
    """
    counts = [len(replacements.get(index, (call,))) for index, call in enumerate(workload.calls)]
    starts = [0, *accumulate(counts)]
    places = [tuple(range(starts[index], starts[index] + count)) for index, count in enumerate(counts)]
    calls = [new for index, call in enumerate(workload.calls) for new in replacements.get(index, (call,))]
    same = {index: numbers[0] for index, numbers in enumerate(places) if index not in replacements}
    for index, others in replacements.items():
        operator = workload.calls[index].operator
        matches = [place for place, call in enumerate(others) if call.form is not None and call.operator == operator]
        if matches:
            same[index] = places[index][matches[0]]
    known = tuple(item._replace(call=same[item.call]) for item in workload.known if item.call in same)
    return dataclasses.replace(
        workload,
        calls=tuple(calls),
        buffers=tuple(buffers),
        known=known,
        groups=tuple(tuple(place for index in group for place in places[index]) for group in workload.groups),
        guessed=tuple(place for index in workload.guessed for place in places[index]),
    )
