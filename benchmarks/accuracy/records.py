"""What the commands of this folder found, as records of one kind: computed from scores, or read from their pages."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.accuracy.families import families
from benchmarks.accuracy.family import Block
from benchmarks.accuracy.pages import PAGES
from benchmarks.accuracy.scores import Rows, error_of, held_out, joined, score
from nearpeak.errors import NearpeakError
from nearpeak.prediction.model_choice import model_of
from nearpeak.targets import target_of

SHORT_S = 20e-6
"""Element-wise kernels from here on have a bar."""
EXACT, LEAST_S = 1 - 1e-9, 1e-15
"""Ratio below which two times differ by more than rounding; least time that is divided by."""
LEFT_OUT, DESIGNED, MODELS, POWER = "device left out", "30 designed cases", "whole model", "board's meter"
GROUP, FAMILY, ALL = "family and device", "family", "all"
"""Origins of records that are not of one block; those of blocks are protocols of scores, and `KIN` and the like."""
SEEN, KIN, STRANGE = "another source, device seen", "unseen device, same architecture", "unseen device and architecture"
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Figures of one block, or of several blocks together."""

    origin: str
    """Kind of record: how rows were held out, or what was added up."""
    family: str
    """Family of measurements."""
    name: str
    """Source, device and format of a block; device of a group."""
    row_count: int
    """Rows behind the figures."""
    values: Values
    """Figures by name, as ratios."""


def scored(corpus: Path) -> Iterator[tuple[Record, Rows | None, Block | None]]:
    """Yield the records of every block with its rows, then those of devices, of families and of all held-out sites."""
    sites: dict[str, dict[str, list[Rows]]] = {}
    every = [(family, block) for family in families("") for block in family.blocks(corpus)]
    known: dict[str, set[str]] = {}
    for family, block in every:
        known.setdefault(family.model.name, set()).update([block.device] if family.is_allowed(block) else [])
    for family, block in every:
        name = family.model.name
        if model_of(block.op, block.phase) is family.model:
            try:
                rows = held_out(family, block)
            except NearpeakError:  # the page of errors says why such a block is not predicted
                continue
            if rows is None:
                continue
            yield record(_origin(block.device, known[name], rows.protocol), name, rows), rows, block
            if rows.protocol == "sites":
                sites.setdefault(name, {}).setdefault(block.device, []).append(rows)
    for name, devices in sites.items():
        for device, parts in devices.items():
            yield record(GROUP, name, joined(parts, device)), None, None
    for name, devices in sites.items():
        yield record(FAMILY, name, joined([one for parts in devices.values() for one in parts], name)), None, None
    whole = [one for devices in sites.values() for parts in devices.values() for one in parts]
    if whole:
        yield record(ALL, "all", joined(whole, "all")), None, None


def _origin(device: str, known: Collection[str], protocol: str) -> str:
    """Return the protocol of a block, told apart by whether its device or architecture was fitted where it was not.

    >>> _origin("h800_sxm", {"h100_sxm"}, "source"), _origin("h800_sxm", {"l40s"}, "source")
    ('unseen device, same architecture', 'unseen device and architecture')
    """
    if protocol == "sites":
        return protocol
    if device in known:
        return SEEN
    architectures = {target_of(one).architecture for one in known}
    return KIN if target_of(device).architecture in architectures else STRANGE


def record(origin: str, family: str, rows: Rows) -> Record:
    """Return the figures of rows: errors, intervals, and how predictions stand to bounds."""
    found, late = score(rows), rows.measured_s > SHORT_S
    slow = error_of(rows.predicted_s[late], rows.measured_s[late])
    values = {
        "mean": found.all.mean_ratio, "p90": found.all.p90_ratio, "bias": abs(found.all.bias_ratio),
        "over_roofline": found.all.mean_ratio / found.roofline_ratio, "covered": found.covered_ratio,
        "width": found.half_width_ratio / found.all.mean_ratio,
        "least_width": found.least_width_ratio / found.all.mean_ratio, "decided": found.decided_ratio,
        "beaten": found.beaten_ratio, "below_bound": float((rows.predicted_s < rows.bound_s).mean()),
        "beaten_classical": float(((rows.measured_s < rows.classical_s) & rows.cold).mean()),
        "beaten_any": float(((rows.measured_s < rows.any_s) & rows.cold).mean()),
        "weaker": float((rows.classical_s < rows.roofline_s * EXACT).mean()),
        "weaker_charged": float((rows.charged_s < rows.roofline_s * EXACT).mean()),
        "weaker_clocked": float((rows.charged_s < rows.clocked_s * EXACT).mean()),
        "least_charged": float((rows.charged_s / np.maximum(rows.roofline_s, LEAST_S)).min()),
    }  # fmt: skip
    values |= {} if found.long is None else {"long_mean": found.long.mean_ratio}
    values |= {} if slow is None else {"mean_from_20_us": slow.mean_ratio}
    return Record(origin=origin, family=family, name=rows.name, row_count=len(rows.measured_s), values=values)


def written(folder: Path = PAGES) -> Iterator[Record]:
    """Yield what commands that take long have written to their pages: read as data, not computed anew."""
    for family, name, _, count, whole, long, roofline in _table(folder / "accuracy_unseen.md", 7):
        mean = _percent(whole)
        values = {"mean": mean, "over_roofline": mean / _percent(roofline), "long_mean": _percent(long)}
        yield _record(LEFT_OUT, family, name, count, values)
    names = ("before", "long_before", "mean", "long_mean", "worst", "long_worst")
    for family, name, count, *cells in _table(folder / "accuracy_designed.md", 9):
        yield _record(DESIGNED, family, name, count, dict(zip(names, map(_percent, cells), strict=True)))
    for source, device, model, phase, batch, _, _, error, _ in _table(folder / "accuracy_models.md", 9):
        yield _record(MODELS, source, f"{device} {model} {phase} {batch}", "1", {"mean": abs(_percent(error))})
    for name, count, through, still, _, covered, near, between in _table(folder / "accuracy_power.md", 8):
        values = {"mean": _percent(through), "as_it_stands": _percent(still), "covered": _percent(covered)}
        values |= {"neighbours": _percent(near), "between": _percent(between)}
        if name != "all":
            yield _record(POWER, "power", name, count, values)


def _record(origin: str, family: str, name: str, count: str, values: Values) -> Record:
    known = {key: value for key, value in values.items() if not np.isnan(value)}
    return Record(origin=origin, family=family, name=name, row_count=int(count), values=known)


def _table(path: Path, columns: int) -> Iterator[list[str]]:
    """Yield the rows of the first table of a page with that many columns, less head and rule."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    yield from [row for row in rows if len(row) == columns][2:]


def _percent(cell: str) -> float:
    """Return the first number of a cell, in percent, as a ratio; NaN where there is none.

    >>> _percent("12.5 / 3.0 / 20.1 / +1.0"), _percent("-4.0 %")
    (0.125, -0.04)
    """
    found = re.match(r"[-+]?\d+(\.\d+)?", cell)
    return float(found[0]) / 100 if found else float("nan")


def figure(name: str, folder: Path = PAGES) -> Mapping[str, object]:
    """Return a figure that another benchmark measured; empty where it was not."""
    path = folder / "figures" / f"{name}.json"
    found: Mapping[str, object] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found
