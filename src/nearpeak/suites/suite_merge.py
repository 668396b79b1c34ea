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

    Cases of sweeps are directed: their author chose them, and no model calls them. Lines of a .jsonl file state call
    counts and count as use of a model.

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
    places_by_case: dict[Case, dict[Why, int]] = {}
    for call in workload.calls:
        if call.case is not None:
            places = places_by_case.setdefault(call.case, {})
            module = "" if directed else _REPEATED.sub("*", call.module)
            rule = (call.module or call.source) if directed else ""
            why = Why(kind=kind, source=name, module=module, line=call.source, rule=rule)
            places[why] = places.get(why, 0) + call.call_count
    if not places_by_case:
        raise SpecError(f"{workload.name}: no call of it has a case; nothing can be tested")
    cases = [
        SuiteCase(case=case, why=_ordered(  # how often a rule states a case is no call count
            replace(why, call_count=0 if directed else count) for why, count in places.items()
        ))
        for case, places in places_by_case.items()
    ]  # fmt: skip
    source = Source(
        name=name, kind=kind, digest=_digest_of(name, cases), origin=dict(workload.origin),
        uncovered=workload.uncovered_counts(), call_count=sum(entry.call_count for entry in cases),
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
        new = {entry.name: entry for entry in suite.sources if entry.digest not in sources}
        names = {old: _free_name(old, sources.values()) for old in new}
        sources |= {entry.digest: replace(entry, name=names[entry.name]) for entry in new.values()}
        plan = plan or dict(suite.plan)
        infeasible |= suite.infeasible
        for entry in suite.cases:
            case_reasons = reasons.setdefault(entry.case, [])
            case_reasons += [replace(why, source=names[why.source]) for why in entry.why if why.source in names]
            chosen[entry.case] = chosen.get(entry.case, False) or entry.chosen
    if not reasons:
        raise SpecError(f"{name}: there is no case; give a model or a file, or cases by --sweep, --op or --ready")
    cases = [SuiteCase(case=case, why=_ordered(why), chosen=chosen[case]) for case, why in reasons.items()]
    return Suite(name=name, cases=_sorted(cases), sources=tuple(sources.values()), plan=plan, infeasible=infeasible)


def _ordered(why: Iterable[Why]) -> tuple[Why, ...]:
    return tuple(
        sorted(set(why), key=lambda reason: (reason.kind, reason.source, reason.module, reason.line, reason.rule))
    )


def _sorted(cases: Iterable[SuiteCase]) -> tuple[SuiteCase, ...]:
    return tuple(sorted(cases, key=lambda case: (case.case.op, case.case.phase, case.case.digest)))


def _digest_of(name: str, cases: Iterable[SuiteCase]) -> str:
    """Return what identifies a source: its name, its cases, and where and how often it calls each."""
    rows = [
        [suite_case.case.digest, [[why.kind, why.module, why.line, why.rule, why.call_count] for why in suite_case.why]]
        for suite_case in cases
    ]
    return digest([name, sorted(rows)])


def _free_name(name: str, taken: Iterable[Source]) -> str:
    known = {source.name for source in taken}
    numbered = (name if number == 1 else f"{name} ({number})" for number in range(1, len(known) + 2))
    return next(free for free in numbered if free not in known)
