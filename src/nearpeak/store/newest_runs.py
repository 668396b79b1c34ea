"""The two newest runs of each series, stored with the series so that comparing them needs no search of the history."""

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, update

from nearpeak.store.table_schema import TABLES

_SERIES, _RUN, _MEASUREMENT = TABLES["series"], TABLES["run"], TABLES["measurement"]


def add(connection: Connection, run: int, order_key: int) -> None:
    """Make `run` the newest, or the one before it, of the series that have a value in it."""
    has_value = _SERIES.c.id.in_(
        select(_MEASUREMENT.c.series_id).where(_MEASUREMENT.c.run_id == run, _MEASUREMENT.c.median.is_not(None))
    )

    def older(column: str) -> ColumnElement[bool]:
        key = select(_RUN.c.order_key).where(_RUN.c.id == _SERIES.c[column]).scalar_subquery()
        return or_(_SERIES.c[column].is_(None), key <= order_key)

    first = update(_SERIES).where(and_(has_value, older("last_run_id")))
    connection.execute(first.values(previous_run_id=_SERIES.c.last_run_id, last_run_id=run))
    second = update(_SERIES).where(and_(has_value, _SERIES.c.last_run_id != run, older("previous_run_id")))
    connection.execute(second.values(previous_run_id=run))


def outcomes_since(connection: Connection, series: Sequence[int], outcomes: Sequence[str]) -> dict[int, str]:
    """Return, of `series` whose newest runs have no value, how the newest ended, where it is in `outcomes`."""
    last = _RUN.alias().c
    query = (
        select(_MEASUREMENT.c.series_id, _MEASUREMENT.c.outcome)
        .join(_RUN, _RUN.c.id == _MEASUREMENT.c.run_id)
        .join(_SERIES, _SERIES.c.id == _MEASUREMENT.c.series_id)
        .where(
            _MEASUREMENT.c.series_id.in_(series), _MEASUREMENT.c.outcome.in_(outcomes), _RUN.c.superseded_by.is_(None),
            _MEASUREMENT.c.median.is_(None),
        )
        .outerjoin(last.id.table, last.id == _SERIES.c.last_run_id)
        .where(or_(last.id.is_(None), _RUN.c.order_key > last.order_key))
        .order_by(_RUN.c.order_key)
    )  # fmt: skip
    return dict(connection.execute(query).tuples().all())


def refresh(connection: Connection, series: Iterable[int] | None = None) -> None:
    """Find the two newest runs again, of some series or of all: after a merge, or when a run no longer counts."""
    rank = func.row_number().over(
        partition_by=_MEASUREMENT.c.series_id, order_by=(_RUN.c.order_key.desc(), _RUN.c.id.desc())
    )
    query = (
        select(_MEASUREMENT.c.series_id, _MEASUREMENT.c.run_id, rank.label("rank"))
        .join(_RUN, _RUN.c.id == _MEASUREMENT.c.run_id)
        .where(_MEASUREMENT.c.median.is_not(None), _RUN.c.superseded_by.is_(None))
        .group_by(_MEASUREMENT.c.series_id, _MEASUREMENT.c.run_id, _RUN.c.order_key, _RUN.c.id)
    )
    if series is not None:
        query = query.where(_MEASUREMENT.c.series_id.in_(list(series)))
    ranked = query.subquery()
    newest: dict[int, list[int]] = {}
    for series_id, run in connection.execute(
        select(ranked.c.series_id, ranked.c.run_id)
        .where(ranked.c.rank <= 2)
        .order_by(ranked.c.series_id, ranked.c.rank)
    ):
        newest.setdefault(series_id, []).append(run)
    for series_id, runs in newest.items():
        last, previous = (*runs, None)[:2]
        changed = update(_SERIES).where(_SERIES.c.id == series_id)
        connection.execute(changed.values(last_run_id=last, previous_run_id=previous))
