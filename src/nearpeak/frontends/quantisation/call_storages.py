"""Number formats and storages of the tensors in a call's recorded arguments."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Set

from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Argument, Call, CallLayout, Use


def layouts_of(call: Call) -> list[tuple[int, Layout]]:
    """Return the storage and the layout of each tensor of a call, results last; none without a form."""
    if call.form is None:
        return []
    layouts = [layout for _, value in call.form.arguments for layout in _layouts(value)]
    return list(zip(call.storages, (*layouts, *call.form.results), strict=True))


def with_dtype(call: Call, buffers: Set[int], dtype: str) -> CallLayout | None:
    """Return the form of a call whose tensors in some storages are of another format; none where it has none."""
    if call.form is None:
        return None
    storages = iter(call.storages)

    def changed(layout: Layout) -> Layout:
        return layout._replace(dtype=dtype) if next(storages) in buffers else layout

    arguments = tuple((name, _mapped(value, changed)) for name, value in call.form.arguments)
    return CallLayout(arguments=arguments, results=tuple(map(changed, call.form.results)))


def with_storages(call: Call, numbers: Mapping[int, int]) -> Call:
    """Return the call on other storages.

    >>> call = Call(case=None, operator="f", phase="forward", reads=(Use(buffer=3, bytes=8),), storages=(3,))
    >>> with_storages(call, {3: 5}).reads[0].buffer
    5
    """

    def moved(use: Use) -> Use:
        return dataclasses.replace(use, buffer=numbers.get(use.buffer, use.buffer))

    return dataclasses.replace(
        call, reads=tuple(map(moved, call.reads)), writes=tuple(map(moved, call.writes)),
        storages=tuple(numbers.get(number, number) for number in call.storages),
    )  # fmt: skip


def _layouts(value: Argument) -> Iterator[Layout]:
    if isinstance(value, Layout):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _layouts(item)


def _mapped(value: Argument, changed: Callable[[Layout], Layout]) -> Argument:
    if isinstance(value, Layout):
        return changed(value)
    return tuple(_mapped(item, changed) for item in value) if isinstance(value, tuple) else value
