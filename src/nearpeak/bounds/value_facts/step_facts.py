"""Propagation of value properties (range, exact format, one-hot rows) through a step, call by call."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from nearpeak.bounds.value_facts.call_operands import FactSite, Operand, numbers_of, packet, tensors_of
from nearpeak.bounds.value_facts.carriers import NARROWEST, WIDEST
from nearpeak.bounds.value_facts.operator_rules import result_fact
from nearpeak.bounds.value_facts.value_fact import (
    ValueFact,
    either,
    fact_of_format,
    fact_of_number,
    stored_as,
)
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Call, Use, Workload


class _Content(NamedTuple):
    """What a storage holds."""

    number: int
    """Number of the content; each write makes a new one."""
    fact: ValueFact
    """What is known of it."""
    dtype: str
    """Format in which it was written, empty where no source says."""


def sites_of(workload: Workload) -> list[FactSite | None]:
    """Return each call with the facts of its operands; none for calls without a rule."""
    walk = _Walk(workload)
    return [walk.visit(call) for call in workload.calls]


class _Walk:
    """Contents of all storages after the calls so far."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._contents: dict[int, _Content] = {}
        self._facts: list[ValueFact] = []

    def visit(self, call: Call) -> FactSite | None:
        """Return the call with what is known of its operands, and note what it writes."""
        if call.case is None:
            for use in call.writes:
                self._write(use, ValueFact(NARROWEST), "", whole=True)
            return None
        wide = dict(call.case.dtypes).get("dtype", WIDEST)
        operands = tuple(
            self._operand(name, buffer, layout, size, wide) for name, buffer, layout, size in tensors_of(call)
        )
        results = call.form.results if call.form else ()
        dtypes = dict(call.case.dtypes)
        site = FactSite(
            case=call.case, packet=packet(call.operator), operands=operands, numbers=numbers_of(call),
            result=results[0] if results else None,
            dtype=results[0].dtype if results else dtypes.get("out_dtype", wide),
        )  # fmt: skip
        self._note_results(call, site, results)
        return site

    def _operand(self, name: str, buffer: int, layout: Layout | None, size: int, wide: str) -> Operand:
        content = self._contents.get(buffer)
        if content is None:
            value = self._workload.buffers[buffer].value
            fact = fact_of_format(layout.dtype if layout else wide) if value is None else fact_of_number(value)
            content = self._keep(buffer, fact, layout.dtype if layout else "")
        fact = content.fact
        if layout is not None and content.dtype not in ("", layout.dtype):  # the same bits read in another format
            fact = fact_of_format(layout.dtype)
        return Operand(name, buffer, layout, size, content.number, fact)

    def _note_results(self, call: Call, site: FactSite, results: Sequence[Layout]) -> None:
        """Note the facts of what a call writes: those of its first result by the rule of its operator."""
        if not call.writes:
            return
        fact = result_fact(site)
        if fact.difference is not None and fact.difference[1] < 0:
            fact = self._facts[fact.difference[0]]
        targets = call.storages[len(site.operands) :] if call.form else tuple(use.buffer for use in call.writes[:1])
        layouts: Mapping[int, Layout] = dict(zip(targets, results, strict=False))
        for use in call.writes:
            layout = layouts.get(use.buffer)
            is_first = bool(targets) and use.buffer == targets[0]
            whole = self._fills(use, layout)
            if is_first or not call.form:
                dtype = layout.dtype if layout else site.dtype
                self._write(use, stored_as(fact, dtype), dtype if layout else "", whole=whole)
            elif layout is not None:
                self._write(use, fact_of_format(layout.dtype), layout.dtype, whole=whole)
            else:
                self._write(use, ValueFact(WIDEST), "", whole=True)

    def _fills(self, use: Use, layout: Layout | None) -> bool:
        """Say whether a call's result is the whole of a storage, also where it touches a part of it in place."""
        size_bytes = self._workload.buffers[use.buffer].bytes
        return size_bytes == (use.bytes if layout is None else dtype_of(layout.dtype).bytes(prod(layout.shape)))

    def _write(self, use: Use, fact: ValueFact, dtype: str, *, whole: bool) -> None:
        before = self._contents.get(use.buffer)
        if not whole:  # what is left of the storage as it was
            fact = either(fact, before.fact if before else fact_of_format(dtype or WIDEST))
        self._keep(use.buffer, fact, dtype)

    def _keep(self, buffer: int, fact: ValueFact, dtype: str) -> _Content:
        content = self._contents[buffer] = _Content(len(self._facts), fact, dtype)
        self._facts.append(fact)
        return content
