"""Residual corrections of kernel models: small, bounded, boosted trees over shape, time and parts."""

import base64
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from operator import add
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Correction
from nearpeak.core.work.target import Target
from nearpeak.prediction.correction_layout import DEPTH, LEAF_COUNT, LIMITS, UNIT
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting
from nearpeak.prediction.scalar_or_column import is_number, larger

BORDER_COUNT = 31
"""Borders of a column at most."""
_RATE, _SHRINKAGE, _COLUMN_SHARE = 0.25, 8.0, 0.5
"""Learning rate of a tree; rows of shrinkage of a leaf; share of columns that a tree may use."""
_ROBUST = 0.6
"""Share of the rows whose distance counts fully when questions are chosen; larger distances count as the largest."""
_TIME = "time_s"
"""Name of the time among what a correction looks at."""
_SEED, _LEAST_S = 20261122, 1e-12


def columns_of(model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, rows: Rows) -> dict[str, Any]:
    """Return the possible inputs of a correction by name: shape, time and the shares of its parts."""
    inputs = {**model.correction_columns(target, cases, setting), _TIME: rows.time_s}
    shares = rows.parts_s / np.maximum(rows.time_s, _LEAST_S)[:, None]
    return inputs | {name: _sum_of(shares, places) for name, places in _shares(Same(model)).items()}


def correction_ratio(
    correction: Correction, model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> Any:
    """Return corrected over uncorrected time of each row."""
    from nearpeak.prediction import correction_kernel as kernel

    names = correction.columns
    return kernel.ratio(correction, names, seen(names, model, target, cases, setting, rows))


def seen(
    names: Sequence[str], model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> Any:
    """Return those of `columns_of` that have these names, one row each; zeros where the model has none of a name."""
    known, parts = model.correction_columns(target, cases, setting), _shares(Same(model))
    whole_s = np.maximum(rows.time_s, _LEAST_S)
    values = np.zeros((len(names), len(rows.time_s)), dtype=np.float32)
    for place, name in enumerate(names):
        if name == _TIME:
            values[place] = rows.time_s
        elif name in known:
            values[place] = known[name]
        elif name in parts:
            np.divide(_sum_of(rows.parts_s, parts[name]), whole_s, out=values[place], casting="same_kind")
    return values


def correction_inputs_of_case(
    names: Sequence[str], model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> list[Any]:
    """Return the same of one case, as numbers."""
    known, parts = model.correction_columns(target, cases, setting), _shares(Same(model))
    whole_s = larger(rows.time_s, _LEAST_S)
    values: list[Any] = [
        rows.time_s if name == _TIME else known[name] if name in known
        else reduce(add, [rows.parts_s[place] for place in parts[name]]) / whole_s if name in parts else 0.0
        for name in names
    ]  # fmt: skip
    return [value if is_number(value) else value.item() for value in values]


@lru_cache(maxsize=64)
def _shares(model: "Same[KernelModel]") -> Mapping[str, tuple[int, ...]]:
    """Return the places of parts, and of those that count as one, by the name of their share of the time."""
    terms, bundles = model.held.terms, model.held.bundles
    single = {name: (name,) for name in terms if not any(name in names for names in bundles.values())}
    return {f"{name}_ratio": tuple(map(terms.index, names)) for name, names in (single | dict(bundles)).items()}


def _sum_of(parts_s: Any, places: tuple[int, ...]) -> Any:
    """Return the sum of some parts of each row."""
    return parts_s[:, places[0]] if len(places) == 1 else parts_s[:, list(places)].sum(1)


def fit_correction(columns: Mapping[str, Any], rest: Any, tree_count: int) -> Correction:
    """Return boosted trees fitted to `rest`; each adds to those before.

    Source: boosted trees that ask one question of all rows at each level, Dorogush et al. 2018, arXiv:1810.11363.

    Args:
        columns: what the trees may look at, one value a row each.
        rest: logarithm of measured over predicted time of each row.
    """
    wanted = np.clip(rest, *LIMITS)
    columns = {name: np.asarray(column, dtype=np.float32) for name, column in columns.items()}
    borders = {name: edges for name, column in columns.items() if len(edges := _borders(column))}
    names, draw = sorted(borders), np.random.default_rng(_SEED)
    ranges = {name: np.searchsorted(borders[name], columns[name]) for name in names}
    reached, splits, leaves = np.zeros(len(wanted)), list[tuple[str, int]](), list[Any]()
    for _ in range(tree_count if names else 0):
        left = wanted - reached
        sampled = [name for name in names if draw.random() < _COLUMN_SHARE] or names
        questions, leaf = _tree({name: ranges[name] for name in sampled}, borders, left)
        values = np.clip(np.round(_RATE * _middles(leaf, left) / UNIT), -127, 127)
        reached += UNIT * values[leaf]
        splits, leaves = splits + questions, [*leaves, values]
    return _packed(splits, leaves, borders)


def _packed(splits: Sequence[tuple[str, int]], leaves: Sequence[Any], borders: Mapping[str, Any]) -> Correction:
    """Return trees with the columns and edges that they ask for, no others."""
    used = {name: sorted({border for edge, border in splits if edge == name}) for name in sorted(dict(splits))}
    places = {name: place for place, name in enumerate(used)}
    edges = [tuple(float(f"{edge:.6g}") for edge in borders[name][its]) for name, its in used.items()]
    return Correction(
        columns=tuple(used), edges=tuple(edges),
        splits=bytes(number for name, border in splits for number in (places[name], used[name].index(border))),
        leaves=np.array(leaves, dtype=np.int8).tobytes(),
    )  # fmt: skip


def _borders(column: Any) -> Any:
    """Return borders between neighbouring values, at most some, with as many rows between each two of them."""
    values = np.unique(column)
    middles = np.array([f"{border:.6g}" for border in (values[1:] + values[:-1]) / 2], dtype=np.float32)
    if len(middles) > BORDER_COUNT:
        wanted = np.quantile(column, np.linspace(0, 1, BORDER_COUNT + 2)[1:-1])
        middles = middles[np.minimum(np.searchsorted(middles, wanted), len(middles) - 1)]
    return np.unique(middles)


def _tree(ranges: Mapping[str, Any], borders: Mapping[str, Any], left: Any) -> tuple[list[tuple[str, int]], Any]:
    """Return the questions that tell most about `left`, and the leaf of each row."""
    most = np.quantile(np.abs(left), _ROBUST) + UNIT
    pull, leaf, questions = np.clip(left, -most, most), np.zeros(len(left), dtype=np.int64), list[tuple[str, int]]()
    for level in range(DEPTH):
        gains = {name: _gains(leaf, 1 << level, bins, len(borders[name]), pull) for name, bins in ranges.items()}
        best = max(gains, key=lambda name: gains[name].max())
        border = int(gains[best].argmax())
        questions.append((best, border))
        leaf = 2 * leaf + (ranges[best] > border)
    return questions, leaf


def _gains(leaf: Any, leaf_count: int, ranges: Any, border_count: int, pull: Any) -> Any:
    """Return for each border how much of the squares of `pull` asking for it explains."""
    width = border_count + 1
    cell = leaf * width + ranges
    sums, counts = (
        np.bincount(cell, weights, leaf_count * width).reshape(leaf_count, width).cumsum(1) for weights in (pull, None)
    )
    below, few = sums[:, :-1], counts[:, :-1]
    above, many = sums[:, -1:] - below, counts[:, -1:] - few
    return (below**2 / (few + _SHRINKAGE) + above**2 / (many + _SHRINKAGE)).sum(0)


def _middles(leaf: Any, left: Any) -> Any:
    """Return the median of each leaf's rows, nearer to zero the fewer they are."""
    count = np.bincount(leaf, minlength=LEAF_COUNT)
    order, ends = left[np.lexsort((left, leaf))], np.cumsum(count)
    starts = ends - count
    low, high = (
        order[np.minimum(starts + np.maximum(place, 0), len(left) - 1)] for place in ((count - 1) // 2, count // 2)
    )
    return np.where(count > 0, (low + high) / 2 * count / (count + _SHRINKAGE), 0.0)


def correction_entry(correction: Correction) -> dict[str, Any]:
    """Return a correction as coefficient files hold it."""
    return {
        "columns": list(correction.columns), "edges": [list(edges) for edges in correction.edges],
        "splits": base64.b85encode(correction.splits).decode(), "leaves": base64.b85encode(correction.leaves).decode(),
    }  # fmt: skip


def correction_of(entry: Mapping[str, Any]) -> Correction:
    """Return the correction of an entry of a coefficient file.

    Raises:
        ValueError: the entry is not one that `correction_entry` wrote.
    """
    correction = Correction(
        columns=tuple(entry["columns"]), edges=tuple(tuple(map(float, edges)) for edges in entry["edges"]),
        splits=base64.b85decode(entry["splits"]), leaves=base64.b85decode(entry["leaves"]),
    )  # fmt: skip
    trees = len(correction.leaves) // LEAF_COUNT
    sizes = [len(edges) for edges in correction.edges]
    questions = np.frombuffer(correction.splits, np.uint8).reshape(-1, 2)
    if (
        len(correction.leaves) != trees * LEAF_COUNT
        or len(questions) != trees * DEPTH
        or len(sizes) != len(correction.columns)
    ):
        raise ValueError("its trees, columns and leaves do not belong together")
    if any(column >= len(sizes) or border >= sizes[column] for column, border in questions.tolist()):
        raise ValueError("a tree asks for a column or a border that is not there")
    return correction
