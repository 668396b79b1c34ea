"""Tables of `nearpeak suite`: the contents of a suite, its three coverage figures, and differences of two suites."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from nearpeak.cli.shared.options import print_document
from nearpeak.reports.document import Block, Document, Table, Text, columns
from nearpeak.units import counted

if TYPE_CHECKING:
    from nearpeak.core.answers.suite import Suite, SuiteCase
    from nearpeak.core.answers.suite_coverage import DirectedShare, SuiteCoverage, UseShare
    from nearpeak.suites.run_results import RunOfSuite
    from nearpeak.suites.suite_difference import SuiteDifference

NOT_MEASURED = "not measured"
_NONE = "none"
_STANDS_FOR = {"exact": "itself", "class": "its class", "saturated": "its saturated class"}


def print_suite(suite: "Suite", coverage: "SuiteCoverage", ran: "RunOfSuite | None" = None) -> None:
    """Print the plan, what of it ran, then use-case, directed and effective coverage."""
    did = "are run" if ran is None else f"ran and passed ({ran.unchecked_count} of them unchecked)"
    title = f"{suite.name}: {coverage.chosen_count} of {coverage.case_count} cases {did}"
    print_document(Document(title=title, blocks=[*_plan(suite, coverage, ran), *_coverage(coverage)]))


def _plan(suite: "Suite", coverage: "SuiteCoverage", ran: "RunOfSuite | None") -> Iterator[Text]:
    lacks = [f"{exclusion.reason}: {counted(exclusion.case_count, 'case')}, {exclusion.flop_ratio:.2%} of FLOP"
             for exclusion in (() if ran is None else ran.excluded)]  # fmt: skip
    yield from (Text(f"  {text}", "warn") for text in lacks)
    yield from (Text(f"  {key}: {value}") for key, value in suite.plan.items())
    yield from (Text(f"  uncovered: {name}, {count} calls", "warn") for name, count in coverage.uncovered.items())
    yield from _lacks(suite)
    if coverage.untimed_count:
        unknown = "shares of time are unknown where a workload calls one"
        yield Text(f"  without a time: {counted(coverage.untimed_count, 'case')}; {unknown}", "warn")


def _coverage(coverage: "SuiteCoverage") -> Iterator[Block]:
    table = _use_table(coverage.use, effective=False)
    yield table if table.rows else "use-case coverage: no workload calls any of them"
    yield _directed_table(coverage.directed)
    if coverage.scored_count is None:
        yield f"effective coverage: {NOT_MEASURED}; --scores takes the mutation scores of the cases"
        return
    if table.rows:
        yield _use_table(coverage.use, effective=True)
    yield f"mutation scores: {coverage.scored_count} of {coverage.chosen_count} cases; others count 0"


def _lacks(suite: "Suite") -> Iterator[Text]:
    """Yield the losses of each source: unreadable lines, strides, constrained sweep points."""
    from nearpeak.frontends.files.sweep import COMBINATIONS, REMOVED

    for source in suite.sources:
        for remark in filter(None, map(source.origin.get, ("unread", "strides"))):
            yield Text(f"  {source.name}: {remark}", "warn")
        for key, count in source.origin.items():
            if key.startswith(REMOVED) and count != "0":
                noun = "combination" if key.endswith(COMBINATIONS) else "point"
                yield Text(f"  {source.name}: {counted(int(count), noun)} {key.removesuffix(COMBINATIONS)}")


def print_cases(cases: Iterable["SuiteCase"]) -> None:
    """Print each case with its calls and reasons."""
    from nearpeak.ops import label_of

    rows = []
    for case in cases:
        places = (": ".join(dict.fromkeys(filter(None, (why.source, why.rule or why.module)))) for why in case.why)
        rows.append((str(case.call_count or ""), "yes" if case.chosen else "", label_of(case.case),
                     "; ".join(dict.fromkeys(places))))  # fmt: skip
    print_document(Document(blocks=[Table(columns=columns("#calls", "run", "~case", "~why"), rows=rows)]))


def print_difference(difference: "SuiteDifference") -> None:
    """Print added, removed and changed cases."""
    from nearpeak.ops import label_of

    sources = [f"+ source {source.name}" for source in difference.added_sources]
    sources += [f"- source {source.name}" for source in difference.removed_sources]
    rows = [(sign, str(case.call_count or ""), label_of(case.case), "")
            for sign, cases in (("+", difference.added), ("-", difference.removed)) for case in cases]  # fmt: skip
    for before, after in difference.changed:
        counts = [str(case.call_count or "") for case in (before, after)]
        calls = counts[0] if counts[0] == counts[1] else f"{before.call_count} → {after.call_count}"
        selection = {True: "now run", False: "no longer run"}[after.chosen] if before.chosen != after.chosen else ""
        parts = (selection, "calls" if before.call_count != after.call_count else "",
                 "reasons" if before.why != after.why else "")  # fmt: skip
        rows.append(("~", calls, label_of(after.case), ", ".join(filter(None, parts))))
    table = Table(columns=columns("sign|", "#calls", "~case", "~what changed"), rows=rows, empty="")
    total = f"{len(difference.added)} added, {len(difference.removed)} removed, {len(difference.changed)} changed"
    print_document(Document(blocks=[*sources, table, f"{total}, {difference.same_count} the same"]))


def _use_table(shares: Sequence["UseShare"], *, effective: bool) -> Table:
    """Return one row per workload and identity, one column per currency; rows without any weight are left out."""
    currencies = list(dict.fromkeys(share.currency for share in shares))
    cells = {
        (share.workload, share.identity, share.currency): "unknown"
        if share.untimed_count
        else _percent(share.effective_ratio if effective else share.covered_ratio, _NONE)
        for share in shares
    }
    rows, shown = [], ""
    for workload, identity in dict.fromkeys((share.workload, share.identity) for share in shares):
        row = [cells[workload, identity, currency] for currency in currencies]
        if any(cell != _NONE for cell in row):
            name, shown = ("" if workload == shown else workload), workload
            rows.append((name, _STANDS_FOR[identity], *row))
    heads = columns("~workload", "a case stands for", *(f"#{currency}" for currency in currencies))
    return Table(caption=f"{'effective ' if effective else ''}use-case coverage", columns=heads, rows=rows)


def _directed_table(shares: Iterable["DirectedShare"]) -> Table:
    rows = [
        (share.op, share.met_count, share.valid_count, share.infeasible_count,
         _percent(share.covered_ratio, "no obligation"), _percent(share.effective_ratio)) for share in shares
    ]  # fmt: skip
    heads = columns("op", "#met", "#of", "#infeasible", "#directed", "#effective")
    return Table(caption="directed coverage", columns=heads, rows=rows)


def _percent(ratio: float | None, absent: str = NOT_MEASURED) -> str:
    return absent if ratio is None else f"{ratio:.2%}"
