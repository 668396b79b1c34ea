"""Power of products against boards' own meters: `python -m benchmarks.accuracy.power CORPUS [--fit] [--page]`."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families.gemm import PRODUCTS
from benchmarks.accuracy.family import EAGER, kinds_of, lacks, target_name
from benchmarks.accuracy.fit import FOLDER, SOURCES
from benchmarks.accuracy.meters import SETTLING_S, Place, Run, known_runs, read_w, runs_of, states_at, write_runs
from benchmarks.accuracy.pages import PAGES, write_page
from benchmarks.accuracy.scores import error_of, shown
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError
from nearpeak.ops.shared.tables.case_table import case_table
from nearpeak.prediction.calibration.coefficient_file import file_text, group_entry
from nearpeak.prediction.calibration.fit import Fit, fit
from nearpeak.prediction.calibration.intervals import interval_ends
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.prediction.kernel_model import CaseColumns, Setting
from nearpeak.prediction.models.power import KERNEL_MODEL, board_w, demand_w, limited_w, power_calibration
from nearpeak.prediction.refinement import coefficients_of
from nearpeak.targets import target_of

FITTED, INTERVAL, HELD_OUT = (0, 1), (2,), (3,)
"""Remainders, by four, of the shape buckets that scalars, intervals and scores are taken from."""
UNPUBLISHED = (0, 1, 2)
"""Shape buckets that the public corpus lacks: no fit has seen them, whatever their remainder."""
FIXED = ("vector_ratio", "memory_ratio")
"""Scalars that products say nothing about: they have next to no vector work, and keep weights in cache."""
NEIGHBOURS = 5
"""Readings that the comparison with neighbours takes the mean of."""
TURNS = 4
"""Times that runs and scalars are fitted in turn."""
SETTLED_S = 2e-4
"""Kernels from which a meter has settled in nearly all runs."""
PAGE = PAGES / "accuracy_power.md"
HEAD = """# How far predicted power is from boards' meters

Written by `python -m benchmarks.accuracy.power CORPUS --page`; nothing is fitted by it. Average power of products whose
rows carry `power_w`, shape buckets that no fit has seen; predicted from the case alone (its time is predicted, too),
error in percent: mean absolute / median / 90th percentile / signed bias.

The readings are not of a steady state. Short kernels read low and the power rises with the duration of one kernel,
though a kernel that is repeated draws the same power however short it is: the meter averages over a window that short
measurements did not fill. How far changes from one stretch of a sweep to the next, in the order m, n, k in which cases
were measured (products of nvfp4 with m = 1024 read 690 W at 18 us for n = 2048 to 3584 and 320 W for n = 4096 and 5120;
with n = 12288 they read 276 W for k = 256 and 500 W for k = 512, both 12 us), and some stretches never show more than
60 % of what the same software reads at smaller m. Each stretch has one window and one such share, found by the path of
least deviation through all buckets but the held-out ones; they are applied before comparing (*through the meter*),
belong to the measurement and are no part of predictions. *As it stands* leaves them out; *settled* takes only rows of
at least 200 us. *Neighbours* puts the mean of the five readings of the same m, software and format that are nearest in
n and k, held-out ones aside, in place of any prediction: noise, and steps of the meter. *Between software* is how far
the readings of two frameworks for one shape and format are from each other: no function of the case alone can be nearer
than about half of that.

| block | rows | through the meter | as it stands | settled, as it stands | covered | neighbours | between software |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Rows of one device and format that carry a power, with their sweeps."""

    device: str
    """Target's name."""
    dtype: str
    """The corpus' name of the format."""
    columns: CaseColumns
    """Cases."""
    time_s: Any
    """Predicted time of each case."""
    power_w: Any
    """What the meter read."""
    software: Any
    """Framework and version of each row."""
    part: Any
    """Remainder by four of the shape bucket; that of held-out ones where the public corpus lacks the bucket."""

    @property
    def places(self) -> list[Place]:
        """Extents of each case."""
        return list(zip(*(self.columns.axes[name].tolist() for name in "mnk"), strict=True))


def power_w(target: Target, cases: CaseColumns, values: Any, time_s: Any) -> Any:
    """Return the average power of back-to-back cases by part, rows by parts."""
    parts = limited_w(demand_w(target, cases, values, time_s), board_w(target))
    return np.stack(np.broadcast_arrays(*parts), 1)


def main() -> None:
    """Fit, or print one line per block and software."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.power", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit scalars and settling times, and write both files")
    parser.add_argument("--page", action="store_true", help="write docs/lab/accuracy_power.md")
    options = parser.parse_args()
    found = list(_readings(options.corpus / "aic_gemm.parquet"))
    if options.fit:
        _write_fits(found, _memory_ratio(options.corpus / "aic_decode_attention.parquet"))
        return
    lines = list(_lines(found))
    print("\n".join(lines))
    if options.page:
        write_page(PAGE, HEAD + "\n".join(lines) + "\n")


def _readings(path: Path) -> Iterator[Readings]:
    import duckdb

    for device, dtype in kinds_of(path, "device", "dtype"):
        query = (
            "select m, n, k, power_w, software, shape_bucket from read_parquet(?) where power_w > 0 and device = ? "
            f"and dtype = ? and {lacks(EAGER)} order by all"
        )
        found = duckdb.sql(query, params=[str(path), device, dtype]).fetchnumpy()
        if dtype not in PRODUCTS or len(found["m"]) == 0:
            continue
        product, axes = PRODUCTS[dtype], {name: np.asarray(found[name]).astype(np.int64) for name in "mnk"}
        table = case_table({"op": product.op, "dtype": product.dtype, **axes})
        try:
            target, setting = target_of(target_name(device)), Setting(quantises_input=product.quantises_input)
            times_s = predict_table(table, target, setting).predicted_s
        except NearpeakError as error:
            print(f"{device} {dtype}: {len(found['m'])} readings left out: {error}", file=sys.stderr)
            continue
        yield Readings(
            device=target.name, dtype=dtype, power_w=np.asarray(found["power_w"]).astype(np.float64),
            columns=CaseColumns(op=product.op, phase="forward", dtypes={"dtype": product.dtype}, axes=axes),
            time_s=times_s, software=np.asarray(found["software"]),
            part=_part(np.asarray(found["shape_bucket"]).astype(int)),
        )  # fmt: skip


def _part(bucket: Any) -> Any:
    """Return which of the parts rows belong to.

    >>> _part(np.array([0, 2, 4, 6, 7])).tolist()
    [3, 3, 0, 2, 3]
    """
    return np.where(np.isin(bucket, UNPUBLISHED), HELD_OUT[0], bucket % 4)


def _chosen(one: Readings, rows: Any) -> CaseColumns:
    axes = {name: column[rows] for name, column in one.columns.axes.items()}
    return CaseColumns(op=one.columns.op, phase="forward", dtypes=one.columns.dtypes, axes=axes)


def _memory_ratio(path: Path) -> float:
    """Return the power of memory at its documented rate, from long decode attention: products keep weights in cache."""
    import duckdb

    query = (
        "select device, median((power_w / power_limit_w - ?) / (4.0 * batch * kv_len * kv_heads * head_dim "
        '/ (latency_us * 1e-6) / ?)) from read_parquet(?) where power_w > 0 and latency_us > ? and "window" = 0 '
        "and dtype = 'bfloat16_kvbfloat16' and shape_bucket % 4 in (0, 1) group by all"
    )
    usual = {coefficient.name: coefficient.usual_value for coefficient in KERNEL_MODEL.coefficients}
    rate = target_of("b200_sxm").dram.bandwidth_bytes_per_s
    values = [usual["idle_ratio"] + usual["busy_ratio"], rate, str(path), 1e6 * SETTLED_S]
    return float(duckdb.sql(query, params=values).fetchall()[0][1])


def _write_fits(readings: list[Readings], memory_ratio: float) -> None:
    """Fit scalars per format and runs per software in turn, and write them."""
    groups: dict[str, dict[str, Any]] = {}
    meters: list[tuple[str, str, str, Sequence[Run]]] = []
    for one in readings:
        values, runs = _fitted(one, memory_ratio)
        rows = np.flatnonzero(np.isin(one.part, INTERVAL))
        ratios = one.power_w[rows] / _through(one, rows, values, runs)
        ends = interval_ends(ratios, np.full(len(rows), "power"), np.arange(len(rows)), ["power"])
        source = f"{SOURCES['aiconfigurator']}; rows with power_w, settling of the meter taken out; {one.device}"
        entry = group_entry(KERNEL_MODEL, values, ends, int(np.isin(one.part, FITTED).sum()), source)
        groups[f"power.{one.columns.dtypes['dtype']}"] = entry
        denser = _runs(one, np.flatnonzero(~np.isin(one.part, HELD_OUT)), values.values)
        meters += [(one.device, one.dtype, software, found) for software, found in sorted(denser.items())]
        print(f"fitted power of {one.device} {one.dtype}: {values.values.round(3).tolist()}", flush=True)
    (FOLDER / "power").mkdir(exist_ok=True)
    for stem in (readings[0].device, "_prior"):
        (FOLDER / "power" / f"{stem}.toml").write_text(file_text(groups), encoding="utf-8")
    write_runs(meters)


def _fitted(one: Readings, memory_ratio: float) -> tuple[Fit, Mapping[str, Sequence[Run]]]:
    rows = np.flatnonzero(np.isin(one.part, FITTED))
    columns, target = _chosen(one, rows), target_of(one.device)
    start = np.array([memory_ratio if s.name == "memory_ratio" else s.usual_value for s in KERNEL_MODEL.coefficients])
    for turn in range(TURNS):
        runs = _runs(one, rows, start)
        settling_s, share = _states(one, rows, runs)

        def readings(values: Any, settling_s: Any = settling_s, share: Any = share) -> Any:
            steady = power_w(target, columns, values, one.time_s[rows]).sum(1)
            return read_w(steady, values[0] * (target.power_w or 0.0), one.time_s[rows], settling_s, share)

        found = fit(KERNEL_MODEL, readings, one.power_w[rows], fixed=FIXED, start=start)
        start = found.values
        if turn == TURNS - 1:
            return found, runs
    raise AssertionError("at least one turn")


def _runs(one: Readings, rows: Any, values: Any) -> dict[str, Sequence[Run]]:
    """Return the runs of each software among the chosen rows."""
    target, places = target_of(one.device), one.places
    steady, idle_w = power_w(target, one.columns, values, one.time_s).sum(1), values[0] * (target.power_w or 0.0)
    found: dict[str, Sequence[Run]] = {}
    for software in sorted(set(one.software[rows].tolist())):
        every = sorted(np.flatnonzero(one.software == software).tolist(), key=lambda row: places[row])
        known = np.flatnonzero(np.isin(every, rows))
        own = np.array(every)[known]
        ordered = [places[row] for row in every]
        found[software] = runs_of(ordered, known, steady[own], idle_w, one.time_s[own], one.power_w[own])
    return found


def _states(one: Readings, rows: Any, runs: Mapping[str, Sequence[Run]]) -> tuple[Any, Any]:
    """Return the settling time and share of each row; a meter that has settled where its software has no runs."""
    settling_s, share, places = np.full(len(one.time_s), SETTLING_S[0]), np.ones(len(one.time_s)), one.places
    for software, found in runs.items():
        own = np.flatnonzero(one.software == software)
        settling_s[own], share[own] = states_at(found, [places[row] for row in own])
    return settling_s[rows], share[rows]


def _through(one: Readings, rows: Any, values: Any, runs: Mapping[str, Sequence[Run]]) -> Any:
    coefficients, target = np.asarray(getattr(values, "values", values)), target_of(one.device)
    steady = power_w(target, _chosen(one, rows), coefficients, one.time_s[rows]).sum(1)
    return read_w(steady, coefficients[0] * (target.power_w or 0.0), one.time_s[rows], *_states(one, rows, runs))


def _lines(readings: list[Readings]) -> Iterator[str]:
    """Yield one row of the table per block and software, and one over all."""
    every: list[tuple[Any, ...]] = []
    for one in readings:
        apart, columns = _between(one), _scored(one)
        software = one.software[np.isin(one.part, HELD_OUT)]
        for name in sorted(set(software.tolist())):
            every.append(tuple(column[software == name] for column in columns))
            yield _line(f"{one.device} {one.dtype} {name}", every[-1], apart)
    if not every:
        print("no reading is of a shape bucket that no fit has seen", file=sys.stderr)
        return
    yield _line("all", tuple(np.concatenate(parts) for parts in zip(*every, strict=True)), "")


def _scored(one: Readings) -> tuple[Any, ...]:
    """Return of each held-out row what the meter should show, the steady power, the reading, time, and neighbours."""
    calibration = power_calibration(one.device, one.columns.dtypes["dtype"])
    rows, known = np.flatnonzero(np.isin(one.part, HELD_OUT)), known_runs()
    runs = {name: known.get((one.device, one.dtype, name), ()) for name in sorted(set(one.software.tolist()))}
    coefficients, limits = (
        coefficients_of(calibration),
        (calibration.low_ratio["power"], calibration.high_ratio["power"]),
    )
    read = _through(one, rows, coefficients, {name: found for name, found in runs.items() if found})
    steady = power_w(target_of(one.device), _chosen(one, rows), coefficients, one.time_s[rows]).sum(1)
    ratio = one.power_w[rows] / read
    inside = (limits[0] <= ratio) & (ratio <= limits[1])
    return read, steady, one.power_w[rows], one.time_s[rows], inside, _neighbours(one, rows)


def _neighbours(one: Readings, rows: Any) -> Any:
    """Return the geometric mean reading of the nearest fitted rows of the same software and m; NaN where there is none.

    Nearest in octaves of n and k.
    """
    found, axes = np.full(len(rows), np.nan), one.columns.axes
    spots = np.log2(np.stack([axes["n"], axes["k"]], 1).astype(np.float64))
    groups: dict[tuple[str, int], list[int]] = {}
    for row in np.flatnonzero(~np.isin(one.part, HELD_OUT)):
        groups.setdefault((one.software[row], int(axes["m"][row])), []).append(int(row))
    for place, row in enumerate(rows):
        own = np.array(groups.get((one.software[row], int(axes["m"][row])), []), dtype=int)
        if len(own):
            near = own[np.argsort(((spots[own] - spots[row]) ** 2).sum(1), kind="stable")[:NEIGHBOURS]]
            found[place] = np.exp(np.log(one.power_w[near]).mean())
    return found


def _line(name: str, columns: tuple[Any, ...], apart: str) -> str:
    read, steady, measured, time_s, inside, near = columns
    long, known = time_s >= SETTLED_S, np.isfinite(near)
    cells = (
        name, str(len(measured)), shown(error_of(read, measured)), shown(error_of(steady, measured)),
        shown(error_of(steady[long], measured[long])), f"{100 * inside.mean():.0f} %",
        shown(error_of(near[known], measured[known])), apart,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _between(one: Readings) -> str:
    """Return how far the readings of two frameworks for one shape are apart, in percent."""
    first, second = [*sorted(set(one.software.tolist())), "", ""][:2]
    if not second:
        return "one software"
    keys = list(zip(*(one.columns.axes[name].tolist() for name in "mnk"), strict=True))
    of = {name: {keys[i]: one.power_w[i] for i in np.flatnonzero(one.software == name)} for name in (first, second)}
    both = sorted(set(of[first]) & set(of[second]))
    return shown(error_of(np.array([of[first][k] for k in both]), np.array([of[second][k] for k in both])))


__all__ = ["main"]

if __name__ == "__main__":
    main()
