"""Decode steps whose keys and values are cached in a narrower format."""

import dataclasses
from collections.abc import Iterator
from functools import cache

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.stored_formats import WIDE_FORMAT
from nearpeak.core.work.workload import Buffer, Call, CallLayout, Use, Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.frontends.quantisation.call_storages import layouts_of, with_dtype, with_storages
from nearpeak.frontends.quantisation.replaced_calls import with_replaced_calls
from nearpeak.ops import case as case_of
from nearpeak.units import counted

_KEPT = (".keys", ".values")
"""Ends of the names of storages that hold keys or values; others, such as states of recurrences, stay."""
_WIDE_BYTES = 2
_COPY = "aten.copy_.default"
_CONVERTING = (_COPY, "aten._to_copy.default")
"""Operators whose source and result may have different formats."""


def with_narrow_cache(workload: Workload, dtype: str) -> Workload:
    """Return the step with cached keys and values in another format, one scale per tensor.

    Attention reads them as stored; what else reads them, such as the expansion of a compressed cache, reads a
    converted copy. New keys and values are converted when they are written.

    Args:
        dtype: format of the elements.

    Raises:
        SpecError: the step has no such cache, or one that is not in 16 bits.
    """
    caches = {
        number for number, buffer in enumerate(workload.buffers)
        if buffer.kind == "kv_cache" and buffer.name.endswith(_KEPT)
    }  # fmt: skip
    if not caches:
        raise SpecError(f"--kv-cache {dtype}: {workload.name} caches no keys and values; leave it out")
    edit = _Edit(workload, caches, dtype)
    calls = {
        index: tuple(edit.calls_of(call)) for index, call in enumerate(workload.calls)
        if any(use.buffer in caches for use in (*call.reads, *call.writes))
    }  # fmt: skip
    changed = with_replaced_calls(workload, calls, edit.buffers)
    returned = tuple((number, layout._replace(dtype=dtype) if number in caches else layout)
                     for number, layout in workload.returned)  # fmt: skip
    note = f"{counted(len(caches), 'tensor')} of cached keys and values are stored as {dtype}, one scale for each."
    return dataclasses.replace(
        changed, returned=returned, origin={**workload.origin, "kv_cache": dtype},
        assumptions=(*workload.assumptions, note),
    )  # fmt: skip


class _Edit:
    """Storages of the step with a narrow cache, which grow by converted copies."""

    def __init__(self, workload: Workload, caches: set[int], dtype: str) -> None:
        self._name, self._caches, self._dtype = workload.name, caches, dtype
        self._old = workload.buffers
        self.buffers: list[Buffer] = [
            dataclasses.replace(buffer, bytes=self._narrow(buffer.bytes)) if number in caches else buffer
            for number, buffer in enumerate(workload.buffers)
        ]

    def calls_of(self, call: Call) -> Iterator[Call]:
        """Yield conversions of what is read, the call itself, and conversions of what it wrote."""
        self._check(call)
        case = _in_place(call, self._caches, self._dtype)
        if case is not None:
            operator, form = call.operator, with_dtype(call, self._caches, self._dtype)
            if case.op == "cast" and operator not in _CONVERTING:
                operator, form = "nearpeak.cast", None
            yield dataclasses.replace(
                call, operator=operator, case=case, reads=tuple(map(self._stored, call.reads)),
                writes=tuple(map(self._stored, call.writes)), form=form, storages=call.storages if form else (),
            )  # fmt: skip
            return
        copies = {use.buffer: self._copy(use) for use in (*call.reads, *call.writes) if use.buffer in self._caches}
        for use in call.reads:
            if use.buffer in copies:
                yield self._converted(call, use, copies[use.buffer])
        yield with_storages(call, copies)
        for use in call.writes:
            if use.buffer in copies:
                yield self._written_back(call, use, copies[use.buffer])

    def _check(self, call: Call) -> None:
        formats = set(dict(call.case.dtypes).values()) if call.case is not None else set()
        if formats & {"fp32", "fp64"}:
            raise SpecError(f"--kv-cache {self._dtype}: {self._name} holds keys and values in fp32; capture it in bf16")

    def _narrow(self, size: int) -> int:
        return dtype_of(self._dtype).bytes(size // _WIDE_BYTES)

    def _stored(self, use: Use) -> Use:
        """Return the part of a narrow cache that a part of the wide one has become; other storages stay."""
        if use.buffer not in self._caches:
            return use
        return Use(
            buffer=use.buffer, bytes=self._narrow(use.bytes), start_bytes=self._narrow(use.start_bytes),
            stop_bytes=self._narrow(use.stop_bytes),
        )  # fmt: skip

    def _copy(self, use: Use) -> int:
        """Return a new storage of the size of a wide cache."""
        self.buffers.append(Buffer(bytes=self._old[use.buffer].bytes, kind="activation"))
        return len(self.buffers) - 1

    def _converted(self, call: Call, use: Use, copy: int) -> Call:
        """Return the conversion of what a call reads of a cache into 16 bits."""
        return dataclasses.replace(
            call, operator="nearpeak.cast", case=_cast(use.bytes // _WIDE_BYTES, self._dtype, WIDE_FORMAT),
            reads=(self._stored(use),), writes=(dataclasses.replace(use, buffer=copy),), form=None, storages=(),
        )  # fmt: skip

    def _written_back(self, call: Call, use: Use, copy: int) -> Call:
        """Return the conversion of what a call wrote into the cache."""
        layout = next((layout for buffer, layout in layouts_of(call) if buffer == use.buffer), None)
        form = None
        if layout is not None:
            narrow, wide = layout._replace(dtype=self._dtype, alias=0), layout._replace(alias=1)
            form = CallLayout(arguments=(("self", narrow), ("src", wide), ("non_blocking", False)), results=(narrow,))
        return dataclasses.replace(
            call, operator=_COPY, case=_cast(use.bytes // _WIDE_BYTES, WIDE_FORMAT, self._dtype),
            reads=(dataclasses.replace(use, buffer=copy),), writes=(self._stored(use),), form=form,
            storages=(use.buffer, copy, use.buffer) if form else (),
        )  # fmt: skip


def _in_place(call: Call, caches: set[int], dtype: str) -> Case | None:
    """Return the case of a call that takes the cache as it is stored; none where it needs 16 bits."""
    case = call.case
    reads, writes = ([use.buffer in caches for use in uses] for uses in (call.reads, call.writes))
    if case is None:
        return None
    if case.op == "attention" and not any(writes):
        needed = 1 if dict(case.attributes).get("latent") else 2
        return _attention(case, dtype) if sum(reads) == needed else None
    if case.op == "copy" and len(reads) == len(writes) == 1:
        if all((*reads, *writes)):
            return _copied(case, dtype)
        return _cast_copy(case, dtype, WIDE_FORMAT) if reads[0] else _cast_copy(case, WIDE_FORMAT, dtype)
    return None


@cache  # equal calls share one case
def _attention(case: Case, dtype: str) -> Case | None:
    formats = {**dict(case.dtypes), "kv_dtype": dtype}
    try:
        return case_of("attention", "forward", **dict(case.axes), **formats, **dict(case.attributes))
    except NearpeakError:
        return None


@cache
def _copied(case: Case, dtype: str) -> Case:
    return case_of("copy", "forward", **dict(case.axes), dtype=dtype)


@cache
def _cast_copy(case: Case, dtype: str, out_dtype: str) -> Case:
    return case_of("cast", "forward", **dict(case.axes), dtype=dtype, out_dtype=out_dtype)


@cache
def _cast(elements: int, dtype: str, out_dtype: str) -> Case:
    return case_of("cast", elements=elements, dtype=dtype, out_dtype=out_dtype)
