"""Power of products against boards' own meters: `python -m benchmarks.accuracy.power CORPUS [--fit] [--page]`."""

import argparse
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.families.gemm import PRODUCTS
from benchmarks.accuracy.family import EAGER, kinds_of, target_name
from benchmarks.accuracy.fit import FOLDER, SOURCES
from benchmarks.accuracy.scores import error_of, shown
from nearpeak.core.expected_energy import PARTS
from nearpeak.ops._table import case_table
from nearpeak.predict._form import CaseColumns, Setting
from nearpeak.predict.coefficient_file import file_text, group_entry
from nearpeak.predict.fit import fit
from nearpeak.predict.forms.power import FORM, power_calibration, power_w
from nearpeak.predict.intervals import interval_ends
from nearpeak.predict.prediction import predict_table, scalars_of
from nearpeak.targets import target_of

FITTED, INTERVAL, HELD_OUT = (0, 1), (2,), (3,)
"""Remainders, by four, of the shape buckets that scalars and meters, intervals, and scores are taken from."""
SETTLING_S = 1e-6 * np.array([0.01, 1, 2, 3, 5, 8, 12, 20, 30, 40, 50, 60, 80, 120, 200])
"""Settling times of a meter that are tried, as duration of the kernel."""
SETTLED_S = 2e-4
"""Kernels from which a meter has settled in nearly all sweeps."""
METERS = Path(__file__).parent / "power_meters.csv"
PAGE = Path(__file__).parents[2] / "docs/explain/accuracy_power.md"
HEAD = """# How far predicted power is from boards' meters

Written by `python -m benchmarks.accuracy.power CORPUS --page`; nothing is fitted by it. Average power of products whose
rows carry `power_w`, shape buckets that no fit has seen; predicted from the case alone (its time is predicted, too),
error in percent: mean absolute / median / 90th percentile / signed bias.

The readings are not of a steady state. In most sweeps (one software, one format, one m) short kernels read low and the
power rises with the duration of one kernel as `1 - exp(-duration / settling)`, though a kernel that is repeated draws
the same power however short it is: the meter had not settled when it was read. Settling times range from nothing to
more than 100 us and change from one m to the next (m = 1024 reads 300 to 700 W where m = 1025 reads 950 W for the same
n and k). One settling time per sweep is therefore fitted on the same buckets as the scalars and applied before
comparing (*through the meter*); it belongs to the measurement and is no part of predictions. *As it stands* leaves it
out; *settled* takes only rows of at least 200 us. *Between software* is how far the readings of two frameworks for the
same shape and format are from each other: no function of the case alone can be nearer than about half of that.

| block | rows | through the meter | as it stands | settled, as it stands | covered | between software |
|---|---|---|---|---|---|---|
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
    """Remainder by four of the shape bucket."""

    @property
    def sweeps(self) -> list[tuple[str, int]]:
        """Software and m of each row."""
        return list(zip(self.software.tolist(), self.columns.axes["m"].tolist(), strict=True))


def main() -> None:
    """Fit, or print one line per block and software."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.power", description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit scalars and settling times, and write both files")
    parser.add_argument("--page", action="store_true", help="write docs/explain/accuracy_power.md")
    options = parser.parse_args()
    found = list(_readings(options.corpus / "aic_gemm.parquet"))
    if options.fit:
        _write_fits(found, _memory_ratio(options.corpus / "aic_decode_attention.parquet"))
        return
    lines = list(_lines(found))
    print("\n".join(lines))
    if options.page:
        PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _readings(path: Path) -> Iterator[Readings]:
    import duckdb

    for device, dtype in kinds_of(path, "device", "dtype"):
        query = (
            "select m, n, k, power_w, software, shape_bucket from read_parquet(?) where power_w > 0 and device = ? "
            f"and dtype = ? and flags & {EAGER} = 0 order by all"
        )
        found = duckdb.sql(query, params=[str(path), device, dtype]).fetchnumpy()
        if dtype not in PRODUCTS or len(found["m"]) == 0:
            continue
        product, axes = PRODUCTS[dtype], {name: np.asarray(found[name]).astype(np.int64) for name in "mnk"}
        table = case_table({"op": product.op, "dtype": product.dtype, **axes})
        target, setting = target_of(target_name(device)), Setting(quantises_input=product.quantises_input)
        yield Readings(
            device=target.name, dtype=dtype, power_w=np.asarray(found["power_w"]).astype(np.float64),
            columns=CaseColumns(op=product.op, phase="forward", dtypes={"dtype": product.dtype}, axes=axes),
            time_s=predict_table(table, target, setting).predicted_s, software=np.asarray(found["software"]),
            part=np.asarray(found["shape_bucket"]).astype(int) % 4,
        )  # fmt: skip


def _chosen(one: Readings, rows: Any) -> CaseColumns:
    axes = {name: column[rows] for name, column in one.columns.axes.items()}
    return CaseColumns(op=one.columns.op, phase="forward", dtypes=one.columns.dtypes, axes=axes)


def read_w(steady: Any, idle_w: Any, time_s: Any, settling_s: Any) -> Any:
    """Return what a meter shows that settles with the duration of a kernel, from the power of a steady state.

    >>> read_w(np.array([800.0]), 250.0, np.array([1e-3]), np.array([1e-8])).round()
    array([800.])
    """
    return idle_w + (steady - idle_w) * (1 - np.exp(-time_s / settling_s))


def _memory_ratio(path: Path) -> float:
    """Return the power of memory at its documented rate, from long decode attention: products keep weights in cache."""
    import duckdb

    query = (
        "select device, median((power_w / power_limit_w - ?) / (4.0 * batch * kv_len * kv_heads * head_dim "
        '/ (latency_us * 1e-6) / ?)) from read_parquet(?) where power_w > 0 and latency_us > ? and "window" = 0 '
        "and dtype = 'bfloat16_kvbfloat16' and shape_bucket % 4 in (0, 1) group by all"
    )
    usual = {scalar.name: scalar.usual_value for scalar in FORM.scalars}
    rate = target_of("b200_sxm").dram.bandwidth_bytes_per_s
    values = [usual["idle_ratio"] + usual["busy_ratio"], rate, str(path), 1e6 * SETTLED_S]
    return float(duckdb.sql(query, params=values).fetchall()[0][1])


def _write_fits(readings: list[Readings], memory_ratio: float) -> None:
    """Fit scalars per format and settling times per sweep in turn, and write them."""
    groups: dict[str, dict[str, Any]] = {}
    meters: list[tuple[str, str, str, int, float]] = []
    for one in readings:
        values, settling = _fitted(one, memory_ratio)
        rows = np.flatnonzero(np.isin(one.part, INTERVAL))
        ratios = one.power_w[rows] / _through(one, rows, values, settling)
        ends = interval_ends(ratios, np.full(len(rows), "power"), np.arange(len(rows)), ["power"])
        source = f"{SOURCES['aiconfigurator']}; rows with power_w, settling of the meter taken out; {one.device}"
        entry = group_entry(FORM, values, ends, int(np.isin(one.part, FITTED).sum()), source)
        groups[f"power.{one.columns.dtypes['dtype']}"] = entry
        meters += [(one.device, one.dtype, *sweep, time_s) for sweep, time_s in sorted(settling.items())]
        print(f"fitted power of {one.device} {one.dtype}: {values.values.round(3).tolist()}", flush=True)
    (FOLDER / "power").mkdir(exist_ok=True)
    for stem in (readings[0].device, "_prior"):
        (FOLDER / "power" / f"{stem}.toml").write_text(file_text(groups), encoding="utf-8")
    with METERS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("device", "dtype", "software", "m", "settling_s"))
        writer.writerows(meters)


def _fitted(one: Readings, memory_ratio: float) -> tuple[Any, dict[tuple[str, int], float]]:
    rows = np.flatnonzero(np.isin(one.part, FITTED))
    columns, target, sweeps = _chosen(one, rows), target_of(one.device), one.sweeps
    start = np.array([memory_ratio if s.name == "memory_ratio" else s.usual_value for s in FORM.scalars])
    settling: dict[tuple[str, int], float] = {}
    fixed = ("vector_ratio", "memory_ratio")  # products have next to no vector work, and keep weights in cache
    for _ in range(5):
        steady = power_w(target, columns, start, one.time_s[rows]).sum(1)
        idle_w = start[0] * (target.power_w or 0.0)
        settling = _settling(one, rows, steady, idle_w, sweeps)
        lag = np.array([settling[sweeps[row]] for row in rows])

        def readings(values: Any, lag: Any = lag) -> Any:
            steady = power_w(target, columns, values, one.time_s[rows]).sum(1)
            return read_w(steady, values[0] * (target.power_w or 0.0), one.time_s[rows], lag)

        found = fit(FORM, readings, one.power_w[rows], fixed=fixed, start=start)
        start = found.values
    return found, settling


def _settling(one: Readings, rows: Any, steady: Any, idle_w: float, sweeps: Any) -> dict[tuple[str, int], float]:
    """Return the settling time of each sweep that brings its readings nearest; the middle one without rows."""
    errors = np.stack(
        [
            np.minimum(np.abs(np.log(read_w(steady, idle_w, one.time_s[rows], s) / one.power_w[rows])), 0.4)
            for s in SETTLING_S
        ]
    )
    places: dict[tuple[str, int], list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(sweeps[row], []).append(place)
    found = {sweep: float(SETTLING_S[int(np.argmin(errors[:, own].mean(1)))]) for sweep, own in places.items()}
    return {sweep: found.get(sweep, float(np.median(SETTLING_S))) for sweep in set(sweeps)}


def _through(one: Readings, rows: Any, values: Any, settling: Mapping[tuple[str, int], float]) -> Any:
    scalars, target, sweeps = np.asarray(getattr(values, "values", values)), target_of(one.device), one.sweeps
    steady = power_w(target, _chosen(one, rows), scalars, one.time_s[rows]).sum(1)
    lag = np.array([settling[sweeps[row]] for row in rows])
    return read_w(steady, scalars[0] * (target.power_w or 0.0), one.time_s[rows], lag)


def _lines(readings: list[Readings]) -> Iterator[str]:
    """Yield one row of the table per block and software, and one over all."""
    meters = _meters()
    every: list[tuple[Any, ...]] = []
    for one in readings:
        calibration = power_calibration(one.device, one.columns.dtypes["dtype"])
        rows = np.flatnonzero(np.isin(one.part, HELD_OUT))
        settling = {
            sweep: meters.get((one.device, one.dtype, *sweep), float(np.median(SETTLING_S)))
            for sweep in set(one.sweeps)
        }
        scalars, limits = scalars_of(calibration), (calibration.low_ratio["power"], calibration.high_ratio["power"])
        read = _through(one, rows, scalars, settling)
        steady = power_w(target_of(one.device), _chosen(one, rows), scalars, one.time_s[rows]).sum(1)
        ratio = one.power_w[rows] / read
        inside = (limits[0] <= ratio) & (ratio <= limits[1])
        apart = _between(one)
        for software in sorted(set(one.software[rows].tolist())):
            own = one.software[rows] == software
            columns = (read[own], steady[own], one.power_w[rows][own], one.time_s[rows][own], inside[own])
            every.append(columns)
            yield _line(f"{one.device} {one.dtype} {software}", columns, apart)
    whole = tuple(np.concatenate(parts) for parts in zip(*every, strict=True))
    yield _line("all", whole, "")


def _line(name: str, columns: tuple[Any, ...], apart: str) -> str:
    read, steady, measured, time_s, inside = columns
    long = time_s >= SETTLED_S
    cells = (
        name, str(len(measured)), shown(error_of(read, measured)), shown(error_of(steady, measured)),
        shown(error_of(steady[long], measured[long])), f"{100 * inside.mean():.0f} %", apart,
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


def _meters() -> dict[tuple[str, str, str, int], float]:
    with METERS.open(encoding="utf-8", newline="") as file:
        return {
            (row["device"], row["dtype"], row["software"], int(row["m"])): float(row["settling_s"])
            for row in csv.DictReader(file)
        }


__all__ = ["PARTS", "main", "read_w"]

if __name__ == "__main__":
    main()
