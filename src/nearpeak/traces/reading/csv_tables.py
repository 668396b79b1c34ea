"""CSV tables of profilers by column, in batches; rows of another length than the header are dropped and counted."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from nearpeak.core.traces.trace import Loss
from nearpeak.errors import SpecError
from nearpeak.traces.reading.csv_columns import lines_of, rows_of
from nearpeak.traces.reading.table_rows import EventRows

MOST_ODD_ROWS = 1_000_000
"""Rows of another width than the header after which a file is read no further: it is no such table."""
_BATCH = 20_000


class Table:
    """Some rows of a file by column."""

    def __init__(self, header: Sequence[str], rows: list[list[str]]) -> None:
        """Keep the columns of some rows."""
        self.header, self.count = tuple(header), len(rows)
        self._columns: dict[str, tuple[str, ...]] = dict.fromkeys(header, ())
        if rows:
            self._columns = dict(zip(header, zip(*rows, strict=True), strict=True))

    def __contains__(self, name: str) -> bool:
        """Return whether there is a column of this name."""
        return name in self._columns

    def __getitem__(self, name: str) -> Sequence[object]:
        """Return a column; none in each row where there is no such column."""
        return self._columns.get(name, (None,) * self.count)


def tables_of(
    path: Path, rows: EventRows, losses: list[Loss], is_first: Callable[[str], bool],
    is_header: Callable[[Sequence[str]], bool], wanted: str,
) -> Iterator[Table]:  # fmt: skip
    """Yield the rows of a file in batches.

    Args:
        is_first: says whether a line may be the header; lines before it are left out.
        is_header: says whether its cells are.
        wanted: what is wrong where they are not.

    Raises:
        SpecError: the file has no such header.
    """
    lines = rows_of(lines_of(path, losses), is_first)
    header = [name.strip() for name in next(lines, [])]
    if not is_header(header):
        raise SpecError(f"{path.name}: {wanted}")
    batch: list[list[str]] = []
    odd_count = 0
    for number, row in enumerate(lines, 2):
        if len(row) != len(header):
            odd_count += 1
            if odd_count > MOST_ODD_ROWS:
                rows.lose("dropped", "rest of the file", example=f"from line {number}")
                break
            if row:
                rows.lose("dropped", f"row that has not {len(header)} cells", example=f"line {number}")
            continue
        batch.append(row)
        if len(batch) == _BATCH:
            yield Table(header, batch)
            batch = []
    yield Table(header, batch)
