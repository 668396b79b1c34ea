"""Algebraic simplification of a step: the least work after rewrites that hold for every finite input."""

import dataclasses
from collections.abc import Mapping, Sequence

from nearpeak.base.deep_recursion import deep_recursion
from nearpeak.base.garbage_collection import collector_paused
from nearpeak.bounds.simplify.element_patterns import Patterns
from nearpeak.bounds.simplify.graph_builder import read_step
from nearpeak.bounds.simplify.linear_algebra import LIFTS
from nearpeak.bounds.simplify.live_elements import alive, picks_all, tells
from nearpeak.bounds.simplify.picked_rows import PICKED_LIFTS
from nearpeak.bounds.simplify.product_counts import by_call, part_shares, product_costs, products_of, spared
from nearpeak.bounds.simplify.recurrent_inputs import RECURRENT_LIFTS
from nearpeak.bounds.simplify.recurrent_parts import used_products
from nearpeak.bounds.simplify.remaining_work import arithmetic, initial_bytes
from nearpeak.bounds.simplify.resampled_images import RESAMPLED_LIFTS
from nearpeak.bounds.simplify.rewrite_search import Saving, search
from nearpeak.bounds.simplify.rewrites import REWRITES, rules
from nearpeak.bounds.simplify.value_graph import AppliedRewrite, Graph
from nearpeak.bounds.step.compulsory_work import initial_reads, live_calls
from nearpeak.bounds.terms.symmetric_products import gram_work, is_gram
from nearpeak.bounds.value_facts.call_operands import FactSite
from nearpeak.core.answers.bound import Rewritten
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Workload

_FRAMES_PER_CALL = 40
"""Python frames that a rewrite takes at most to pass through one call, as a slice does that moves to operands."""


def simplified_work(
    workload: Workload, works: Sequence[Work | None], step: Work, algorithm: str = "classical",
    live: Sequence[bool] | None = None, sites: Sequence[FactSite | None] = (),
) -> tuple[Work, tuple[Rewritten, ...]]:  # fmt: skip
    """Return the least work of the simplified step, and what was rewritten; `step` itself where nothing is gained.

    No count is above that of `step`: a program may still do as written what is cheaper so.

    Args:
        works: work of each call, none where no rule covers it.
        step: least work of the step as written.
        algorithm: `any` counts no products of what was rewritten: which is least among all algorithms is not known.
        live: what `live_calls` gives, where the caller has it.
        sites: what is known of the operands of each call.
    """
    if not any(call.form is not None for call in workload.calls):
        return step, ()
    with collector_paused(), deep_recursion(_FRAMES_PER_CALL * len(workload.calls)):
        before = initial_reads(workload, live_calls(workload) if live is None else live)
        return _simplified(workload, works, step, algorithm, before, sites)


def _simplified(
    workload: Workload, works: Sequence[Work | None], step: Work, algorithm: str, before: Mapping[int, int],
    sites: Sequence[FactSite | None],
) -> tuple[Work, tuple[Rewritten, ...]]:  # fmt: skip
    graph, patterns = Graph(rules()), Patterns(workload.patterns)
    written = read_step(workload, graph, LIFTS | RECURRENT_LIFTS | PICKED_LIFTS | RESAMPLED_LIFTS, patterns, sites)
    roots, live, savings = search(graph, written)
    call_works = _by_call(workload, works)
    after, remaining, count_savings = _counted(graph, (roots, live), call_works, algorithm, patterns)
    if roots != written:  # the search did not know which elements matter, and forms parts of one result apart
        other = _counted(graph, (written, graph.live(written)), call_works, algorithm, patterns, by_element=True)
        after = {buffer: min(size, other[0].get(buffer, 0)) for buffer, size in after.items()}
        if products_of(other[1]) < products_of(remaining):
            (_, remaining, count_savings), savings = other, []
    savings += count_savings
    least = dataclasses.replace(
        step,
        flop={kind: min(flop, remaining.flop.get(kind, 0)) for kind, flop in step.flop.items()},
        special_count=min(step.special_count, remaining.special_count),
        read_bytes=sum(min(size, after.get(buffer, 0)) for buffer, size in before.items()),
        barrier=None,  # what needed a figure over a whole group may be gone
    )
    if _proved(least) == _proved(step):
        return step, ()
    # A factor that is one number everywhere is taken out as the product is read, before any rewrite.
    constant = Rewritten(
        name="outer_factor", text=REWRITES["outer_factor"].text, where="", count=1,
        before_flop=2 * products_of(step), after_flop=2 * products_of(least),
    )  # fmt: skip
    return least, _lines(workload, graph.fired, savings) or (constant,)


def _counted(
    graph: Graph,
    step: tuple[Sequence[int], Sequence[int]],
    call_works: Mapping[int, Work],
    algorithm: str,
    patterns: Patterns,
    *,
    by_element: bool = False,
) -> tuple[Mapping[int, int], Work, list[Saving]]:
    """Return the bytes that are read of each given storage, the arithmetic, and what counting alone spares.

    Args:
        step: roots of the step, and the nodes that they depend on.
        by_element: follow which elements matter even where no node says so.
    """
    roots, live = step
    known = alive(graph, live, roots, patterns) if by_element or tells(graph, live) else None
    formed = product_costs(graph, live, roots, patterns, known)
    calls = by_call(graph, live, formed, call_works, known)
    needed = {} if known is None else known.needed
    shares = {} if known is None else part_shares(graph, live, known)
    done, spare = arithmetic(graph, live, call_works, algorithm, (formed, calls), shares), spared(calls, call_works)
    used = used_products(graph, live, needed, {number: formed_cost.products for number, formed_cost in formed.items()})
    spare += [Saving("unused_steps", call, counts) for call, counts in used.items()]
    read = initial_bytes(graph, live, {})
    if known is not None:
        touched = (
            alive(graph, live, roots, patterns, may_repeat=True).needed if picks_all(graph, live) else known.needed
        )
        if (less := initial_bytes(graph, live, touched)) != read:
            return less, done, [*spare, Saving("unread_elements", -1, (0, 0))]
    return read, done, spare


def _proved(work: Work) -> object:
    """Return the counts that proved terms rest on."""
    return {kind: flop for kind, flop in work.flop.items() if kind.startswith("matrix.")}, work.read_bytes


def _by_call(workload: Workload, works: Sequence[Work | None]) -> dict[int, Work]:
    """Return the work of each call by position; a call that names no storage belongs to the one before it."""
    by_call_work: dict[int, Work] = {}
    leader = 0
    for index, call in enumerate(workload.calls):
        leader = index if call.reads or call.writes or call.form is not None else leader
        work = works[index]
        if call.case is not None and work is not None:
            work = gram_work(call, work) if call.case.op == "attention" and is_gram(call) else work
            total = work if call.call_count == 1 else work * call.call_count
            by_call_work[leader] = by_call_work[leader] + total if leader in by_call_work else total
    return by_call_work


def _lines(workload: Workload, fired: list[AppliedRewrite], savings: list[Saving]) -> tuple[Rewritten, ...]:
    """Return the rewrites that reports name, by name and by the module that they concern."""
    lines: dict[tuple[str, str], Rewritten] = {}
    places = [*((applied.name, applied.call, (0, 0)) for applied in fired), *savings]
    for name, call, (before, after) in places:
        if not REWRITES[name].shown:
            continue
        where = workload.calls[call].source or workload.calls[call].module if call >= 0 else ""
        known = lines.get((name, where), Rewritten(name=name, text=REWRITES[name].text, where=where, count=0))
        lines[name, where] = dataclasses.replace(
            known, count=known.count + 1, before_flop=known.before_flop + 2 * before,
            after_flop=known.after_flop + 2 * after,
        )  # fmt: skip
    return tuple(sorted(lines.values(), key=lambda line: (line.after_flop - line.before_flop, line.name, line.where)))
