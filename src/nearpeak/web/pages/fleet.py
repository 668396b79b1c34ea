"""Dashboard page: the fleet as a heat map of devices × kernels, with age and scatter of the values."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from nearpeak.history.series_state import Standing, standings
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.store.rows.list_rows import DeviceRow
from nearpeak.web.cell_text import age, percent, share, time_cell
from nearpeak.web.farm_tables import farm_tables
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

MOST_KERNELS = 60
SHOWN = ("attained", "change")


def build(site: Site, query: Query) -> View:
    """Return the fleet."""
    shown = query.choice("show", SHOWN)
    rows = all_standings(site)
    matrix, table = _matrix(rows, shown), _devices(site, site.store.browsing.devices(), rows)
    farm = farm_tables(site)
    return View(
        title="Fleet", template="fleet", tables=(matrix, table, *farm),
        context={"matrix": matrix, "devices": table, "show": shown, "farm": farm,
                 "kernels": len({standing.series.workload for standing in rows})},
    )  # fmt: skip


def all_standings(site: Site) -> tuple[Standing, ...]:
    """Return the standing of every series of times, without predictions; runs of the last minute may be missing."""
    standings_of_all: tuple[Standing, ...] = site.remembered(
        "standings",
        lambda: standings(
            site.store, site.store.browsing.series((), {"metric": "time"}, limit=100_000).rows, predicted=False
        ),
        site.store.browsing.mark(), is_lazy=True,
    )  # fmt: skip
    return standings_of_all


def _matrix(rows: Sequence[Standing], shown: str) -> Table:
    cells: dict[tuple[str, str], list[Standing]] = defaultdict(list)
    for standing in rows:
        cells[standing.series.workload, standing.series.device].append(standing)
    devices = sorted({device for _, device in cells})
    kernels = sorted({kernel for kernel, _ in cells})[:MOST_KERNELS]
    title = {"attained": "Best part of the speed of light", "change": "Largest change since the run before"}[shown]
    return Table(
        name="heat", caption=f"{title}, by kernel and device", is_matrix=True,
        columns=columns("kernel|Kernel", *(f"#{device}|{device}" for device in devices)),
        rows=tuple(
            (kernel, *(_cell(cells.get((kernel, device), ()), kernel, device, shown) for device in devices))
            for kernel in kernels
        ),
        empty="no times are stored",
    )  # fmt: skip


def _cell(rows: Sequence[Standing], kernel: str, device: str, shown: str) -> Cell:
    if not rows:
        return Cell(value=None, text="·", kind="muted", hint="not measured")
    link = Link(page="all_series", query={"workload": kernel, "device": device})
    if shown == "change":
        ratios = [standing.change_ratio for standing in rows if standing.change_ratio is not None]
        worst = max(ratios, key=lambda ratio: abs(ratio - 1), default=None)
        if worst is None:
            return Cell(value=None, text="–", link=link, kind="muted")
        kind = "" if abs(worst - 1) < 0.02 else "bad" if worst > 1 else "good"
        return Cell(value=worst, text=percent(worst), link=link, kind=kind, hint=f"{len(rows)} series")
    parts = [standing.attained_ratio for standing in rows if standing.attained_ratio is not None]
    if not parts:
        return Cell(value=None, text="no bound", link=link, kind="muted")
    best = max(parts)
    hint = f"{len(rows)} series, {share(min(parts))} to {share(best)}"
    return Cell(value=best, text=share(best), link=link, kind=f"heat-{min(9, int(best * 10))}", hint=hint)


def _devices(site: Site, devices: Sequence[DeviceRow], rows: Sequence[Standing]) -> Table:
    counts = Counter(standing.series.device for standing in rows)
    return Table(
        name="devices", caption="Devices",
        columns=columns("device|Device", "host|Host", "uuid|Unit", "vendor|Vendor", "architecture|Architecture",
                        "#series|Series", "#runs|Runs", "last_run_ns|Last run", "age|Fresh"),
        rows=tuple(
            (Cell(value=device.name, link=Link(page="all_series", query={"device": device.name})), device.host,
             device.uuid,
             device.vendor, device.architecture, counts[device.name], device.run_count,
             time_cell(device.last_ns),
             age(device.last_ns, site.now_ns))
            for device in devices
        ),
        empty="no device has run anything",
    )  # fmt: skip


PAGE = Page(name="fleet", path="/fleet", build=build, title="Fleet", rank=4)
