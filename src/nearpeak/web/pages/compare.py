"""Dashboard page: two commits compared by case and device, with verdict, reason and samples."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NearpeakError
from nearpeak.history.commit_comparison import TOLERANCE_RATIO, Compared, compared
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.web.cell_text import change, clean, percent, quantity, series_cell, sha_text
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

ROWS = 60
"""Series that are judged for one page."""
BINS = 40


def build(site: Site, query: Query) -> View:
    """Return the comparison of two commits; by default the newest and the one measured before it."""
    revisions = site.remembered("revisions", site.store.commits.newest, site.store.browsing.mark()[:1])
    names = [revision.sha for revision in revisions]
    b = _named(query.text("b"), names) or (names[0] if names else "")
    a = _named(query.text("a"), names) or (site.store.commits.before(b) if b else "")
    limit, start = query.rows(ROWS)
    part = site.store.browsing.series(query.words(), limit=min(limit, 2000), offset=start)
    rows = compared(site.store, part.rows, a, b) if a and b else ()
    matrix, table = _matrix(rows, a, b), _table(rows, a, b)
    chosen = query.number("series") or None
    verdicts = Counter(row.judgement.verdict if row.judgement else "no verdict" for row in rows)
    return View(
        title="Compare", template="compare", tables=(matrix, table),
        context={
            "a": a, "b": b, "revisions": revisions, "matrix": matrix, "table": table, "total": part.total_count,
            "start": start, "limit": limit, "query": query.text("q"), "sha": sha_text, "clean": clean,
            "counts": dict(sorted(verdicts.items())), "detail": _detail(site, rows, chosen),
            "tolerance": percent(1 + TOLERANCE_RATIO),
            "page": start // max(limit, 1), "subjects": {revision.sha: revision.subject for revision in revisions},
        },
    )  # fmt: skip


def _named(text: str, names: Sequence[str]) -> str:
    """Return the whole name of a commit from its first letters, or the text itself where it is an old one."""
    return next((name for name in names if text and name.startswith(text)), text)


def _place(series: Series) -> str:
    return f"{clean(series.device)}, {clean(series.testbed.name)}"


def _matrix(rows: Sequence[Compared], a: str, b: str) -> Table:
    places = sorted({_place(row.series) for row in rows})
    cases = sorted({row.series.label for row in rows})
    by_place = {(row.series.label, _place(row.series)): row for row in rows}
    return Table(
        name="matrix", caption="Change by case and device", is_matrix=True,
        columns=columns("case|Case", *(f"#{place}|{place}" for place in places)),
        rows=tuple(
            (case, *(_verdict(by_place.get((case, place)), a, b) for place in places)) for case in cases
        ),
        empty="no series was measured at both commits",
    )  # fmt: skip


def _verdict(compared: Compared | None, a: str, b: str) -> Cell:
    if compared is None:
        return Cell(value=None, text="·", kind="muted")
    link = Link(page="compare", query={"a": a, "b": b, "series": str(compared.series.id)})
    if compared.judgement is None:
        return Cell(value=None, text="?", link=link, kind="muted", hint=compared.reason)
    judgement = compared.judgement
    kind = {"regression": "bad", "improvement": "good", "inconclusive": "warn"}.get(judgement.verdict, "")
    sign = {"regression": "▲ ", "improvement": "▼ ", "inconclusive": "? "}.get(judgement.verdict, "")
    hint = f"{judgement.verdict}: {percent(judgement.low_ratio)} to {percent(judgement.high_ratio)}; {compared.reason}"
    return Cell(value=judgement.time_ratio, text=sign + percent(judgement.time_ratio), link=link, kind=kind, hint=hint)


def _table(rows: Sequence[Compared], a: str, b: str) -> Table:
    return Table(
        name="verdicts", caption="Verdicts with what decided them",
        columns=columns("series|Series", "where|Where", "#before|Before", "#after|After", "#ratio|Change",
                        "#low_ratio|From", "#high_ratio|To", "verdict|Verdict", "reason|Why", "stack|Software"),
        rows=tuple(_row(row, a, b) for row in sorted(rows, key=_size)), empty="nothing to compare",
    )  # fmt: skip


def _size(compared: Compared) -> tuple[bool, float]:
    return compared.judgement is None, -abs(float(np.log(compared.judgement.time_ratio))) if compared.judgement else 0.0


def _row(compared: Compared, a: str, b: str) -> tuple[object, ...]:
    unit, judgement = compared.series.metric.unit, compared.judgement
    stack = ", ".join(f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in compared.stack)
    verdict = _verdict(compared, a, b)
    return (
        series_cell(compared.series), _place(compared.series),
        quantity(compared.before.value if compared.before else None, unit),
        quantity(compared.after.value if compared.after else None, unit),
        change(judgement.time_ratio if judgement else None, sure=bool(judgement) and verdict.kind in ("good", "bad")),
        *(Cell(value=end, text="–" if end is None else percent(end))
          for end in ((judgement.low_ratio, judgement.high_ratio) if judgement else (None, None))),
        Cell(value=judgement.verdict if judgement else "", text=judgement.verdict if judgement else "–",
             kind=verdict.kind,
             link=verdict.link), compared.reason, stack,
    )  # fmt: skip


def _detail(site: Site, rows: Sequence[Compared], series: int | None) -> dict[str, object] | None:
    """Return the samples of one series at both commits, as two histograms on one axis."""
    compared = next((row for row in rows if row.series.id == series and row.before and row.after), None)
    if compared is None or compared.before is None or compared.after is None:
        return None
    sides = [_samples(site, compared.series, point.run_id) for point in (compared.before, compared.after)]
    both = np.concatenate(sides) if all(len(side) for side in sides) else np.array([])
    if not len(both):
        return {"row": compared, "bars": (), "counts": [len(side) for side in sides]}
    low, high = np.quantile(both, [0.0, 0.99])
    edges = np.linspace(low, high if high > low else low + abs(low) * 1e-6 + 1e-12, BINS + 1)
    counts = [np.histogram(side, edges)[0] / len(side) for side in sides]
    top = max(float(part.max()) for part in counts) or 1.0
    bars = tuple(tuple(round(float(value) / top, 4) for value in part) for part in counts)
    unit = compared.series.metric.unit
    return {"row": compared, "bars": bars, "low": quantity(float(edges[0]), unit).text,
            "high": quantity(float(edges[-1]), unit).text, "counts": [len(side) for side in sides]}  # fmt: skip


def _samples(site: Site, series: Series, run: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    try:
        return np.asarray(site.store.samples(run, series.id), dtype=np.float64)
    except NearpeakError:  # archived
        return np.array([], dtype=np.float64)


PAGE = Page(name="compare", path="/compare", build=build, title="Compare", rank=3)
