"""A step with less work than its calls state, by known values: narrower formats, zero states, selected rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nearpeak.bounds.value_facts.call_operands import FactSite
from nearpeak.bounds.value_facts.carriers import narrowed_products
from nearpeak.bounds.value_facts.operator_rules import product_carriers, zero_factor
from nearpeak.bounds.value_facts.step_facts import sites_of
from nearpeak.bounds.value_facts.zero_states import from_zero_states
from nearpeak.core.answers.bound import Rewritten
from nearpeak.core.work.case import Case
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Call, Workload
from nearpeak.ops import work_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RefinedStep:
    """A step with the work that its values leave."""

    workload: Workload
    """The step; calls read what they need."""
    works: tuple[Work | None, ...]
    """Least work of each call; none where no rule covers it."""
    sites: tuple[FactSite | None, ...]
    """Facts of the operands of each call."""
    rewrites: tuple[str, ...]
    """By call: the rewrite that spared something, empty where none did."""


def refined(workload: Workload, works: Mapping[Case, Work], algorithm: str = "classical") -> RefinedStep:
    """Return the step with the work that the facts about its values leave.

    Args:
        works: work of each case, whatever the values are.
    """
    sites = sites_of(workload)
    parts = [
        _refined(call, None if call.case is None else works[call.case], site, algorithm)
        for call, site in zip(workload.calls, sites, strict=True)
    ]
    guessed = frozenset(workload.guessed)
    parts = [
        (_unsized(call, sites[at]), None, "guessed_size") if at in guessed else (call, work, name)
        for at, (call, work, name) in enumerate(parts)
    ]
    calls = tuple(call for call, _, _ in parts)
    same = all(new is old for new, old in zip(calls, workload.calls, strict=True))
    return RefinedStep(
        workload=workload if same else replace(workload, calls=calls),
        works=tuple(work for _, work, _ in parts),
        sites=tuple(sites),
        rewrites=tuple(name for _, _, name in parts),
    )


def _refined(call: Call, work: Work | None, site: FactSite | None, algorithm: str) -> tuple[Call, Work | None, str]:
    """Return a call with what it needs, its work, and the rewrite that spared something."""
    if work is None or site is None:
        return call, work, ""
    name = ""
    shorter = from_zero_states(call, site)
    if shorter is not None:
        assert shorter.case is not None
        call, work, name = shorter, work_of(shorter.case, algorithm), "zero_state"
    if zero_factor(site):
        reads = call.reads if call.form else call.reads[2:]
        return replace(call, reads=reads), _without_products(work), "zero_factor"
    is_gemm = call.form is None and call.case is not None and call.case.op == "gemm"
    if is_gemm and site.operands and site.operands[0].fact.selects == (1,):
        return _with_one_row(call), _without_products(work), "selected_rows"
    carriers = product_carriers(site)
    if carriers is None:
        return call, work, name
    flop = narrowed_products(work.flop, *carriers)
    return (call, work, name) if flop == work.flop else (call, replace(work, flop=flop), "narrow_format")


def _unsized(call: Call, site: FactSite | None) -> Call:
    """Return a call on a guessed number of elements: sure is only that what decides the number is read."""
    names = DECIDING.get("" if site is None else site.packet, ())
    buffers = {operand.buffer for operand in site.operands if operand.name.startswith(names)} if site and names else ()
    return replace(call, case=None, form=None, reads=tuple(use for use in call.reads if use.buffer in buffers))


DECIDING: Mapping[str, tuple[str, ...]] = {
    "index": ("indices",), "masked_select": ("mask",), "nonzero": ("self",), "_unique2": ("self",),
    "unique_consecutive": ("self",), "unique_dim": ("self",), "repeat_interleave": ("repeats",),
}  # fmt: skip
"""Arguments whose values decide how many elements a result has, by operator."""


def _without_products(work: Work) -> Work:
    return replace(
        work, flop={kind: count for kind, count in work.flop.items() if not kind.startswith("matrix.")},
        contraction=None,
    )  # fmt: skip


def _with_one_row(call: Call) -> Call:
    """Return a product whose left factor selects rows of the right one: of unknown indices, one row is sure."""
    assert call.case is not None
    left, right, *rest = call.reads
    rows = max(1, dict(call.case.axes)["k"])
    return replace(call, reads=(left, replace(right, bytes=-(-right.bytes // rows)), *rest))


def rewritten(step: RefinedStep, texts: Mapping[str, str], works: Sequence[Work | None]) -> tuple[Rewritten, ...]:
    """Return what was spared, by rewrite and place, with the matrix work before and after.

    Args:
        texts: what each rewrite says, for people.
        works: work of each call, whatever the values are.
    """
    lines: dict[tuple[str, str], Rewritten] = {}
    for call, before, after, name in zip(step.workload.calls, works, step.works, step.rewrites, strict=True):
        if not name:
            continue
        where = call.source or call.module
        known = lines.get((name, where), Rewritten(name=name, text=texts[name], where=where, count=0))
        lines[name, where] = replace(
            known, count=known.count + call.call_count,
            before_flop=known.before_flop + _matrix_flop(before) * call.call_count,
            after_flop=known.after_flop + _matrix_flop(after) * call.call_count,
        )  # fmt: skip
    return tuple(lines.values())


def _matrix_flop(work: Work | None) -> int:
    return 0 if work is None else sum(flop for kind, flop in work.flop.items() if kind.startswith("matrix."))
