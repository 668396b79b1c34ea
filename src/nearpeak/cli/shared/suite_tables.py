"""Tables of `nearpeak suite`: what a suite holds, its three coverage numbers, and what two suites differ in."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nearpeak.units import counted

if TYPE_CHECKING:
    from nearpeak.core.answers.suite import Suite, SuiteCase
    from nearpeak.core.answers.suite_coverage import DirectedShare, SuiteCoverage, UseShare
    from nearpeak.suites.run_results import RunOfSuite
    from nearpeak.suites.suite_difference import SuiteDifference

NOT_MEASURED = "not measured"


def print_suite(suite: "Suite", coverage: "SuiteCoverage", ran: "RunOfSuite | None" = None) -> None:
    """Print the plan, what of it ran, then use-case, directed and effective coverage."""
    console = Console(highlight=False)
    did = "are run" if ran is None else f"ran and passed ({ran.unchecked_count} of them unchecked)"
    console.print(escape(f"{suite.name}: {coverage.chosen_count} of {coverage.case_count} cases {did}"))
    for one in () if ran is None else ran.excluded:
        console.print(
            f"  [yellow]{one.reason}: {counted(one.case_count, 'case')}, {one.flop_ratio:.2%} of FLOP[/yellow]"
        )
    for key, value in suite.plan.items():
        console.print(escape(f"  {key}: {value}"))
    for name, count in coverage.uncovered.items():
        console.print(f"  [yellow]uncovered: {escape(name)}, {count} calls[/yellow]")
    _print_lacks(console, suite)
    if coverage.untimed_count:
        console.print(f"  [yellow]without a time: {counted(coverage.untimed_count, 'case')}; shares of time are "
                      "unknown where a workload calls one[/yellow]")  # fmt: skip
    table = _use_table(coverage.use, effective=False)
    console.print(table if table.row_count else "use-case coverage: no workload calls any of them")
    console.print(_directed_table(coverage.directed))
    if coverage.scored_count is None:
        console.print(f"effective coverage: {NOT_MEASURED}; --scores takes the mutation scores of the cases")
        return
    if table.row_count:
        console.print(_use_table(coverage.use, effective=True))
    console.print(f"mutation scores: {coverage.scored_count} of {coverage.chosen_count} cases; others count 0")


def _print_lacks(console: Console, suite: "Suite") -> None:
    """Print what of each source its cases do not hold: lines that could not be read, strides, what was constrained."""
    from nearpeak.frontends.files.sweep import COMBINATIONS, REMOVED

    for source in suite.sources:
        for said in filter(None, map(source.origin.get, ("unread", "strides"))):
            console.print(f"  [yellow]{escape(f'{source.name}: {said}')}[/yellow]")
        for key, count in source.origin.items():
            if key.startswith(REMOVED) and count != "0":
                noun = "combination" if key.endswith(COMBINATIONS) else "point"
                said = f"{counted(int(count), noun)} {key.removesuffix(COMBINATIONS)}"
                console.print(escape(f"  {source.name}: {said}"))


def print_cases(cases: Iterable["SuiteCase"]) -> None:
    """Print each case with its calls and reasons."""
    from nearpeak.ops import label_of

    table = _table("", ("calls", "right"), ("run", "left"), ("case", "left"), ("why", "left"))
    for one in cases:
        places = (": ".join(dict.fromkeys(filter(None, (why.source, why.rule or why.module)))) for why in one.why)
        reasons = "; ".join(dict.fromkeys(places))
        table.add_row(
            str(one.call_count or ""), "yes" if one.chosen else "", escape(label_of(one.case)), escape(reasons)
        )
    Console().print(table)


def print_difference(found: "SuiteDifference") -> None:
    """Print what is new, gone and changed."""
    from nearpeak.ops import label_of

    console = Console(highlight=False)
    for sign, sources in (("+", found.added_sources), ("-", found.removed_sources)):
        for source in sources:
            console.print(escape(f"{sign} source {source.name}"))
    table = _table("", ("", "left"), ("calls", "right"), ("case", "left"), ("what changed", "left"))
    for sign, cases in (("+", found.added), ("-", found.removed)):
        for one in cases:
            table.add_row(sign, str(one.call_count or ""), escape(label_of(one.case)), "")
    for before, after in found.changed:
        counts = [str(one.call_count or "") for one in (before, after)]
        said = counts[0] if counts[0] == counts[1] else f"{before.call_count} → {after.call_count}"
        table.add_row("~", said, escape(label_of(after.case)), _what_changed(before, after))
    console.print(table)
    console.print(f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed, "
                  f"{found.same_count} the same")  # fmt: skip


def _what_changed(before: "SuiteCase", after: "SuiteCase") -> str:
    """Return in words what a case of both suites differs in."""
    run = {True: "now run", False: "no longer run"}[after.chosen] if before.chosen != after.chosen else ""
    calls = "calls" if before.call_count != after.call_count else ""
    return ", ".join(filter(None, (run, calls, "reasons" if before.why != after.why else "")))


def _use_table(shares: Sequence["UseShare"], *, effective: bool) -> Table:
    """Return one row per workload and identity, one column per currency; rows without any weight are left out."""
    currencies = list(dict.fromkeys(share.currency for share in shares))
    heads = [(currency, "right") for currency in currencies]
    title = f"{'effective ' if effective else ''}use-case coverage"
    table = _table(title, ("workload", "left"), ("a case stands for", "left"), *heads)
    cells = {
        (share.workload, share.identity, share.currency): _use_cell(share, effective=effective) for share in shares
    }
    shown = ""
    for workload, identity in dict.fromkeys((share.workload, share.identity) for share in shares):
        row = [cells[workload, identity, currency] for currency in currencies]
        if any(cell != _NONE for cell in row):
            name, shown = ("" if workload == shown else workload), workload
            table.add_row(escape(name), _STANDS_FOR[identity], *row)
    return table


_NONE = "none"


def _use_cell(share: "UseShare", *, effective: bool) -> str:
    """Return a share in words; one that lacks the time of a case is said to be unknown, not a share of the rest."""
    if share.untimed_count:
        return "unknown"
    return _percent(share.effective_ratio if effective else share.covered_ratio, _NONE)


_STANDS_FOR = {"exact": "itself", "class": "its class", "saturated": "its saturated class"}


def _directed_table(shares: Iterable["DirectedShare"]) -> Table:
    heads = (("met", "right"), ("of", "right"), ("infeasible", "right"), ("directed", "right"), ("effective", "right"))
    table = _table("directed coverage", ("op", "left"), *heads)
    for one in shares:
        counts = (str(one.met_count), str(one.valid_count), str(one.infeasible_count))
        table.add_row(one.op, *counts, _percent(one.covered_ratio, "no obligation"), _percent(one.effective_ratio))
    return table


def _table(title: str, *columns: tuple[str, str]) -> Table:
    table = Table(title=title or None, title_justify="left", box=None)
    for name, side in columns:
        table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]  # rich knows the words
    return table


def _percent(ratio: float | None, absent: str = NOT_MEASURED) -> str:
    return absent if ratio is None else f"{ratio:.2%}"
