"""Dashboard page: two commits compared by case and device, with verdict, reason and samples."""

from collections.abc import Sequence

import numpy as np

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NearpeakError
from nearpeak.history.commit_comparison import TOLERANCE_RATIO, Compared, compared
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.web.cell_text import change, clean, percent, quantity, series_cell, sha_text
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site

ROWS = 60
"""Series that are judged for one page."""
BINS = 40


def build(site: Site, asked: Asked) -> View:
    """Return the comparison of two commits: of the newest where none is named, with what was measured before it."""
    revisions = site.remembered("revisions", site.store.browsing.revisions, site.store.browsing.mark()[:1])
    names = [one.sha for one in revisions]
    b = _named(asked.text("b"), names) or (names[0] if names else "")
    a = _named(asked.text("a"), names) or (site.store.browsing.commit_before(b) if b else "")
    limit, start = asked.rows(ROWS)
    part = site.store.browsing.series(asked.words(), limit=min(limit, 2000), offset=start)
    rows = compared(site.store, part.rows, a, b) if a and b else ()
    matrix, table = _matrix(rows, a, b), _table(rows, a, b)
    chosen = asked.number("series") or None
    return View(
        title="Compare", template="compare", tables=(matrix, table),
        context={
            "a": a, "b": b, "revisions": revisions, "matrix": matrix, "table": table, "total": part.total_count,
            "start": start, "limit": limit, "query": asked.text("q"), "sha": sha_text, "clean": clean,
            "counts": _counts(rows), "detail": _detail(site, rows, chosen), "tolerance": percent(1 + TOLERANCE_RATIO),
            "page": start // max(limit, 1), "subjects": {one.sha: one.subject for one in revisions},
        },
    )  # fmt: skip


def _named(text: str, names: Sequence[str]) -> str:
    """Return the whole name of a commit from its first letters, or the text itself where it is an old one."""
    return next((one for one in names if text and one.startswith(text)), text)


def _counts(rows: Sequence[Compared]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in rows:
        name = one.judgement.verdict if one.judgement else "no verdict"
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def _place(one: Series) -> str:
    return f"{clean(one.device)}, {clean(one.testbed.name)}"


def _matrix(rows: Sequence[Compared], a: str, b: str) -> Table:
    places = sorted({_place(one.series) for one in rows})
    cases = sorted({one.series.label for one in rows})
    found = {(one.series.label, _place(one.series)): one for one in rows}
    return Table(
        name="matrix", caption="Change by case and device", is_matrix=True,
        columns=columns("case|Case", *(f"#{place}|{place}" for place in places)),
        rows=tuple(
            (case, *(_verdict(found.get((case, place)), a, b) for place in places)) for case in cases
        ),
        empty="no series was measured at both commits",
    )  # fmt: skip


def _verdict(one: Compared | None, a: str, b: str) -> Cell:
    if one is None:
        return Cell(value=None, text="·", kind="muted")
    link = Link(page="compare", query={"a": a, "b": b, "series": str(one.series.id)})
    if one.judgement is None:
        return Cell(value=None, text="?", link=link, kind="muted", hint=one.reason)
    found = one.judgement
    kind = {"regression": "bad", "improvement": "good", "inconclusive": "warn"}.get(found.verdict, "")
    sign = {"regression": "▲ ", "improvement": "▼ ", "inconclusive": "? "}.get(found.verdict, "")
    hint = f"{found.verdict}: {percent(found.low_ratio)} to {percent(found.high_ratio)}; {one.reason}"
    return Cell(value=found.time_ratio, text=sign + percent(found.time_ratio), link=link, kind=kind, hint=hint)


def _table(rows: Sequence[Compared], a: str, b: str) -> Table:
    return Table(
        name="verdicts", caption="Verdicts with what decided them",
        columns=columns("series|Series", "where|Where", "#before|Before", "#after|After", "#ratio|Change",
                        "#low_ratio|From", "#high_ratio|To", "verdict|Verdict", "reason|Why", "stack|Software"),
        rows=tuple(_row(one, a, b) for one in sorted(rows, key=_size)), empty="nothing to compare",
    )  # fmt: skip


def _size(one: Compared) -> tuple[bool, float]:
    return one.judgement is None, -abs(float(np.log(one.judgement.time_ratio))) if one.judgement else 0.0


def _row(one: Compared, a: str, b: str) -> tuple[object, ...]:
    unit, found = one.series.metric.unit, one.judgement
    stack = ", ".join(f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in one.stack)
    verdict = _verdict(one, a, b)
    return (
        series_cell(one.series), _place(one.series), quantity(one.before.value if one.before else None, unit),
        quantity(one.after.value if one.after else None, unit),
        change(found.time_ratio if found else None, sure=bool(found) and verdict.kind in ("good", "bad")),
        *(Cell(value=end, text="–" if end is None else percent(end))
          for end in ((found.low_ratio, found.high_ratio) if found else (None, None))),
        Cell(value=found.verdict if found else "", text=found.verdict if found else "–", kind=verdict.kind,
             link=verdict.link), one.reason, stack,
    )  # fmt: skip


def _detail(site: Site, rows: Sequence[Compared], series: int | None) -> dict[str, object] | None:
    """Return the samples of one series at both commits, as two histograms on one axis."""
    one = next((row for row in rows if row.series.id == series and row.before and row.after), None)
    if one is None or one.before is None or one.after is None:
        return None
    sides = [_samples(site, one.series, point.run_id) for point in (one.before, one.after)]
    both = np.concatenate(sides) if all(len(side) for side in sides) else np.array([])
    if not len(both):
        return {"row": one, "bars": (), "counts": [len(side) for side in sides]}
    low, high = np.quantile(both, [0.0, 0.99])
    edges = np.linspace(low, high if high > low else low + abs(low) * 1e-6 + 1e-12, BINS + 1)
    counts = [np.histogram(side, edges)[0] / len(side) for side in sides]
    top = max(float(part.max()) for part in counts) or 1.0
    bars = tuple(tuple(round(float(value) / top, 4) for value in part) for part in counts)
    unit = one.series.metric.unit
    return {"row": one, "bars": bars, "low": quantity(float(edges[0]), unit).text,
            "high": quantity(float(edges[-1]), unit).text, "counts": [len(side) for side in sides]}  # fmt: skip


def _samples(site: Site, one: Series, run: int) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    try:
        return np.asarray(site.store.samples(run, one.id), dtype=np.float64)
    except NearpeakError:  # archived
        return np.array([], dtype=np.float64)


PAGE = Page(name="compare", path="/compare", build=build, title="Compare", rank=3)
