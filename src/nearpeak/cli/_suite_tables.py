"""Tables of `nearpeak suite`: what a suite holds, its three coverage numbers, and what two suites differ in."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from nearpeak.core.suite import Suite, SuiteCase
    from nearpeak.core.suite_coverage import DirectedShare, SuiteCoverage, UseShare
    from nearpeak.suite.difference import SuiteDifference

NOT_MEASURED = "not measured"


def print_suite(suite: "Suite", coverage: "SuiteCoverage") -> None:
    """Print the plan, then use-case, directed and effective coverage."""
    console = Console(highlight=False)
    console.print(escape(f"{suite.name}: {coverage.chosen_count} of {coverage.case_count} cases are run"))
    for key, value in suite.plan.items():
        console.print(escape(f"  {key}: {value}"))
    for name, count in coverage.uncovered.items():
        console.print(f"  [yellow]uncovered: {escape(name)}, {count} calls[/yellow]")
    if coverage.untimed_count:
        console.print(f"  [yellow]without a time on this target: {coverage.untimed_count} cases[/yellow]")
    console.print(_use_table(coverage.use, effective=False))
    console.print(_directed_table(coverage.directed))
    if coverage.scored_count is None:
        console.print(f"effective coverage: {NOT_MEASURED}; --scores takes the mutation scores of the cases")
        return
    console.print(_use_table(coverage.use, effective=True))
    console.print(f"mutation scores: {coverage.scored_count} of {coverage.chosen_count} cases; others count 0")


def print_cases(cases: Iterable["SuiteCase"]) -> None:
    """Print each case with its calls and reasons."""
    from nearpeak.ops import label_of

    table = _table("", ("calls", "right"), ("run", "left"), ("case", "left"), ("why", "left"))
    for one in cases:
        places = (": ".join(filter(None, (why.source, why.rule or why.module))) for why in one.why)
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
    table = _table("", ("", "left"), ("calls", "right"), ("case", "left"))
    for sign, cases in (("+", found.added), ("-", found.removed)):
        for one in cases:
            table.add_row(sign, str(one.call_count or ""), escape(label_of(one.case)))
    for before, after in found.changed:
        table.add_row("~", f"{before.call_count} → {after.call_count}", escape(label_of(after.case)))
    console.print(table)
    console.print(f"{len(found.added)} added, {len(found.removed)} removed, {len(found.changed)} changed, "
                  f"{found.same_count} the same")  # fmt: skip


def _use_table(shares: Sequence["UseShare"], *, effective: bool) -> Table:
    """Return one row per workload, one column per currency and identity."""
    columns = list(dict.fromkeys((share.currency, share.identity) for share in shares))
    heads = [(f"{currency}\n{identity}", "right") for currency, identity in columns]
    table = _table(f"{'effective ' if effective else ''}use-case coverage", ("workload", "left"), *heads)
    for workload in dict.fromkeys(share.workload for share in shares):
        row = [share for share in shares if share.workload == workload]
        ratios = [share.effective_ratio if effective else share.covered_ratio for share in row]
        table.add_row(escape(workload), *(_percent(ratio, "none") for ratio in ratios))
    return table


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
