"""Dashboard page: all described devices, with the figures that matter most for bounds."""

from nearpeak.core.work.target import Target
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.targets import TARGETS, target_of
from nearpeak.units import show
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site


def build(site: Site, query: Query) -> View:
    """Return the list."""
    del site, query
    rows = []
    for name in TARGETS:
        target = target_of(name)
        unit, rate = _fastest(target)
        rows.append((
            Cell(value=target.title, link=Link(page="target", path={"target": name})), target.vendor,
            target.architecture,
            target.sm_count, Cell(value=rate, text=f"{show(rate, 'FLOP/s')} {unit.partition('.')[2]}", hint=unit),
            target.dram.bandwidth_bytes_per_s, target.dram.capacity_bytes, target.power_w,
        ))  # fmt: skip
    table = Table(
        name="targets", caption="Devices that are described", has_filter=True,
        columns=columns("target|Device", "vendor|Vendor", "architecture|Architecture", "#sm_count|Multiprocessors",
                        "#flop_per_s|Fastest, and its format", "#bandwidth_bytes_per_s|Memory bandwidth",
                        "#capacity_bytes|Memory", "#power_w|Power"),
        rows=tuple(rows),
    )  # fmt: skip
    return View(title="Targets", template="targets", tables=(table,), context={"table": table, "count": len(rows)})


def _fastest(target: Target) -> tuple[str, float]:
    """Return the unit of a device that does most floating-point operations in a second, and how many."""
    rates = {unit: peak.flop_per_s for unit, peak in target.peaks.items()}
    floating = {unit: rate for unit, rate in rates.items() if not unit.partition(".")[2].startswith("int")} or rates
    return max(floating.items(), key=lambda pair: pair[1])


PAGE = Page(name="targets", path="/targets", build=build, title="Targets", rank=9)
