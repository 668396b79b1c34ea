"""Measured CPU probes in the user's folder, by kind of case, with leave-one-out errors."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.input_files import json_value, text_of_file
from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.ops import OPS, case_of
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction.kernel_model import CaseColumns
from nearpeak.prediction.work_columns import work_columns
from nearpeak.targets import user_folder

SCHEMA = "nearpeak.cpu_probes 1"
LEVELS = 5
"""Kinds by how near they are: own, other formats, other choices, other operators of the family, all."""
SPECIAL_FLOP = 10.0
"""Vector FLOP that a special function counts as in what probes are held against; probes correct it by operator."""
COSTS = ("memory", "vector", "tensor", "groups")
"""Parts of a time by the roofs, and rows or channels, at a nanosecond each."""
_MANY = 6
"""Probes from which each cost has its own weight; with fewer, all costs share one."""
_ROUNDS = 200
_NEIGHBOURS = 8
_SHARPNESS = 3.0
"""Power by which the weight of a probe falls with its distance, in octaves of the axes."""
_NEAR_OCTAVES = 0.05
"""Distance within which probes count alike."""
_LEAST_RATIOS = 8
_WIDER = 2.0
"""How much wider intervals are than leaving probes out shows, as the weights have seen them: measured on this model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Probes that differ in sizes only."""

    axes: tuple[str, ...]
    """Axes in which they differ."""
    places: Any
    """Binary logarithm of these axes, probes by axes."""
    over: Any
    """Logarithm of measured time over that of `weights`."""
    weights: Any
    """Seconds of a call, and times that each of COSTS counts, that come nearest to the probes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probes:
    """All probes of a machine."""

    kinds: tuple[Mapping[Any, Kind], ...]
    """Kinds by key, level by level."""
    ends: tuple[tuple[float, float], ...]
    """Ends of the 90 % interval, as logarithms, by level, from probes left out."""
    count: int
    """Probes."""
    source: str
    """Where and when they were measured."""


def key_of(level: int, op: str, phase: str, dtypes: Mapping[str, str], attributes: Mapping[str, Any]) -> Any:
    """Return the key that cases of one kind share, coarser by level."""
    if level == 0:
        return (op, phase, tuple(sorted(dtypes.items())), tuple(sorted(attributes.items())))
    if level == 1:
        return (op, phase, tuple(sorted(attributes.items())))
    return ((op, phase), (OPS[op].family, phase), ())[level - 2]


def path_of() -> Path:
    """Return the path of this machine's probes."""
    return user_folder() / "probes" / "cpu.jsonl"


def save_text(probes: Sequence[tuple[Case, float]], title: str, source: str) -> str:
    """Return probes as JSON lines with a header."""
    head = {"schema": SCHEMA, "title": title, "source": source, "case_count": len(probes)}
    lines = [head, *({"case": case.record(), "time_s": float(f"{time_s:.4g}")} for case, time_s in probes)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def probes_of(target: Target) -> Probes:
    """Return the probes of this machine.

    Raises:
        NotModelledError: none were measured, or they are of another machine.
    """
    path = path_of()
    if not path.is_file():
        raise NotModelledError(f"{target.name}: no probes of this CPU; run 'nearpeak calibrate roofs'")
    return _loaded(str(path), path.stat().st_mtime_ns, _Held(target))


class _Held:
    """A target as part of a key, equal where name and roofs are."""

    __slots__ = ("target",)

    def __init__(self, target: Target) -> None:
        self.target = target

    def __hash__(self) -> int:
        return hash(self.target.name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other.target == self.target


@lru_cache(maxsize=4)
def _loaded(path: str, _stamp: int, held: _Held) -> Probes:
    target = held.target
    lines = text_of_file(path).splitlines()
    try:
        head, rows = json_value(lines[0]), [json_value(line) for line in lines[1:]]
        known = head["schema"] == SCHEMA and head["case_count"] == len(rows)
    except (IndexError, ValueError, KeyError, TypeError):
        head, rows, known = {}, [], False
    if not known:
        raise SpecError(f"{path}: damaged, or of another version; run 'nearpeak calibrate roofs' again")
    if head["title"] != target.title:
        raise NotModelledError(
            f"{target.name}: the probes are of {head['title']!r}; run 'nearpeak calibrate roofs' here"
        )
    pairs = [pair for row in rows if (pair := _pair(row)) is not None]
    return made(target, pairs, str(head["source"]))


def _pair(row: Mapping[str, Any]) -> tuple[Case, float] | None:
    """Return a probe; none where the operator no longer takes such a case."""
    try:
        return case_of(row["case"]), float(row["time_s"])
    except NearpeakError:
        return None


def made(target: Target, pairs: Sequence[tuple[Case, float]], source: str) -> Probes:
    """Return probes by kind, with the intervals that leaving probes out gives."""
    cases, times = [case for case, _ in pairs], np.array([time_s for _, time_s in pairs])
    table, roofs = table_of_cases(cases), np.empty((len(cases), len(COSTS)))
    from nearpeak.prediction.case_prediction import group_columns

    for group in table.groups:
        rows = np.arange(len(cases)) if group.rows is None else np.asarray(group.rows)
        parts = roof_parts(target, group_columns(group, len(cases)))
        roofs[rows] = np.stack([parts[name] for name in COSTS], 1)
    kinds, ends = [], []
    for level in range(LEVELS):
        members: dict[Any, list[int]] = {}
        for i, case in enumerate(cases):
            key = key_of(level, case.op, case.phase, dict(case.dtypes), dict(case.attributes))
            members.setdefault(key, []).append(i)
        kinds.append(
            {key: _kind([cases[i] for i in places], times[places], roofs[places]) for key, places in members.items()}
        )
        ends.append(_ends(kinds[-1]))
    return Probes(kinds=tuple(kinds), ends=tuple(ends), count=len(cases), source=source)


def _kind(cases: Sequence[Case], times: Any, roofs: Any) -> Kind:
    sizes = [dict(case.axes) for case in cases]
    names = sorted(set.intersection(*(set(axes) for axes in sizes)))
    columns = {name: np.log2(np.maximum([float(axes[name]) for axes in sizes], 1.0)) for name in names}
    varied = tuple(name for name in names if np.ptp(columns[name]) > 0)
    places = np.stack([columns[name] for name in varied], 1) if varied else np.zeros((len(cases), 1))
    weights = _weights(roofs, times)
    return Kind(axes=varied, places=places, over=np.log(times / base_s(roofs, weights)), weights=weights)


def base_s(costs: Any, weights: Any) -> Any:
    """Return the times that a call and its costs give."""
    return weights[0] + costs @ weights[1:]


def _weights(costs: Any, times: Any) -> Any:
    """Return weights of at least 0 that bring each time as near as its own size allows (Lee and Seung 2000).

    >>> costs = np.array([[1e-6, 0, 0, 0], [1e-3, 0, 0, 0]])
    >>> [float(f"{one:.2g}") for one in _weights(costs, np.array([5e-6, 2e-3]))[:2]]
    [3e-06, 2.0]
    """
    apart = len(times) >= _MANY
    columns = costs if apart else costs[:, :3].sum(1, keepdims=True)
    design = np.concatenate([np.full((len(times), 1), 1e-6), columns], 1) / times[:, None]
    size = np.maximum(design.max(0), 1e-30)
    design = design / size
    weights = np.full(design.shape[1], 1.0)
    for _ in range(_ROUNDS):
        weights = weights * (design.T @ np.ones(len(times))) / np.maximum(design.T @ (design @ weights), 1e-30)
    weights = weights / size
    shared = weights[1:] if apart else np.array([weights[1]] * 3 + [0.0])
    return np.concatenate([[max(weights[0] * 1e-6, 1e-8)], shared])


def _ends(kinds: Mapping[Any, Kind]) -> tuple[float, float]:
    """Return the ends of the interval at one level: of probes predicted from the others of their kind."""
    rests = []
    for kind in kinds.values():
        for i in range(len(kind.over)):
            others = np.arange(len(kind.over)) != i
            if others.any():
                predicted = interpolated(kind.places[others], kind.over[others], kind.places[i : i + 1])
                rests.append(kind.over[i] - predicted[0])
    if len(rests) < _LEAST_RATIOS:
        return (-1.0, 1.0)
    low, high = np.quantile(rests, [0.05, 0.95])
    return (min(_WIDER * float(low), 0.0), max(_WIDER * float(high), 0.0))


def roof_parts(target: Target, cases: CaseColumns) -> dict[str, Any]:
    """Return the times that the measured roofs give the work of cases, by cost."""
    work = work_columns(target, cases)
    bandwidth = target.dram.bandwidth_bytes_per_s or np.inf
    flop = work.vector_flop + SPECIAL_FLOP * work.special_count
    return {
        "memory": (work.read_bytes + work.write_bytes) / bandwidth,
        "vector": flop / vector_rate(target, "fp32")[1],
        "tensor": work.matrix_s,
        "groups": 1e-9 * work.group_count,
    }


def interpolated(places: Any, values: Any, wanted: Any) -> Any:
    """Return values at other places: the mean of the nearest probes, the nearer the heavier.

    >>> found = interpolated(np.array([[0.0], [10.0]]), np.array([1.0, 3.0]), np.array([[0.0], [5.0], [99.0]]))
    >>> found.round(1).tolist()
    [1.0, 2.0, 2.2]
    """
    away = np.sqrt(((wanted[:, None, :] - places[None, :, :]) ** 2).sum(2)) + _NEAR_OCTAVES
    if len(values) > _NEIGHBOURS:
        cut = np.partition(away, _NEIGHBOURS - 1, axis=1)[:, _NEIGHBOURS - 1 : _NEIGHBOURS]
        away = np.where(away <= cut, away, np.inf)
    weights = away**-_SHARPNESS
    return (weights * values).sum(1) / weights.sum(1)
