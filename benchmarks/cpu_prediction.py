"""How far predictions for this machine's CPU are from measurements: 240 cases of many operators on one thread."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks._figures import Figure
from nearpeak.api.measured_analysis import probe_cpu
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.measurement.machine.cpu_probes import probe_cases, thread_times
from nearpeak.ops import case as case_of
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction.case_prediction import predict_table
from nearpeak.targets import CPU, target_of

FIGURES = ("cpu_prediction_median", "cpu_prediction_p90", "cpu_prediction_covered")
CASE_COUNT = 240
SEED = 20261120
LARGEST_S = 0.05
"""Cases expected to take longer are not drawn, so that the benchmark stays short."""


def measure() -> Iterator[Figure]:
    """Measure probes of this machine, then cases of other sizes, and yield the errors.

    The roofs are those that 'nearpeak calibrate roofs' measured; they only split a time into parts.
    """
    probe_cpu()
    cases, predicted, low, high, measured = compared(CASE_COUNT, SEED)
    errors = np.abs(predicted / measured - 1)
    for worst in np.argsort(-errors)[:20]:
        print(f"  {cases[worst].label()}: {measured[worst]:.3g} s, predicted {predicted[worst]:.3g} s", flush=True)
    operators = len({case.op for case in cases})
    bias = 100 * float(np.mean(predicted / measured - 1))
    print(f"  {len(cases)} cases of {operators} operators; bias {bias:+.1f} %", flush=True)
    median, p90 = 100 * float(np.median(errors)), 100 * float(np.quantile(errors, 0.9))
    covered = 100 * float(((low <= measured) & (measured <= high)).mean())
    yield Figure(name="cpu_prediction_median", value=median, unit="%", bar="<= 20%", passed=median <= 20)
    yield Figure(name="cpu_prediction_p90", value=p90, unit="%", bar="<= 50%", passed=p90 <= 50)
    yield Figure(name="cpu_prediction_covered", value=covered, unit="%", bar=">= 80%", passed=covered >= 80)


def compared(count: int, seed: int) -> tuple[list[Case], Any, Any, Any, Any]:
    """Return random cases with their predicted times, both ends of the intervals, and measured times."""
    pairs = list(thread_times(drawn_cases(count, seed)))
    cases, measured = [case for case, _ in pairs], np.array([time_s for _, time_s in pairs])
    found = predict_table(table_of_cases(cases), target_of(CPU))
    return cases, found.predicted_s, found.low_s, found.high_s, measured


def drawn_cases(count: int, seed: int) -> list[Case]:
    """Return cases of the probed kinds, operators drawn alike, with extents drawn between those of the probes."""
    draw, target = random.Random(seed), target_of(CPU)
    kinds: dict[str, dict[tuple[object, ...], list[Case]]] = {}
    for case in probe_cases():
        key = (case.phase, case.dtypes, case.attributes)
        kinds.setdefault(case.op, {}).setdefault(key, []).append(case)
    found: list[Case] = []
    for _ in range(50 * count):
        op = draw.choice(sorted(kinds))
        case = _varied(draw, draw.choice(sorted(kinds[op].values(), key=str)))
        if case is None or case in found:
            continue
        try:
            short = float(predict_table(table_of_cases([case]), target).predicted_s[0]) <= LARGEST_S
        except NearpeakError:
            continue  # extents that contradict one another
        if short:
            found.append(case)
        if len(found) == count:
            break
    return found


def _varied(draw: random.Random, like: list[Case]) -> Case | None:
    """Return a case of the same kind with other extents; none where they contradict one another."""
    one = draw.choice(like)
    axes = dict(one.axes)
    for name in axes:
        extents = sorted({dict(case.axes)[name] for case in like})
        if len(extents) > 1 and name not in ("groups", "kh", "kw"):
            axes[name] = round(2 ** draw.uniform(np.log2(max(extents[0], 1)), np.log2(extents[-1])))
    if one.op == "elementwise":
        axes |= {name: axes["elements"] for name in ("a", "b", "c") if axes.get(name)}
    try:
        return case_of(one.op, one.phase, **axes, **dict(one.dtypes), **dict(one.attributes))
    except NearpeakError:
        return None
