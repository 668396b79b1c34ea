"""Lookup of coefficients for a device and a format: shipped files, user files, related devices, and priors."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.calibration.coefficient_reader import read_coefficients, read_group
from nearpeak.prediction.calibration.related_devices import is_other_format
from nearpeak.prediction.calibration.source_spread import (
    OTHER_FORMAT,
    OTHER_SOURCE,
    other_maker_spread,
    rate_move,
    widened_both_ways,
    widened_by,
    with_few_boards_spread,
    with_half_move,
    with_older_libraries_spread,
    with_other_board_spread,
    with_other_kernels_spread,
    with_source_spread,
)
from nearpeak.prediction.documented_target import at_documented_power, differing, figures_digest, stock_of
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel
from nearpeak.targets import TARGETS, shipped_target, target_of, user_folder

_FOLDER = Path(__file__).parents[1] / "coefficients"
PRIOR = "_prior_nvidia"
"""File of the coefficients that fit all measured devices of the maker with the most of them."""
_RATES = ("tensor.bf16",)
"""Rate by which the size of multiprocessors is compared; absent in both where neither has such units."""
_ALIKE_COUNT = 2
"""Groups of a format itself or of the same kernels; coefficients of later groups are a step away, without trees."""
_USER_FILE, _PART = "", "@"
"""Stem of the file that a call names; replacement of the colon before a partition in file names."""
_FADE = 4.0
"""Factor by which a device's weight falls with each doubling between its multiprocessors and the target's."""
_LEAST = 1e-6
"""Least value in a geometric mean, as a share of a coefficient's largest."""


def calibration_for(
    target: Target, model: KernelModel, cases: CaseColumns, file: Path | None = None, *,
    corrected: bool = True, without: str = "",
) -> Calibration:  # fmt: skip
    """Return the coefficients for `cases` on `target`: its own, its architecture's, or those of all devices.

    Args:
        file: the user's own coefficients for this target, preferred to all others; these fill in missing groups.
        corrected: with the bounded correction, which unmeasured operators never have; the interval is wider without.
        without: device whose coefficients are not used.

    Raises:
        SpecError: a coefficient file is malformed or belongs to another version of the model.
        NotModelledError: no file has coefficients for the format.
    """
    if model.calibration is not None:
        if file is not None:
            raise SpecError(
                f"calibration {file}: the target {target.name} is predicted from probes of its own "
                "('nearpeak calibrate roofs'), not from coefficients; leave the file out"
            )
        return model.calibration(target, cases)
    groups, power = model.groups(cases.op, cases.dtypes), partial(model.widening, cases.op)
    differences = differing(target)
    entries = {} if file is None else _user_entries(file, target, model, groups)
    if differences and file is None:  # the shipped data of this name are of another device, unlike the user's own fits
        file = user_folder() / "coefficients" / f"{stem_of(target.name)}.toml"
        entries = _entries_with_figures(file, figures_digest(target), model)
    figures = figures_digest(target) if entries else ""
    target = at_documented_power(target)  # an edited limit has a term of its own
    borrowed = any(power(cell) != 1.0 for cell in model.regimes.values())
    for group, stem, steps in _order(target, model, groups, cases.dtypes, entries):
        if without and stem.partition(_PART)[0] == without:
            continue
        place, other = groups.index(group), model.is_by_format and is_other_format(groups[0], group)
        stored: Calibration | None
        distance = max(steps, 1 if place >= _ALIKE_COUNT and not other else 0)
        trees = corrected and not borrowed and place < _ALIKE_COUNT
        if file is not None and stem == _USER_FILE:
            distance = max(distance, int(entries[group].get("figures", figures) != figures))
            stored = read_group(entries[group], f"{file.stem} {model.name}.{group}", model, distance, trees)
        elif (stored := _stored(model.name, stem, group, distance, trees)) is None:
            continue
        calibration = _of_format(stored, model, group) if other else stored
        if steps == 1:
            calibration = _of_related_device(calibration, model, target, _device(stem), cases)
        elif steps > 1:
            calibration = _of_several_devices(calibration, model, target, cases, group, steps, without)
        return replace(widened_by(calibration, power), is_borrowed=borrowed, differing=differences)
    raise NotModelledError(
        f"{target.name}: no coefficients for {cases.op} in {cases.dtypes['dtype']}; "
        "'nearpeak predict --calibration FILE' reads yours"
    )


def is_user_calibration(calibration: Calibration, file: Path) -> bool:
    """Return whether coefficients are of the user's own file."""
    return calibration.name.startswith(f"{file.stem} ")


def _of_format(calibration: Calibration, model: KernelModel, group: str) -> Calibration:
    """Return the coefficients for a format that they were not fitted on: at least one step from the data."""
    values = model.reformatted(group, [coefficient.value for coefficient in calibration.coefficients])
    widened = with_source_spread(_with_values(calibration, values), OTHER_FORMAT + model.name)
    return replace(widened, distance_count=max(calibration.distance_count, 1))


def _of_related_device(
    calibration: Calibration, model: KernelModel, target: Target, device: Target, cases: CaseColumns
) -> Calibration:
    """Return the coefficients of a device for another that runs its kernels, with the spread of such boards."""
    moved = _transferred(calibration, model, target, device, cases)
    moved = with_half_move(moved, rate_move(calibration, moved))
    if model.is_other_hardware(target, device):
        return with_source_spread(moved, OTHER_SOURCE)
    is_same = stock_of(target).name == stock_of(device).name
    return moved if is_same else with_other_board_spread(moved, model.name, target, device)


def _of_several_devices(
    calibration: Calibration, model: KernelModel, target: Target, cases: CaseColumns, group: str, steps: int,
    without: str,
) -> Calibration:  # fmt: skip
    """Return the coefficients that fit several devices for one without data."""
    calibration = with_few_boards_spread(calibration, model.name)
    behind = [_device(stem) for stem in _stems(model.name) if _stored(model.name, stem, group, 0, False) is not None]
    calibration = with_older_libraries_spread(calibration, target, behind)
    differ = [model.is_other_hardware(target, _device(stem)) for stem in _stems(model.name)]
    if 2 * sum(differ) > len(differ):
        calibration = with_source_spread(calibration, OTHER_SOURCE)
    if steps == 2:
        return widened_both_ways(_blended(calibration, model, target, cases, group, without))
    return widened_both_ways(with_source_spread(calibration, other_maker_spread(model.name)))


def _order(
    target: Target, model: KernelModel, groups: tuple[str, ...], dtypes: Mapping[str, str], entries: Mapping[str, Any]
) -> Iterator[tuple[str, str, int]]:
    """Yield groups and the files to look for them in, with their steps from the data, in the order of preference."""
    alike = [group for group in groups[:_ALIKE_COUNT] if not (model.is_by_format and is_other_format(groups[0], group))]
    yield from ((group, _USER_FILE, 0) for group in alike if group in entries)
    for farthest in (2, 3):
        for group in groups:
            if group in entries:
                yield group, _USER_FILE, 0
            yield from ((group, stem, steps) for stem, steps in _sources(model, target, dtypes) if steps <= farthest)


def _sources(model: KernelModel, target: Target, dtypes: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the files to look into with their steps from the data, related devices nearest first."""
    stems = dict(_own_stems(target))
    yield from stems.items()
    others = [stem for stem in _stems(model.name) if stem not in stems and _is_related(stem, target, model)]
    related = [stem for stem in others if model.informs(_device(stem), target, dtypes)]
    yield from ((stem, 1) for stem in sorted(related, key=lambda stem: _apart(model, target, _device(stem), dtypes)))
    yield f"_prior_{target.vendor.lower()}", 2
    yield PRIOR, 3


def _own_stems(target: Target) -> Iterator[tuple[str, int]]:
    """Yield the files of a target and of the device that it is a partition or an edit of, with steps from the data.

    A target without measurements of its own is a step away, even if the user measured the whole device.
    """
    if differing(target):
        return
    documented = target.name.partition("+")[0]
    device = documented.partition(":")[0]
    yield stem_of(target.name), 0
    if device in TARGETS:
        yield from ((stem, 1) for stem in dict.fromkeys((stem_of(documented), device)) if stem != stem_of(target.name))


def stem_of(name: str) -> str:
    """Return the stem of the file of a target's coefficients: partitions have their own.

    >>> stem_of("h100_sxm:1g.10gb")
    'h100_sxm@1g.10gb'
    """
    return name.replace(":", _PART)


def _transferred(
    calibration: Calibration, model: KernelModel, target: Target, device: Target, cases: CaseColumns
) -> Calibration:
    """Return the coefficients of a device for another that runs its kernels."""
    if model.transfer is None:
        return calibration
    measured = [(device, [coefficient.value for coefficient in calibration.coefficients])]
    try:
        (values,) = model.transfer(target, cases.dtypes, measured, is_related=True)
    except (NotModelledError, KeyError):
        return calibration
    return _with_values(calibration, values)


def _with_values(calibration: Calibration, values: Any) -> Calibration:
    pairs = zip(calibration.coefficients, values, strict=True)
    return replace(
        calibration, coefficients=tuple(replace(coefficient, value=float(value)) for coefficient, value in pairs)
    )


def _blended(
    prior: Calibration, model: KernelModel, target: Target, cases: CaseColumns, group: str, without: str
) -> Calibration:
    """Return the prior with the mean coefficients of its maker's measured devices, for a device without data."""
    if model.size is None:
        return _moved_prior(prior, model, target, cases, group, without)
    measured = []
    usual = {coefficient.name: coefficient.value for coefficient in prior.coefficients}
    is_other = model.is_by_format and is_other_format(model.groups(cases.op, cases.dtypes)[0], group)
    for stem in (stem for stem in _stems(model.name) if stem != without):
        stored = _stored(model.name, stem, group, 0, False) if _device(stem).vendor == target.vendor else None
        if stored is not None and not model.informs(_device(stem), target, cases.dtypes):
            prior = with_other_kernels_spread(prior, model.name) if _is_related(stem, target, model) else prior
        elif stored is not None:
            alone = _alone(model.name, stem, group)
            values = [usual[c.name] if c.name in alone else c.value for c in stored.coefficients]
            measured.append((_device(stem), model.reformatted(group, values) if is_other else values))
    if not measured:
        return prior
    try:
        return _with_values(prior, mean_coefficients(model, target, cases.dtypes, measured))
    except (NotModelledError, ValueError, KeyError):
        return prior


def _moved_prior(
    prior: Calibration, model: KernelModel, target: Target, cases: CaseColumns, group: str, without: str
) -> Calibration:
    """Return the prior moved to a device from each of those that it was fitted on: the geometric mean."""
    stems = [stem for stem in _stems(model.name) if stem != without and _device(stem).vendor == target.vendor]
    behind = [_device(stem) for stem in stems if _stored(model.name, stem, group, 0, False) is not None]
    if model.transfer is None or not behind:
        return prior
    values = [coefficient.value for coefficient in prior.coefficients]
    high = np.array([coefficient.high_value for coefficient in model.coefficients])
    moved = model.transfer(target, cases.dtypes, [(device, values) for device in behind], is_related=False)
    means = np.exp(np.log(np.maximum(np.stack(moved), _LEAST * high)).mean(axis=0))
    return _with_values(prior, np.where((np.stack(moved) == values).all(axis=0), values, means))


def mean_coefficients(
    model: KernelModel, target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]
) -> Any:
    """Return geometric means of measured devices' coefficients, weighted by the similarity of multiprocessors."""
    size = model.size or (lambda _target, _dtypes: 0.0)
    here = size(target, dtypes)
    weights = np.array([_FADE ** -abs(size(device, dtypes) - here) for device, _ in measured])
    low = np.array([coefficient.low_value for coefficient in model.coefficients])
    high = np.array([coefficient.high_value for coefficient in model.coefficients])
    moved = [values for _, values in measured]
    if model.transfer is not None:
        moved = list(model.transfer(target, dtypes, measured, is_related=False))
    logs = np.log(np.maximum(np.stack(moved), _LEAST * high))
    return np.clip(np.exp(weights @ logs / weights.sum()), low, high)


def _alone(model: str, stem: str, group: str) -> Sequence[str]:
    """Return the coefficients of a device that other devices must not inherit: other libraries were measured on it."""
    names: Sequence[str] = _groups(_FOLDER / model / f"{stem}.toml").get(f"{model}.{group}", {}).get("alone", ())
    return names


@lru_cache
def _stored(model: str, stem: str, group: str, distance: int, corrected: bool) -> Calibration | None:
    """Return a group of the user's own file of a device, or else of the one that ships; none where both lack it.

    A group whose figures are of another device that the user gave the same name does not count.
    """
    from nearpeak.prediction import KERNEL_MODELS

    for path in (user_folder() / "coefficients" / f"{stem}.toml", _FOLDER / model / f"{stem}.toml"):
        entry = _groups(path).get(f"{model}.{group}")
        if entry is None:
            continue
        _refuse_other(entry, f"{path.stem} {model}.{group}", stem.replace(_PART, ":"))
        figures = entry.get("figures") if isinstance(entry, dict) else None
        is_shipped = stem.partition(_PART)[0] in TARGETS
        if figures is None or not is_shipped or figures == figures_digest(_device(stem)):
            return read_group(entry, f"{stem} {model}.{group}", KERNEL_MODELS[model], distance, corrected)
    return None


def device_calibrations(model: KernelModel, group: str) -> tuple[Calibration, ...]:
    """Return the coefficients of a group on every device that has its own."""
    stored = [_stored(model.name, stem, group, 0, False) for stem in _stems(model.name)]
    return tuple(calibration for calibration in stored if calibration is not None)


@lru_cache
def _groups(path: Path) -> Mapping[str, Any]:
    """Return the groups of a file by name; none where there is no file."""
    groups: Mapping[str, Any] = read_coefficients(path)["groups"] if path.exists() else {}
    return groups


@lru_cache
def _stems(model: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_FOLDER / model).glob("*.toml") if not path.stem.startswith("_")))


def _is_related(stem: str, target: Target, model: KernelModel) -> bool:
    """Return whether a device has the architecture of `target`, and multiprocessors of about its size.

    Workstation and data-centre parts share names of architectures, not matrix units.
    """
    other = _device(stem)
    if model.related is not None:
        return model.related(target, other)
    if other.architecture != target.architecture:
        return False
    rates = [device.peaks[unit].flop_per_clock for device in (other, target) for unit in _RATES if unit in device.peaks]
    return max(rates) <= 2 * min(rates) if len(rates) == 2 else len(rates) == 0


def _apart(model: KernelModel, target: Target, other: Target, dtypes: Mapping[str, str]) -> tuple[float, float]:
    """Return in octaves how far devices differ in the model's size, then in their number of multiprocessors."""
    count = abs(math.log2(other.sm_count / target.sm_count)) if other.sm_count and target.sm_count else math.inf
    if model.size is None:
        return 0.0, count
    try:
        return abs(model.size(other, dtypes) - model.size(target, dtypes)), count
    except (NotModelledError, ValueError, KeyError):
        return math.inf, count


@lru_cache
def _device(stem: str) -> Target:
    """Return the device that data of a file were measured on: a shipped one, even if the user has one of that name."""
    name = stem.replace(_PART, ":")
    return shipped_target(name) if name.partition(":")[0] in TARGETS else target_of(name)


def _entries_with_figures(path: Path, figures: str, model: KernelModel) -> Mapping[str, Any]:
    """Return the groups of a user's file that were fitted on a device of these figures."""
    start = f"{model.name}."
    entries = {name.removeprefix(start): entry for name, entry in _groups(path).items() if name.startswith(start)}
    return {n: entry for n, entry in entries.items() if isinstance(entry, dict) and entry.get("figures") == figures}


def _user_entries(file: Path, target: Target, model: KernelModel, groups: tuple[str, ...]) -> Mapping[str, Any]:
    """Return those of `groups` that a file holds; entries that name another device are refused."""
    data, documented = read_coefficients(file)["groups"], target.name.partition("+")[0]
    entries = {group: data[f"{model.name}.{group}"] for group in groups if f"{model.name}.{group}" in data}
    for group, entry in entries.items():
        if not isinstance(entry, dict):
            raise SpecError(f"calibration {file.stem} {model.name}.{group}: is {entry!r}; a table is right, fit again")
        _refuse_other(entry, f"{file.stem} {model.name}.{group}", documented)
    return entries


def _refuse_other(entry: Any, name: str, documented: str) -> None:
    """Refuse a group that names another device; one of the whole device also serves its partitions."""
    device = entry.get("device", documented) if isinstance(entry, dict) else documented
    if device not in (documented, documented.partition(":")[0]):
        raise SpecError(f"calibration {name}: was fitted on {device}, not on {documented}")
