"""Dashboard page: one device, with the source of each figure and the series measured on it."""

from collections.abc import Iterator, Mapping

from nearpeak.core.work.target import Target
from nearpeak.errors import NotFoundError
from nearpeak.history.stored_devices import target_of_device
from nearpeak.reports.document import Link, Table, columns
from nearpeak.targets import TARGETS, target_of
from nearpeak.units import show
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site


def build(site: Site, query: Query) -> View:
    """Return the page of a device."""
    name = query.path["target"]
    if name not in TARGETS:
        raise NotFoundError(f"target {name[:60]}: is not described; see the list of targets")
    target = target_of(name)
    peaks = Table(
        name="peaks", caption="Rates",
        columns=columns("unit|Unit", "#flop_per_s|Rate", "#clock_hz|At clock", "source|Source"),
        rows=[(unit, peak.flop_per_s, peak.clock_hz, peak.source) for unit, peak in sorted(target.peaks.items())],
    )  # fmt: skip
    tables = (peaks, _memory(target))
    choices = site.remembered("choices", site.store.browsing.choices)["device"]
    here = [device for device in choices if (match := target_of_device(device)) is not None and match.name == name]
    return View(
        title=target.title, template="target", tables=tables,
        context={"target": target, "tables": tables, "show": show,
                 "devices": [(device, Link(page="all_series", query={"device": device})) for device in here]},
    )  # fmt: skip


def _memory(target: Target) -> Table:
    rows: list[tuple[object, ...]] = [
        ("memory", target.dram.capacity_bytes, target.dram.bandwidth_bytes_per_s, target.dram.source)
    ]
    rows += [(f"link {name}", None, link.bandwidth_bytes_per_s, link.source) for name, link in target.links.items()]
    return Table(
        name="memory", caption="Memory and links",
        columns=columns("level|Level", "#capacity_bytes|Capacity", "#bandwidth_bytes_per_s|Bandwidth", "source|Source"),
        rows=rows,
    )  # fmt: skip


def _everywhere(_: Site) -> Iterator[Mapping[str, str]]:
    for name in TARGETS:
        yield {"target": name}


PAGE = Page(name="target", path="/targets/{target}", build=build, everywhere=_everywhere)
