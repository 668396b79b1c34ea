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
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

ROWS = 100
SORTS = ("least", "most", "time")


def build(site: Site, query: Query) -> View:
    """Return measured times against bounds and predictions."""
    device, sort = query.text("device"), query.choice("sort", SORTS)
    everything = all_standings(site)
    rows = [standing for standing in everything if device in ("", standing.series.device)]
    bounded = [standing for standing in rows if standing.attained_ratio is not None or standing.is_implausible]
    bounded.sort(key={
        "least": lambda standing: (standing.attained_ratio or 0.0, standing.series.id),
        "most": lambda standing: (-(standing.attained_ratio or 0.0), standing.series.id),
        "time": lambda standing: (-(standing.value or 0.0), standing.series.id),
    }[sort])  # fmt: skip
    limit, start = query.rows(ROWS)
    classes, cases = _classes(bounded), _cases(bounded[start : start + limit])
    return View(
        title="Efficiency", template="efficiency", tables=(classes, cases),
        context={
            "classes": classes, "cases": cases, "total": len(bounded), "start": start, "limit": limit, "sort": sort,
            "sorts": SORTS, "device": device, "devices": sorted({standing.series.device for standing in everything}),
            "without": len(rows) - len(bounded), "page": start // max(limit, 1), "strips": _strips(bounded),
        },
    )  # fmt: skip


def _by_kernel(rows: Sequence[Standing]) -> dict[tuple[str, str], list[Standing]]:
    groups: dict[tuple[str, str], list[Standing]] = defaultdict(list)
    for standing in rows:
        groups[standing.series.workload, standing.series.device].append(standing)
    return dict(sorted(groups.items()))


def _strips(rows: Sequence[Standing]) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return, for each kernel, the parts of the speed of light that its cases reach."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for standing in rows:
        if standing.attained_ratio is not None:
            ratios[standing.series.workload].append(round(standing.attained_ratio, 4))
    order = sorted(ratios.items(), key=lambda pair: statistics.median(pair[1]))
    return tuple((name, tuple(sorted(parts)[:200])) for name, parts in order[:40])


def _classes(rows: Sequence[Standing]) -> Table:
    return Table(
        name="kernels", caption="By kernel and device",
        columns=columns("kernel|Kernel", "device|Device", "#series|Series", "#least_ratio|Least",
                        "#median_ratio|Median", "#most_ratio|Most"),
        rows=tuple(
            (kernel, device, len(group),
             *(part(ratio) for ratio in _spread([standing.attained_ratio
                                                 for standing in group if standing.attained_ratio])))
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
            (series_cell(standing.series),
             Cell(value=standing.series.device, link=Link(page="efficiency", query={"device": standing.series.device})),
             standing.series.testbed.name, standing.value, None if prediction is None else prediction.time_s,
             standing.bound_s, part(standing.attained_ratio, implausible=standing.is_implausible),
             Cell(value=standing.limiter, text=limiter(standing.limiter)))
            for standing in rows for prediction in (prediction_of(standing.series),)
        ),
        empty="no series has a bound",
    )  # fmt: skip


PAGE = Page(name="efficiency", path="/efficiency", build=build, title="Efficiency", rank=5, is_computed=True)
