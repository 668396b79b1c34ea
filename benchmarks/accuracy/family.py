"""What a family of measurements is: blocks of rows as cases, and which of them scalars may be fitted on."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.names import target_name
from nearpeak.core.answers.prediction import SOFTWARE
from nearpeak.ops.shared.tables.case_table import CaseTable, case_table
from nearpeak.prediction import KERNEL_MODELS
from nearpeak.prediction.calibration.fit import Deviation, logarithmic
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Setting
from nearpeak.targets import TARGETS, target_of

OLD, EAGER, HOT = 0x01, 0x04, 0x40
"""Flags of the corpus: superseded software; host launch included; faster than the roofline, as inputs lay in cache."""
NO_MEASUREMENT = 0x02 | 0x80
"""Flags of rows that are no measurement: byte copies of another device, and quarantined ones."""
SAMPLE = 3000
"""Rows per fit: more do not move the scalars by what matters, where one kind of kernel is fitted."""
LEAST_ROWS = 400
"""Blocks with fewer rows are held out whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Best times of one source, device and kind of case, as columns."""

    source: str
    """Project that measured."""
    device: str
    """Target's name."""
    kind: str
    """Format, and operator where a family has several, as reports name the block."""
    op: str
    """Operator of the cases."""
    phase: str = "forward"
    """Phase of the cases."""
    dtypes: dict[str, str]
    """Formats of the cases by the name of their column."""
    axes: dict[str, Any]
    """Axes as columns of one length."""
    measured_s: Any
    """Best time of each case."""
    attributes: dict[str, str | bool] = field(default_factory=dict)
    """Choices of the cases, such as causal."""
    sites: Any
    """Number of the site of each row, the same on every device: rows of a site are never split."""
    setting: Setting = field(default_factory=Setting)
    """How the kernels ran."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Fields of the setting that differ from row to row, as columns."""
    least_s: float = 0.0
    """Times below this are left out, as their source rounds them: of what takes less, only what is late is seen."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Rows of the corpus that are no case of the block, by reason."""
    kernels: tuple[tuple[int, "Block"], ...] = ()
    """Kernels that together took a measured time, each with how often it ran; none where one case was measured."""

    @property
    def name(self) -> str:
        """Name in reports."""
        return f"{self.source} {self.device} {self.kind}"

    def setting_of(self, rows: Any) -> Setting:
        """Return how the kernels of the chosen rows ran."""
        return replace(self.setting, **{name: column[rows] for name, column in self.settings.items()})

    def columns(self, rows: Any) -> CaseColumns:
        """Return the chosen rows as forms read them."""
        axes = {name: column[rows] for name, column in self.axes.items()}
        return CaseColumns(op=self.op, phase=self.phase, dtypes=self.dtypes, axes=axes, attributes=self.attributes)

    def part(self, rows: Any) -> "Block":
        """Return the chosen rows as a block."""
        columns = {"axes": self.axes, "settings": self.settings}
        chosen = {name: {key: column[rows] for key, column in each.items()} for name, each in columns.items()}
        kernels = tuple((count, one.part(rows)) for count, one in self.kernels)
        return replace(self, measured_s=self.measured_s[rows], sites=self.sites[rows], kernels=kernels, **chosen)

    def of_kernels(self, kernels: Sequence[tuple[int, str, Mapping[str, str], Mapping[str, Any], Any]]) -> "Block":
        """Return a block whose times are sums over kernels: how often each ran, operator, formats, axes, attributes."""
        return replace(self, kernels=tuple(
            (count, replace(self, op=op, dtypes=dict(dtypes), axes=dict(axes), attributes=dict(attributes)))
            for count, op, dtypes, axes, attributes in kernels
        ))  # fmt: skip

    def predicted_s(self, rows: Any, file: Path | None = None, **changes: Any) -> tuple[Any, Any, Any]:
        """Return the predicted times of the chosen rows, and both ends of their intervals, as sums over kernels.

        Args:
            file: scalars to use in place of those that answer.
            changes: fields of the setting.
        """
        target = target_of(self.device)
        found = [
            (count, predict_table(one.table(rows), target, replace(one.setting_of(rows), **changes), file))
            for count, one in self.kernels or ((1, self),)
        ]
        expected_s, low_s, high_s = (
            sum(count * getattr(each, name) for count, each in found) for name in ("predicted_s", "low_s", "high_s")
        )
        return expected_s, low_s, high_s

    def table(self, rows: Any) -> CaseTable:
        """Return the chosen rows as cases."""
        axes = {name: column[rows] for name, column in self.axes.items()}
        return case_table({"op": self.op, "phase": self.phase, **self.dtypes, **self.attributes, **axes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Measurements that one form predicts."""

    name: str
    """Name, as its form and its folder of coefficients are called unless `form_name` says otherwise."""
    blocks: Callable[[Path], Iterator[Block]]
    """Reads the blocks of a corpus folder; files that are not there are passed over."""
    allowed: tuple[str, ...]
    """Starts of the names of blocks that scalars may be fitted on; others are held out whole."""
    scored: tuple[str, ...] = ()
    """First words of kinds of blocks that are scored and never fitted."""
    fixed: Callable[[Block], Sequence[str]] = lambda _: ()
    """Scalars that the rows of a block say nothing about."""
    own: Sequence[str] = ()
    """Scalars that follow from the library that ran, not from the device: each device has its own where several are
    fitted together, and devices without data get the usual ones.
    """
    alone: tuple[str, ...] = ()
    """Starts of the names of blocks that tell about no device but their own, as others run other kernels."""
    sample_count: int = SAMPLE
    """Rows per fit, drawn evenly."""
    least_rows_count: int = LEAST_ROWS
    """Blocks with fewer rows are held out whole."""
    usual_rows_count: float = 0.0
    """Rows that usual scalars count for in every fit: what some devices say nothing about stays near its usual value
    instead of running to an end of its range.
    """
    shared_rows_count: float = 3.0
    """Rows that the scalars of all devices together count for in the fit of one of them."""
    is_held: bool = False
    """Whether scalars of a device are always held near those of all, as where some have few rows; else fits that miss
    their own minimum that way are free.
    """
    left_out_share: float = 0.5
    """Share of them for fits that leave a device out to set the interval of unseen ones."""
    starts: Sequence[Mapping[str, float]] = ({},)
    """Scalars by name that fits start from in place of usual ones; the best fit counts, where kinds of kernels differ.
    """
    deviation: Deviation = logarithmic
    """What fits make least."""
    files: Sequence[str] = ()
    """Stems of the files that are read."""
    tree_count: int = 150
    """Trees of a correction."""
    form_name: str = ""
    """Form of another family that answers for these measurements, too."""

    @property
    def model(self) -> KernelModel:
        """Return the form whose scalars are fitted and scored."""
        return KERNEL_MODELS[self.form_name or self.name]

    def is_allowed(self, block: Block) -> bool:
        """Return whether scalars may be fitted on a block: one of a device that is known."""
        is_known = block.device.partition(":")[0] in TARGETS
        return is_known and len(block.measured_s) >= self.least_rows_count and self.is_named(block)

    def is_named(self, block: Block) -> bool:
        """Return whether scalars may be fitted on blocks of this name, if they have enough rows."""
        return block.kind.split()[0] not in self.scored and any(block.name.startswith(start) for start in self.allowed)

    def tells_of_others(self, block: Block) -> bool:
        """Return whether devices without data may be predicted from a block."""
        return not any(block.name.startswith(start) for start in self.alone)

    def group(self, block: Block) -> str:
        """Return the group of coefficients that a block's scalars make."""
        return self.model.groups(block.op, block.dtypes)[0]


def maker_of(block: Block) -> str:
    """Return who made the device of a block, as prior files spell it."""
    return target_of(block.device).vendor.lower()


def left_out(family: Family, corpus: Path) -> Iterator[tuple[Block, list[Block]]]:
    """Yield each block that scalars may be fitted on with those of other devices: its maker's, or all others'."""
    allowed = [block for block in family.blocks(corpus) if family.is_allowed(block)]
    for block in allowed:
        telling = [b for b in allowed if family.tells_of_others(b)]
        alike = [b for b in telling if family.group(b) == family.group(block) and b.device != block.device]
        own = [b for b in alike if maker_of(b) == maker_of(block)]
        if alike:
            yield block, own or alike


def site_numbers(*columns: Any) -> Any:
    """Return a number per row that depends on the given axes alone.

    >>> first, second = site_numbers([4096, 4096], [128, 256]), site_numbers([4096], [256])
    >>> bool(first[1] == second[0]), bool(first[0] == first[1])
    (True, False)
    """
    factors = (2654435761, 320740437, 2246822519, 3266489917, 668265263, 374761393)
    with np.errstate(over="ignore"):
        mixed = sum(
            np.asarray(column).astype(np.uint64) * np.uint64(factor)
            for column, factor in zip(columns, factors, strict=False)
        )
        mixed = mixed ^ (mixed >> np.uint64(13))
        return mixed * np.uint64(0x9E3779B97F4A7C15)


def folds(block: Block) -> Any:
    """Return the fold of each row, 0 to 3; a site lies in one fold on every device.

    Folds 0 and 1 are fitted on, 2 sets the intervals, 3 is held out for scores.
    """
    return ((block.sites >> np.uint64(40)) % np.uint64(4)).astype(int)


def best_rows(
    path: Path, axes: Sequence[str], where: str, values: Sequence[Any], positive: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the least time of each distinct set of `axes` among the rows that match, with the flags of that row.

    Rows without a positive finite time, and shapes that lack an axis, are set aside; the error stream counts them.

    Args:
        axes: SQL expressions, named by `as` where they are not plain columns.
        where: SQL condition with `?` for `values`.
        positive: axes that are at least 1, the others at least 0.

    Returns:
        columns by name, and `best` (seconds), `flags`.
    """
    import duckdb

    timed, where = "coalesce(isfinite(latency_us::double) and latency_us > 0, false)", f"({where})"
    query = (
        f"select {', '.join(axes)}, min(latency_us) as best, arg_min(coalesce(flags, 0), latency_us) as flags "
        f"from read_parquet(?) where {where} and {timed} and {lacks(NO_MEASUREMENT)} group by all order by all"
    )
    counts = f"count(*) filter (not {timed}), count(*) filter ({timed} and not ({lacks(NO_MEASUREMENT)})), count(*)"
    given = [str(path), *values]
    try:
        found = dict(duckdb.sql(query, params=given).fetchnumpy())
        rows = f"select {counts} from read_parquet(?) where {where}"
        ((count, copied, kept),) = duckdb.sql(rows, params=given).fetchall()
        ((every, older),) = duckdb.sql(_EVERY + re.sub(_LACKS, "true", where), params=given).fetchall()
    except duckdb.Error as error:
        found, count, copied, kept, every, older = _unread(path, axes, str(error)), 0, 0, 0, 0, 0
    texts = [name for name, column in found.items() if np.ma.getdata(column).dtype.kind not in "biuf"]
    if texts:
        found = _unread(path, axes, f"column {texts[0]} holds text; wanted numbers")
    _tell(path, values, count, "rows without a positive time")
    _tell(path, values, copied, "copies of another device or quarantined rows")
    whole = np.ones(len(found["best"]), dtype=bool)
    for name, column in found.items():
        least = 1 if name in positive else 0
        whole &= ~np.ma.getmaskarray(column) & (np.ma.getdata(column) >= least)
    lame = int((~whole).sum())
    _tell(path, values, lame, "shapes that lack an axis, or where one is out of range")
    columns = {name: np.ma.getdata(column)[whole] for name, column in found.items()}
    columns["best"] = columns["best"].astype(np.float64) * 1e-6
    older = min(older, every - kept)
    columns["left_out"] = {
        "older software": older, "host launch": every - kept - older,
        "without a time or an axis": count + copied + lame,
        "other times of the same shapes": kept - count - copied - len(whole),
    }  # fmt: skip
    return columns


def reasons(found: Mapping[str, Any], hot: Any) -> dict[str, int]:
    """Return why rows are no case of a block, by what `best_rows` found and which best times lay in cache."""
    return {**found["left_out"], "in cache": int(hot.sum())}


_LACKS = r"coalesce\(flags, 0\) & \d+ = 0"
_EVERY = f"select count(*), count(*) filter (coalesce(flags, 0) & {OLD} > 0) from read_parquet(?) where "
"""Counts of all rows, and of those of older software; readers leave out flagged rows by `lacks`."""


class UnreadTable(UserWarning):
    """A table of the corpus, named with what is wrong, that cannot be read; what others hold is scored all the same."""


def _unread(path: Path, axes: Sequence[str], why: str) -> dict[str, Any]:
    """Warn that a table cannot be read, and return its columns without rows."""
    warnings.warn(UnreadTable(f"{path.name}: {why.splitlines()[0]}"), stacklevel=3)
    names = [axis.rpartition(" as ")[2] for axis in axes]
    return {name: np.zeros(0, dtype=np.int64) for name in (*names, "best", "flags")}


def kinds_of(path: Path, *columns: str, known: Callable[..., bool] = lambda *_: True) -> list[tuple[Any, ...]]:
    """Return the distinct values of columns of a file, in order; none where the file is absent or lacks one of them.

    Args:
        known: whether such rows can be read as cases, by the values; the error stream names and counts the others.
    """
    import duckdb

    if not path.exists():
        return []
    names = f"select {', '.join(columns)}, count(*) from read_parquet(?) group by all order by all"
    try:
        counts = {tuple(row[:-1]): row[-1] for row in duckdb.sql(names, params=[str(path)]).fetchall()}
    except duckdb.Error as error:
        _unread(path, (), str(error))
        return []
    read = [kind for kind in counts if None not in kind and known(*kind)]
    for kind, count in counts.items():
        if kind not in read:
            what = f"{path.name}: {' '.join(map(str, kind))}"
            print(f"{what}: {count} rows left out, read as no case here", file=sys.stderr)
    return read


def _tell(path: Path, values: Sequence[Any], count: int, what: str) -> None:
    if count:
        print(f"{path.name}: {' '.join(map(str, values))}: {count} {what} set aside", file=sys.stderr)


def sole_software(path: Path, where: str, values: Sequence[Any]) -> str:
    """Return the framework that all rows that match are of, without its version: no other's kernel could win there.

    Empty where there are several, or one that predictions do not know.
    """
    import duckdb

    if not has_column(path, "software"):
        return ""
    query = f"select distinct split_part(software, ' ', 1) from read_parquet(?) where {where}"
    names = [row[0] for row in duckdb.sql(query, params=[str(path), *values]).fetchall()]
    return names[0] if len(names) == 1 and names[0] in SOFTWARE else ""


def lacks(flags: int) -> str:
    """Return the SQL condition that a row has none of `flags`; a row without flags has none.

    >>> lacks(OLD | EAGER)
    'coalesce(flags, 0) & 5 = 0'
    """
    return f"coalesce(flags, 0) & {flags} = 0"


def has_column(path: Path, name: str) -> bool:
    """Return whether a file has a column; one that cannot be read has none."""
    import duckdb

    try:
        rows = duckdb.sql("describe select * from read_parquet(?)", params=[str(path)]).fetchall()
    except duckdb.Error as error:
        _unread(path, (), str(error))
        return False
    return name in {row[0] for row in rows}


__all__ = [
    "EAGER", "HOT", "OLD", "Block", "Family", "UnreadTable", "best_rows", "folds", "has_column", "kinds_of", "lacks",
    "maker_of", "reasons", "site_numbers", "sole_software", "target_name",
]  # fmt: skip
