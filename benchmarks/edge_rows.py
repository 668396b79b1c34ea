"""Score predictions of edge boards against published figures: bounds, times, powers, energies, transfer, choice.

`python -m benchmarks.edge_rows` prints the figures; with `--fit` also the coefficients of `jetson_tensorrt.toml`.
Held out are, one after the other, pairs of board and model, families of models, and boards: coefficients and the
interval come from the rest alone.
"""

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, NamedTuple

import numpy as np

from benchmarks._edge_rows import EngineRow, Row, all_rows, engine_rows
from benchmarks._figures import Figure
from nearpeak.core.answers.bound import Policy
from nearpeak.prediction.engine.engine_coefficients import EngineCoefficients, engine_calibration
from nearpeak.prediction.engine.engine_time import engine_time_s, kernel_times
from nearpeak.systems.edge.mode_selection import informative_modes
from nearpeak.systems.edge.mode_times import non_negative
from nearpeak.systems.edge.mode_transfer import reference_prior, transferred

_HELD_OUT = ("pair", "family", "board")
FIGURES = (
    "edge_bounds", *(f"edge_{what}_{name}" for name in _HELD_OUT for what in ("time", "coverage", "energy")),
    "edge_transfer_time", "edge_transfer_power", "edge_choice",
)  # fmt: skip
_RANGES = {
    "int8_ratio": (0.6, 0.05, 1.0), "fp16_ratio": (0.6, 0.05, 1.0), "fp32_ratio": (0.6, 0.05, 1.0),
    "dram_ratio": (0.7, 0.2, 1.0), "depth_count": (60.0, 1.0, 2000.0), "edge_count": (20.0, 0.1, 200.0),
    "depthwise_ratio": (0.1, 0.005, 1.0), "grouped_ratio": (0.3, 0.02, 1.0), "start_clock_count": (5e3, 100.0, 6e4),
    "submit_s": (10e-6, 0.1e-6, 100e-6),
}  # fmt: skip
"""Prior, least and largest value of each coefficient."""
_PRIOR_WEIGHT = 0.05
_HOLDS: Mapping[str, Callable[[EngineRow], Hashable]] = {
    "pair": lambda one: one.pair, "family": lambda one: one.family, "board": lambda one: one.row["target"],
}  # fmt: skip


def fitted(rows: Sequence[EngineRow]) -> EngineCoefficients:
    """Return the coefficients of least relative errors, every pair of board and model with one vote."""
    from scipy.optimize import least_squares

    votes = Counter(one.pair for one in rows)
    start, low, high = (
        np.log([_RANGES[item.name][place] for item in fields(EngineCoefficients)]) for place in range(3)
    )
    names = [item.name for item in fields(EngineCoefficients)]

    def errors(logs: Any) -> Any:
        used = EngineCoefficients(**dict(zip(names, np.exp(logs), strict=True)))
        each = [log_error(one, used) / math.sqrt(votes[one.pair]) for one in rows]
        return np.array([*each, *(_PRIOR_WEIGHT * (logs - start))])

    solution = least_squares(errors, start, bounds=(low, high), loss="soft_l1", f_scale=0.3, xtol=1e-4, ftol=1e-4)
    return EngineCoefficients(**{name: float(value) for name, value in zip(names, np.exp(solution.x), strict=True)})


def log_error(one: EngineRow, used: EngineCoefficients) -> float:
    """Return the logarithm of predicted over measured time."""
    return math.log(engine_time_s(one.kernels, one.target, used, is_graph=one.is_graph) / one.measured_s)


class Held(NamedTuple):
    """Errors of held-out rows, in logarithms."""

    times: Any
    """Of times."""
    energies: Any
    """Of energies at the wall; NaN where none is published."""
    covered: Any
    """Whether the interval of the rest covers the time."""


def held_out(rows: Sequence[EngineRow], key: Callable[[EngineRow], Hashable]) -> Held:
    """Return the errors of rows whose key was left out of the fit of times and powers."""
    times, energies = np.zeros(len(rows)), np.full(len(rows), np.nan)
    groups = defaultdict(list)
    for place, one in enumerate(rows):
        groups[key(one)].append(place)
    for places in groups.values():
        rest = [one for place, one in enumerate(rows) if place not in set(places)]
        used = fitted(rest)
        law = _power_law(rest, used)
        for place in places:
            times[place] = log_error(rows[place], used)
            if rows[place].power_w is not None:
                ratio = float(_power_columns(rows[place], used) @ law) / rows[place].power_w
                energies[place] = times[place] + math.log(ratio)
    covered = np.zeros(len(rows), dtype=bool)
    for places in groups.values():
        others = np.abs(np.delete(times, places))
        covered[places] = np.abs(times[places]) <= np.quantile(others, 0.9)
    return Held(times=times, energies=energies, covered=covered)


def _power_columns(one: EngineRow, used: EngineCoefficients) -> Any:
    parts, counts = kernel_times(one.kernels, one.target, used), one.kernels.counts
    share = float((parts.products_s * counts).sum() / (parts.total_s * counts).sum())
    pace = one.target.sm_count * one.target.clock_hz / 1e9
    return np.array([1.0, pace, pace * share])


def _power_law(rows: Sequence[EngineRow], used: EngineCoefficients) -> Any:
    """Return rest, power per SM and gigahertz, and that of products, by least relative errors."""
    known = [one for one in rows if one.power_w]
    columns = np.array([_power_columns(one, used) / float(one.power_w or 1.0) for one in known])
    return non_negative(columns, np.ones(len(known)))


def mape(logs: Any) -> float:
    """Return the mean absolute error of logarithms of ratios, as a share."""
    known = logs[~np.isnan(logs)]
    return float(np.mean(np.abs(np.exp(known) - 1)))


def below_bound(rows: Sequence[EngineRow]) -> list[str]:
    """Return the rows that are faster than what nothing can beat."""
    from nearpeak.bounds.step.step_bound import step_bound

    policy = {"fp32": Policy(dtype="tf32")}
    return [
        one.row["id"] for one in rows
        if step_bound(one.workload, one.target, policy.get(one.row["precision"], Policy())).time_s > one.measured_s
    ]  # fmt: skip


Group = dict[str, tuple[float, float, Row]]
"""Time, power and row by power mode."""


def mode_groups() -> dict[tuple[str, ...], Group]:
    """Return the groups of one board, model and runtime that were measured in four power modes and more."""
    groups: dict[tuple[str, ...], Group] = defaultdict(dict)
    for row in all_rows():
        if not row["power_w"] or not ("smolhub" in row["source"] or row["target"] == "jetson_agx_xavier_cpu"):
            continue
        seconds = float(row["latency_ms"]) / 1e3 if row["latency_ms"] else 1 / float(row["items_per_s"])
        key = row["target"], row["runtime"], row["model"], row["batch"], row["scenario"], row["precision"]
        groups[key][row["power_mode"]] = (seconds, float(row["power_w"]), row)
    return {key: group for key, group in groups.items() if len(group) > 3}


def _inverse(group: Group) -> Any:
    rates = []
    for *_, row in (group[mode] for mode in sorted(group)):
        is_cpu = row["target"].endswith("cpu")
        device = float(row["gpu_mhz"] or 1) * float(row["sm_on"] or 1)
        host = float(row["cpu_mhz"]) * (float(row["cpu_cores"]) if is_cpu else 1.0)
        rates.append((device, float(row["emc_mhz"] or 1), host))
    array = np.array(rates)
    return array.max(0) / array


def _prior(groups: Mapping[tuple[str, ...], Group], key: tuple[str, ...], figure: int) -> Any:
    """Return the shape over modes of other models on the board, under the same runtime where there are such."""
    modes = sorted(groups[key])
    others = [name for name in groups if name[0] == key[0] and name != key and sorted(groups[name]) == modes]
    same = [name for name in others if name[1] == key[1]]
    samples = [{place: groups[name][mode][figure] for place, mode in enumerate(modes)} for name in same or others]
    return reference_prior(samples, len(modes))


def transfer_errors(groups: Mapping[tuple[str, ...], Group], figure: int) -> tuple[Any, Any]:
    """Return logarithmic errors and coverage of each mode, predicted from the group's other modes and other models."""
    errors, covered = [], []
    for key, group in groups.items():
        modes, rates, prior = sorted(group), _inverse(group), _prior(groups, key, figure)
        for place, mode in enumerate(modes):
            rest = {other: group[name][figure] for other, name in enumerate(modes) if other != place}
            found = transferred(prior, rates, rest, 1.4)
            errors.append(math.log(found.values[place] / group[mode][figure]))
            covered.append(found.low[place] <= group[mode][figure] <= found.high[place])
    return np.array(errors), np.array(covered)


def choice_losses(groups: Mapping[tuple[str, ...], Group], measured_count: int) -> list[float]:
    """Return what the chosen mode needs in energy beyond the best, with so many measured modes that the tool names."""
    losses = []
    for key, group in groups.items():
        modes, rates = sorted(group), _inverse(group)
        picks = informative_modes(rates, count=measured_count)
        figures = [
            transferred(_prior(groups, key, figure), rates, {p: group[modes[p]][figure] for p in picks}, 1.4).values
            for figure in (0, 1)
        ]
        energies = np.array([group[mode][0] * group[mode][1] for mode in modes])
        losses.append(float(energies[np.argmin(figures[0] * figures[1])] / energies.min() - 1))
    return losses


def measure() -> Iterator[Figure]:
    """Yield the figures beside their bars."""
    rows, groups = list(engine_rows()), mode_groups()
    held = {name: held_out(rows, key) for name, key in _HOLDS.items()}
    low = below_bound(rows)
    yield Figure(name="edge_bounds", value=len(low), unit=f"of {len(rows)} rows below the bound", bar="0",
                 passed=not low)  # fmt: skip
    for name, one in held.items():
        energy, share = mape(one.energies), float(np.mean(one.covered))
        yield Figure(name=f"edge_time_{name}", value=round(100 * mape(one.times), 1), unit=f"% MAPE, {name} held out",
                     bar="<= 25", passed=mape(one.times) <= 0.25)  # fmt: skip
        yield Figure(name=f"edge_coverage_{name}", value=round(100 * share, 1), unit=f"% covered, {name} held out",
                     bar="85 to 95", passed=0.85 <= share <= 0.95)  # fmt: skip
        yield Figure(name=f"edge_energy_{name}", value=round(100 * energy, 1), unit=f"% MAPE at the wall, {name} out",
                     bar="<= 35", passed=energy <= 0.35)  # fmt: skip
    for figure, (what, bar) in enumerate((("time", 0.12), ("power", 0.08))):
        errors, covered = transfer_errors(groups, figure)
        yield Figure(name=f"edge_transfer_{what}", value=round(100 * mape(errors), 1), bar=f"<= {100 * bar:g}",
                     unit=f"% MAPE of {what}, one mode held out, {100 * np.mean(covered):.0f} % covered",
                     passed=mape(errors) <= bar)  # fmt: skip
    losses = choice_losses(groups, 2)
    right = sum(loss <= 0.03 for loss in losses)
    yield Figure(name="edge_choice", value=right, unit=f"of {len(losses)} groups within 3 % of the best, 2 modes known",
                 bar=">= 90 %", passed=right >= 0.9 * len(losses))  # fmt: skip


def main() -> None:
    """Print the figures; with `--fit` the coefficients, their error in sample, and the interval of held-out pairs."""
    if "--fit" not in sys.argv:
        for figure in measure():
            print(
                f"{figure.name}: {figure.value:g} {figure.unit} (bar {figure.bar}){'' if figure.passed else ' MISSED'}",
                flush=True,
            )
        return
    rows = list(engine_rows())
    used = fitted(rows)
    for item in fields(EngineCoefficients):
        print(f"{item.name} = {getattr(used, item.name):.4g}")
    print(f"# {len(rows)} rows, in sample {100 * mape(np.array([log_error(one, used) for one in rows])):.1f} %")
    print(
        f"# power at the wall: {_power_law(rows, used).round(3)}; shipped {astuple(engine_calibration().coefficients)}"
    )


if __name__ == "__main__":
    main()
