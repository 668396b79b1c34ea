"""Dashboard page: measured times against speed-of-light bounds and predictions, by kernel and by case."""

import statistics
from collections import defaultdict
from collections.abc import Sequence

from nearpeak.history.series_state import Standing, prediction_of
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.reports.figure_text import limiter
from nearpeak.web.cell_text import part, series_cell
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.pages.fleet import all_standings
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site

ROWS = 100
SORTS = ("least", "most", "time")


def build(site: Site, asked: Asked) -> View:
    """Return times beside theory."""
    device, sort = asked.text("device"), asked.choice("sort", SORTS)
    everything = all_standings(site)
    rows = [one for one in everything if device in ("", one.series.device)]
    bounded = [one for one in rows if one.attained_ratio is not None or one.is_implausible]
    bounded.sort(key={
        "least": lambda one: (one.attained_ratio or 0.0, one.series.id),
        "most": lambda one: (-(one.attained_ratio or 0.0), one.series.id),
        "time": lambda one: (-(one.value or 0.0), one.series.id),
    }[sort])  # fmt: skip
    limit, start = asked.rows(ROWS)
    classes, cases = _classes(bounded), _cases(bounded[start : start + limit])
    return View(
        title="Efficiency", template="efficiency", tables=(classes, cases),
        context={
            "classes": classes, "cases": cases, "total": len(bounded), "start": start, "limit": limit, "sort": sort,
            "sorts": SORTS, "device": device, "devices": sorted({one.series.device for one in everything}),
            "without": len(rows) - len(bounded), "page": start // max(limit, 1), "strips": _strips(bounded),
        },
    )  # fmt: skip


def _by_kernel(rows: Sequence[Standing]) -> dict[tuple[str, str], list[Standing]]:
    found: dict[tuple[str, str], list[Standing]] = defaultdict(list)
    for one in rows:
        found[one.series.workload, one.series.device].append(one)
    return dict(sorted(found.items()))


def _strips(rows: Sequence[Standing]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return, for each kernel, the parts of the speed of light that its cases reach."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in rows:
        if one.attained_ratio is not None:
            found[one.series.workload].append(round(one.attained_ratio, 4))
    order = sorted(found.items(), key=lambda pair: statistics.median(pair[1]))
    return tuple((name, tuple(sorted(parts)[:200])) for name, parts in order[:40])


def _classes(rows: Sequence[Standing]) -> Table:
    return Table(
        name="kernels", caption="By kernel and device",
        columns=columns("kernel|Kernel", "device|Device", "#series|Series", "#least_ratio|Least",
                        "#median_ratio|Median", "#most_ratio|Most"),
        rows=tuple(
            (kernel, device, len(group),
             *(part(ratio) for ratio in _spread([one.attained_ratio for one in group if one.attained_ratio])))
            for (kernel, device), group in _by_kernel(rows).items()
        ),
        empty="no series has a bound: its device or its operator is not described",
    )  # fmt: skip


def _spread(parts: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    return (min(parts), statistics.median(parts), max(parts)) if parts else (None, None, None)


def _cases(rows: Sequence[Standing]) -> Table:
    return Table(
        name="cases", caption="By case",
        columns=columns("series|Series", "device|Device", "runner|Runner", "#time_s|Measured", "#predicted_s|Predicted",
                        "#bound_s|Speed of light", "#attained_ratio|Reached", "limiter|Limited by"),
        rows=tuple(
            (series_cell(one.series), Cell(value=one.series.device, link=Link(page="efficiency",
                                                                              query={"device": one.series.device})),
             one.series.testbed.name, one.value, _predicted(one), one.bound_s,
             part(one.attained_ratio, implausible=one.is_implausible),
             Cell(value=one.limiter, text=limiter(one.limiter)))
            for one in rows
        ),
        empty="no series has a bound",
    )  # fmt: skip


def _predicted(one: Standing) -> float | None:
    found = prediction_of(one.series)
    return None if found is None else found.time_s


PAGE = Page(name="efficiency", path="/efficiency", build=build, title="Efficiency", rank=5, is_computed=True)
