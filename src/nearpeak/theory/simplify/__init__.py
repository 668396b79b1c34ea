"""The `simplified` engine: the least work of a step after algebraic rewrites that hold for every finite input."""

import dataclasses
from collections.abc import Mapping

from nearpeak.core.bound import Rewritten
from nearpeak.core.case import Case
from nearpeak.core.collector import collector_paused
from nearpeak.core.work import Work
from nearpeak.core.workload import Workload
from nearpeak.theory.compulsory import given_reads
from nearpeak.theory.simplify.algebra import LIFTS
from nearpeak.theory.simplify.count import arithmetic, given_bytes
from nearpeak.theory.simplify.formed import by_call, formed_products, spared
from nearpeak.theory.simplify.graph import Fired, Graph
from nearpeak.theory.simplify.lift import read_step
from nearpeak.theory.simplify.rewrites import REWRITES, rules
from nearpeak.theory.simplify.search import Found, search


def simplified_work(
    workload: Workload, works: Mapping[Case, Work], step: Work, algorithm: str = "classical"
) -> tuple[Work, tuple[Rewritten, ...]]:
    """Return the least work of the simplified step, and what was rewritten; `step` itself where nothing is gained.

    No count is above that of `step`: a program may still do as written what is cheaper so.

    Args:
        works: work of each case.
        step: least work of the step as written.
        algorithm: `any` counts no products of what was rewritten: which is least among all algorithms is not known.
    """
    if not any(call.form is not None for call in workload.calls):
        return step, ()
    with collector_paused():
        return _simplified(workload, works, step, algorithm)


def _simplified(
    workload: Workload, works: Mapping[Case, Work], step: Work, algorithm: str
) -> tuple[Work, tuple[Rewritten, ...]]:
    graph = Graph(rules())
    roots = read_step(workload, graph, LIFTS)
    roots, found = search(graph, roots)
    live = graph.live(roots)
    own, formed = _by_call(workload, works), formed_products(graph, live, roots)
    calls = by_call(graph, live, formed)
    done = arithmetic(graph, live, own, algorithm, (formed, calls))
    found += spared(calls, own)
    before, after = given_reads(workload), given_bytes(graph, live)
    least = dataclasses.replace(
        step,
        flop={kind: min(flop, done.flop.get(kind, 0)) for kind, flop in step.flop.items()},
        special_count=min(step.special_count, done.special_count),
        read_bytes=sum(min(size, after.get(buffer, 0)) for buffer, size in before.items()),
        barrier=None,  # what needed a figure over a whole group may be gone
    )
    return (step, ()) if _proved(least) == _proved(step) else (least, _lines(workload, graph.fired, found))


def _proved(work: Work) -> object:
    """Return the counts that proved terms rest on."""
    return {kind: flop for kind, flop in work.flop.items() if kind.startswith("matrix.")}, work.read_bytes


def _by_call(workload: Workload, works: Mapping[Case, Work]) -> dict[int, Work]:
    """Return the work of each call by position; a call that names no storage belongs to the one before it."""
    found: dict[int, Work] = {}
    leader = 0
    for index, call in enumerate(workload.calls):
        leader = index if call.reads or call.writes or call.form is not None else leader
        if call.case is not None:
            own = works[call.case] if call.call_count == 1 else works[call.case] * call.call_count
            found[leader] = found[leader] + own if leader in found else own
    return found


def _lines(workload: Workload, fired: list[Fired], found: list[Found]) -> tuple[Rewritten, ...]:
    """Return the rewrites that reports name, by name and by the module that they concern."""
    lines: dict[tuple[str, str], Rewritten] = {}
    places = [*((one.name, one.call, (0, 0)) for one in fired), *found]
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
