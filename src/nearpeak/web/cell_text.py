"""Text of dashboard table cells: dates, ages, figures and names, in the number format of the reports."""

from nearpeak.core.history.stored_run import Series
from nearpeak.reports.document import Cell, Link
from nearpeak.reports.figure_text import clean, shortened
from nearpeak.reports.figure_text import percent as share
from nearpeak.reports.history.tracks import percent, sha_text, value_text
from nearpeak.reports.history.tracks import place_text as where
from nearpeak.units import show, time_text
from nearpeak.web.site import case_key, key_of


def date(at_ns: int | None) -> str:
    """Return a time as readable text, in UTC; a dash for `None`.

    >>> date(0), date(None)
    ('1970-01-01 00:00', '–')
    """
    return "–" if at_ns is None else time_text(at_ns)


def age(at_ns: int, now_ns: int | None) -> str:
    """Return how long ago something was; the date where there is no clock.

    >>> age(0, 3 * 86_400 * 10**9), age(0, 7200 * 10**9), age(0, 10**9)
    ('3 days', '2 h', '0 min')
    """
    if now_ns is None:
        return date(at_ns)[:10]
    minutes = max(0, now_ns - at_ns) // 60_000_000_000
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // 1440} days"


def time_cell(at_ns: int | None) -> Cell:
    """Return a time."""
    return Cell(value=at_ns, text=date(at_ns))


def quantity(value: float | None, unit: str) -> Cell:
    """Return a value with its unit."""
    return Cell(value=value, text="–" if value is None else value_text(value, unit))


def change(ratio: float | None, *, direction: str = "lower", sure: bool = True) -> Cell:
    """Return a ratio of values as a signed change, coloured where it is sure."""
    if ratio is None:
        return Cell(value=None, text="–", kind="muted")
    worse = (ratio > 1) == (direction == "lower")
    return Cell(value=ratio, text=percent(ratio), kind=("bad" if worse else "good") if sure and ratio != 1 else "")


def part(ratio: float | None, *, implausible: bool = False) -> Cell:
    """Return a part of the speed of light."""
    if implausible:
        return Cell(value=None, text="below bound", kind="bad", hint="a rule, a figure or a timer is wrong")
    if ratio is None:
        return Cell(value=None, text="–", kind="muted")
    return Cell(value=ratio, text=share(ratio), kind=f"heat-{min(9, int(ratio * 10))}")


def series_cell(series: Series, text: str = "") -> Cell:
    """Return a link to a series."""
    return Cell(value=series.label, text=clean(text or series.label), link=series_link(series.id))


def series_link(series: int) -> Link:
    """Return the link to a series."""
    return Link(page="series", path={"series": str(series)})


def run_cell(run: int | None) -> Cell:
    """Return a link to a run."""
    if run is None:
        return Cell(value=None, text="–")
    return Cell(value=run, text=f"run {run}", kind="whole", link=Link(page="run", path={"run": str(run)}))


def case_link(case: str) -> Link:
    """Return the link to a case."""
    return Link(page="case", path={"case": case_key(case)})


def workload_link(name: str) -> Link:
    """Return the link to a workload."""
    return Link(page="workload", path={"workload": key_of(name)})


__all__ = [
    "age", "case_link", "change", "clean", "date", "part", "percent", "quantity", "run_cell", "series_cell",
    "series_link", "sha_text", "share", "shortened", "show", "time_cell", "value_text", "where", "workload_link",
]  # fmt: skip
