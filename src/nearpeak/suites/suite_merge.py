"""Construction of suites from workloads, and merging of suites with exact call counts."""

import re
from collections.abc import Iterable
from dataclasses import replace

from nearpeak.base.canonical_json import digest
from nearpeak.core.answers.suite import Source, Suite, SuiteCase, Why
from nearpeak.core.work.case import Case
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError

_REPEATED = re.compile(r"(?:(?<=\.)|^)\d+(?=\.|$)")


def suite_of(workload: Workload) -> Suite:
    """Return the distinct cases of a workload with their places and counts.

    Cases of sweeps are directed: their author asked for them, no model calls them that often. Lines of a .jsonl file
    state counts and are taken for what a model calls.

    Raises:
        SpecError: no call of the workload has a case.

    >>> from nearpeak.core.work.workload import Call
    >>> from nearpeak.ops import case
    >>> calls = [Call(case=case("fill", elements=8, dtype="bf16"), operator="fill", phase="forward", call_count=3)]
    >>> found = suite_of(Workload(name="w", step="forward", calls=tuple(calls)))
    >>> found.sources[0].name, found.cases[0].call_count
    ('w forward', 3)
    """
    directed = workload.origin.get("kind") == "sweep" and not workload.origin.get("file", "").endswith(".jsonl")
    kind = "directed" if directed else "usecase"
    name = workload.name if workload.step == "sweep" else f"{workload.name} {workload.step}"
    found: dict[Case, dict[Why, int]] = {}
    for call in workload.calls:
        if call.case is not None:
            places = found.setdefault(call.case, {})
            why = (
                Why(kind=kind, source=name, rule=call.module or call.source, line=call.source)
                if kind == "directed"
                else Why(kind=kind, source=name, module=_REPEATED.sub("*", call.module), line=call.source)
            )
            places[why] = places.get(why, 0) + call.call_count
    if not found:
        raise SpecError(f"{workload.name}: no call of it has a case; nothing can be tested")
    cases = [SuiteCase(case=case, why=_counted(places, kind)) for case, places in found.items()]
    source = Source(
        name=name, kind=kind, digest=_digest_of(name, cases), origin=dict(workload.origin),
        uncovered=workload.uncovered_counts(), call_count=sum(one.call_count for one in cases),
    )  # fmt: skip
    return Suite(name=workload.name, cases=_sorted(cases), sources=(source,))


def merged(suites: Iterable[Suite], name: str) -> Suite:
    """Return one suite with every case once; a source that several of them have is counted once.

    A source of the same name with other contents keeps a name of its own, `name (2)`.

    Raises:
        SpecError: there is nothing to merge.
    """
    sources: dict[str, Source] = {}
    reasons: dict[Case, list[Why]] = {}
    chosen: dict[Case, bool] = {}
    plan: dict[str, str] = {}
    infeasible: dict[str, str] = {}
    for suite in suites:
        new = {one.name: one for one in suite.sources if one.digest not in sources}
        names = {old: _free_name(old, sources.values()) for old in new}
        sources |= {one.digest: replace(one, name=names[one.name]) for one in new.values()}
        plan = plan or dict(suite.plan)
        infeasible |= suite.infeasible
        for one in suite.cases:
            kept = reasons.setdefault(one.case, [])
            kept += [replace(why, source=names[why.source]) for why in one.why if why.source in names]
            chosen[one.case] = chosen.get(one.case, False) or one.chosen
    if not reasons:
        raise SpecError(f"{name}: there is no case; give a model or a file, or cases by --sweep, --op or --ready")
    cases = [SuiteCase(case=case, why=_ordered(why), chosen=chosen[case]) for case, why in reasons.items()]
    return Suite(name=name, cases=_sorted(cases), sources=tuple(sources.values()), plan=plan, infeasible=infeasible)


def _counted(places: dict[Why, int], kind: str) -> tuple[Why, ...]:
    """Return the reasons with their counts; how often a rule states a case says nothing."""
    counted = places if kind == "usecase" else dict.fromkeys(places, 0)
    return _ordered(replace(why, call_count=count) for why, count in counted.items())


def _ordered(why: Iterable[Why]) -> tuple[Why, ...]:
    return tuple(sorted(set(why), key=lambda one: (one.kind, one.source, one.module, one.line, one.rule)))


def _sorted(cases: Iterable[SuiteCase]) -> tuple[SuiteCase, ...]:
    return tuple(sorted(cases, key=lambda one: (one.case.op, one.case.phase, one.case.digest)))


def _digest_of(name: str, cases: Iterable[SuiteCase]) -> str:
    """Return what identifies a source: its name, its cases, and where and how often it calls each."""
    rows = [
        [one.case.digest, [[why.kind, why.module, why.line, why.rule, why.call_count] for why in one.why]]
        for one in cases
    ]
    return digest([name, sorted(rows)])


def _free_name(name: str, taken: Iterable[Source]) -> str:
    known = {one.name for one in taken}
    numbered = (name if number == 1 else f"{name} ({number})" for number in range(1, len(known) + 2))
    return next(one for one in numbered if one not in known)
