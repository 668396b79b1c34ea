"""Reader of coefficient files: TOML groups, checked against their kernel model, as calibrations."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.core.answers.prediction import Calibration, Coefficient, Correction
from nearpeak.errors import SpecError
from nearpeak.prediction.calibration.source_spread import widened_by
from nearpeak.prediction.kernel_model import KernelModel
from nearpeak.prediction.residual_correction import correction_of

FAR_RATIO = (1.0, 1.5, 1.0, 2.0)
"""Power of the interval's width by steps from the data.

That of all devices of a maker was measured by leaving each out; the others are assumptions, for lack of devices.
"""
CORRECTED_DISTANCE = 1
"""Steps from the data up to which a model's correction holds: libraries choose kernels by architecture."""
TREES = ("correction", "scale")
"""Tree ensembles of a group, on top of its coefficients."""
_ENTRY_TYPES = {"scalars": (dict, "table"), "row_count": (int, "whole number"), "source": (str, "text"),
                "unidentified": (list, "list")}  # fmt: skip
"""Types of a group's entries besides its version and intervals."""


@border("calibration")
def read_coefficients(path: Path) -> Mapping[str, Any]:
    """Return the content of a coefficient file, whose `groups` are checked when they are used."""
    data = toml_of_file(path, f"calibration {path}")
    if not isinstance(data.get("groups"), dict):
        raise SpecError(f"calibration {path}: has no table [groups]; see docs/guide/prediction.md")
    return data


def calibration_of_group(entry: Mapping[str, Any], name: str, model: KernelModel, wide: float) -> Calibration:
    """Return one group of a file, checked, with its interval `wide` times as wide in logarithms."""
    calibration = read_group(entry, name, model, 0, True)
    return replace(widened_by(calibration, lambda _cell: wide), distance_count=int(wide > 1))


def read_group(entry: Mapping[str, Any], name: str, model: KernelModel, distance: int, corrected: bool) -> Calibration:
    """Return one group of a file, checked.

    Args:
        distance: steps from the data, which widen the interval.
        corrected: whether the group's trees are used.
    """
    if not isinstance(entry, dict) or entry.get("version") != model.version:
        version = entry.get("version") if isinstance(entry, dict) else entry
        raise SpecError(f"calibration {name}: is for {version!r}; this is {model.version!r}, fit again")
    _check_entry(entry, name, model)
    wide = FAR_RATIO[distance]
    kinds = TREES if corrected and distance <= CORRECTED_DISTANCE else ()
    trees = {kind: _trees(entry, name, kind) for kind in kinds}
    is_plain = "plain_interval" in entry and not any(trees.values())
    interval = entry["plain_interval" if is_plain else "interval"]
    return Calibration(
        name=name,
        coefficients=tuple(
            Coefficient(
                name=c.name, value=entry["scalars"][c.name], low_value=c.low_value, high_value=c.high_value,
                identified=c.name not in entry.get("unidentified", ()),
            )
            for c in model.coefficients
        ),
        low_ratio={regime: low**wide for regime, (low, _) in interval.items()},
        high_ratio={regime: high**wide for regime, (_, high) in interval.items()},
        row_count=entry["row_count"], source=entry["source"], version=model.version, distance_count=distance,
        correction=trees.get("correction"), scale=trees.get("scale"),
    )  # fmt: skip


def _check_entry(entry: Mapping[str, Any], name: str, model: KernelModel) -> None:
    """Refuse a group whose content differs from what `coefficient_file` writes for the model."""
    for key, (kind, words) in _ENTRY_TYPES.items():
        if not isinstance(entry.get(key, [] if key == "unidentified" else None), kind):
            raise SpecError(f"calibration {name}: {key} is {entry.get(key)!r}; a {words} is right, fit again")
    regimes = frozenset(model.regimes.values())
    for key in ("interval", *(("plain_interval",) if "plain_interval" in entry else ())):
        ends = entry.get(key)
        if not isinstance(ends, dict) or regimes - ends.keys() or not all(map(_is_interval, ends.values())):
            expected = ", ".join(sorted(regimes))
            raise SpecError(
                f"calibration {name}: {key} is {ends!r}; [low, high] around 1 for each of {expected} is right, "
                "fit again"
            )
    values = entry["scalars"]
    wrong = sorted({coefficient.name for coefficient in model.coefficients} ^ set(values))
    if wrong:
        raise SpecError(f"calibration {name}: coefficients differ from those of the kernel model: {', '.join(wrong)}")
    for coefficient in model.coefficients:
        value, low, high = values[coefficient.name], coefficient.low_value, coefficient.high_value
        if not isinstance(value, (int, float)) or not low <= value <= high:
            raise SpecError(f"calibration {name}: {coefficient.name} is {value}; {low} to {high} is right")


def _is_interval(ends: Any) -> bool:
    """Return whether these are ends, as shares of a predicted time, that enclose the prediction itself."""
    is_pair = isinstance(ends, list) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)
    return is_pair and 0 < ends[0] <= 1 <= ends[1] < math.inf


def _trees(entry: Mapping[str, Any], name: str, kind: str) -> Correction | None:
    """Return the trees of one kind of a group, checked; none where the group has none."""
    if kind not in entry:
        return None
    try:
        return correction_of(entry[kind])
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"calibration {name}: {kind}: {error}; fit again") from None
