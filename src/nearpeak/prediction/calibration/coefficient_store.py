"""The coefficients that ship with nearpeak, a user's own, and which of them answers for a device and a format."""

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from nearpeak.core.answers.prediction import Calibration, Coefficient, Correction
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.prediction.calibration.coefficient_entry import check_entry
from nearpeak.prediction.calibration.interval_margin import both_ways, widened_by
from nearpeak.prediction.calibration.related_devices import is_other_format
from nearpeak.prediction.calibration.scaled_coefficients import kin_values
from nearpeak.prediction.calibration.source_spread import (
    ELSEWHERE,
    OTHER_FORMAT,
    by_half_of,
    of_few_boards,
    of_other_board,
    of_other_kernels,
    rate_moved,
    seen_elsewhere,
)
from nearpeak.prediction.calibration.user_files import label_of
from nearpeak.prediction.documented_target import at_documented_power, differing, figures_digest, stock_of
from nearpeak.prediction.kernel_model import CaseColumns, Form
from nearpeak.prediction.residual_correction import correction_of
from nearpeak.targets import TARGETS, shipped_target, target_of, user_folder

_FOLDER = Path(__file__).parents[1] / "coefficients"
PRIOR = "_prior_nvidia"
"""File of the scalars that fit all measured devices of the maker with the most of them."""
_RATES = ("tensor.bf16",)
"""Rate by which the size of multiprocessors is compared; absent in both where neither has such units."""
FAR_RATIO = (1.0, 1.5, 1.0, 2.0)
"""How much wider, in logarithms, the interval is by steps from the data.

That of all devices of a maker was measured by leaving each out; the others are assumptions, for lack of devices.
"""

_ALIKE_COUNT = 2
"""Groups that are a format's own or alike; the scalars of others are a step away, and their corrections do not hold."""
CORRECTED_DISTANCE = 1
"""Steps from the data up to which the correction of a form holds: libraries choose kernels by architecture."""
_GIVEN, _PART = "", "@"
"""Stem of the file that a call names; what stands for the colon before a part in names of files."""
TREES = ("correction", "scale")
"""What stands on top of the scalars of a group."""


def calibration_for(
    target: Target, form: Form, cases: CaseColumns, file: Path | None = None, *,
    corrected: bool = True, without: str = "",
) -> Calibration:  # fmt: skip
    """Return the scalars for `cases` on `target`: its own, its architecture's, or those of all devices.

    Args:
        file: coefficients of the user's own for this target, before all others; those answer for groups that it lacks.
        corrected: with the bounded correction, which no operator has that was not measured; the interval is wider
            without it.
        without: device whose scalars do not answer.

    Raises:
        SpecError: a coefficient file is malformed or belongs to another version of the form.
        NotModelledError: no file has scalars for the format.
    """
    if form.calibration is not None:
        if file is not None:
            raise SpecError(
                f"calibration {file}: the target {target.name} is predicted from probes of its own "
                "('nearpeak calibrate roofs'), not from coefficients; leave the file out"
            )
        return form.calibration(target, cases)
    groups, widened = form.groups(cases.op, cases.dtypes), partial(form.widening, cases.op)
    others = differing(target)
    given = {} if file is None else _given(file, target, form, groups)
    if others and file is None:  # what ships under its name was measured on another device; its own fits are its own
        file, given = _own_fits(target, form)
    figures = figures_digest(target) if given else ""
    target = at_documented_power(target)  # what an edited limit costs is a part of its own
    borrowed = any(widened(cell) != 1.0 for cell in form.regimes.values())
    corrected = corrected and not borrowed
    for group, stem, steps in _order(target, form, groups, cases.dtypes, given):
        if without and stem.partition(_PART)[0] == without:
            continue
        place, other = groups.index(group), form.is_by_format and is_other_format(groups[0], group)
        distance = max(steps, 1 if place >= _ALIKE_COUNT and not other else 0)
        trees = corrected and place < _ALIKE_COUNT
        found: Calibration | None
        if file is not None and stem == _GIVEN:
            distance = max(distance, int(given[group].get("figures", figures) != figures))
            found = _calibration(given[group], f"{label_of(file)}{form.name}.{group}", form, distance, trees)
        else:
            found = _stored(form.name, stem, group, distance, trees)
        if found is not None:
            found = _of_format(found, form, group) if other else found
            found = of_few_boards(found, form.name) if steps > 1 else found
            found = seen_elsewhere(found, ELSEWHERE) if steps > 1 and _is_alien(target, form) else found
            found = _blended(found, form, target, cases, group, without) if steps == 2 else found
            found = _kin(found, form, target, _device(stem), cases) if steps == 1 else found
            found = both_ways(found) if steps > 1 else found
            return replace(widened_by(found, widened), is_borrowed=borrowed, differing=others)
    raise NotModelledError(
        f"{target.name}: no coefficients for {cases.op} in {cases.dtypes['dtype']}; "
        "'nearpeak predict --calibration FILE' reads yours"
    )


def _of_format(found: Calibration, form: Form, group: str) -> Calibration:
    """Return scalars for a format that they were not fitted on: a step away at least, as sure as formats are alike."""
    values = form.reformatted(group, [one.value for one in found.coefficients])
    less_sure = seen_elsewhere(_with_values(found, values), OTHER_FORMAT + form.name)
    return replace(less_sure, distance_count=max(found.distance_count, 1))


def _order(
    target: Target, form: Form, groups: tuple[str, ...], dtypes: Mapping[str, str], given: Mapping[str, Any]
) -> Iterator[tuple[str, str, int]]:
    """Yield groups and the files to look for them in, with their steps from the data, in the order of preference."""
    alike = [one for one in groups[:_ALIKE_COUNT] if not (form.is_by_format and is_other_format(groups[0], one))]
    yield from ((group, _GIVEN, 0) for group in alike if group in given)
    for farthest in (2, 3):
        for group in groups:
            if group in given:
                yield group, _GIVEN, 0
            yield from ((group, stem, steps) for stem, steps in _sources(form, target, dtypes) if steps <= farthest)


def _sources(form: Form, target: Target, dtypes: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Yield the files to look into with their steps from the data, kin devices nearest first."""
    own = list(_own_stems(target))
    yield from own
    others = [stem for stem in _stems(form.name) if stem not in dict(own) and _akin(stem, target, form)]
    kin = [stem for stem in others if form.tells_of(_device(stem), target, dtypes)]
    yield from ((stem, 1) for stem in sorted(kin, key=lambda stem: _apart(form, target, _device(stem), dtypes)))
    yield f"_prior_{target.vendor.lower()}", 2
    yield PRIOR, 3


def _own_stems(target: Target) -> Iterator[tuple[str, int]]:
    """Yield the files of a target and of what it is a part or an edit of, with their steps from the data.

    What is not measured itself is a step away, also where only the user measured the whole; what only has the name of
    a device is as far as its figures make it.
    """
    if differing(target):
        return
    documented = target.name.partition("+")[0]
    device = documented.partition(":")[0]
    yield stem_of(target.name), 0
    if device in TARGETS:
        yield from ((stem, 1) for stem in dict.fromkeys((stem_of(documented), device)) if stem != stem_of(target.name))


def stem_of(name: str) -> str:
    """Return the stem of the file of a target's coefficients: parts have their own.

    >>> stem_of("h100_sxm:1g.10gb")
    'h100_sxm@1g.10gb'
    """
    return name.replace(":", _PART)


def _kin(found: Calibration, form: Form, target: Target, device: Target, cases: CaseColumns) -> Calibration:
    """Return the scalars of a device for another that runs its kernels, as sure as such boards are alike."""
    moved = _moved(found, form, target, device, cases)
    moved = by_half_of(moved, rate_moved(found, moved))
    if form.alien(target, device):
        return seen_elsewhere(moved, ELSEWHERE)
    is_same = stock_of(target).name == stock_of(device).name
    return moved if is_same else of_other_board(moved, form.name, target, device)


def _is_alien(target: Target, form: Form) -> bool:
    """Return whether most of the devices behind the scalars of all together are put together otherwise."""
    others = [form.alien(target, _device(stem)) for stem in _stems(form.name)]
    return 2 * sum(others) > len(others)


def _moved(found: Calibration, form: Form, target: Target, device: Target, cases: CaseColumns) -> Calibration:
    """Return the scalars of a device for another that runs its kernels."""
    if form.transfer is None:
        return found
    try:
        (values,) = form.transfer(
            target, cases.dtypes, [(device, [one.value for one in found.coefficients])], is_kin=True
        )
    except (NotModelledError, KeyError):
        return found
    return _with_values(found, values)


def _with_values(found: Calibration, values: Any) -> Calibration:
    return replace(
        found,
        coefficients=tuple(
            replace(one, value=float(value)) for one, value in zip(found.coefficients, values, strict=True)
        ),
    )


def _blended(
    prior: Calibration, form: Form, target: Target, cases: CaseColumns, group: str, without: str
) -> Calibration:
    """Return the scalars for a device without data, from the measured devices of its maker; the rest is the prior's."""
    if form.size is None:
        return prior
    measured = []
    is_other = form.is_by_format and is_other_format(form.groups(cases.op, cases.dtypes)[0], group)
    for stem in (one for one in _stems(form.name) if one != without):
        found = _stored(form.name, stem, group, 0, False) if _device(stem).vendor == target.vendor else None
        if found is not None and not form.tells_of(_device(stem), target, cases.dtypes):
            prior = of_other_kernels(prior, form.name) if _akin(stem, target, form) else prior
        elif found is not None:
            alone, usual = _alone(form.name, stem, group), {one.name: one.value for one in prior.coefficients}
            values = [usual[one.name] if one.name in alone else one.value for one in found.coefficients]
            measured.append((_device(stem), form.reformatted(group, values) if is_other else values))
    if not measured:
        return prior
    try:
        values = kin_values(form, target, cases.dtypes, measured)
    except (NotModelledError, ValueError, KeyError):
        return prior
    return _with_values(prior, values)


def _alone(form: str, stem: str, group: str) -> Sequence[str]:
    """Return the scalars of a device that tell about no other one, as other libraries were measured on it."""
    found: Sequence[str] = _groups(_FOLDER / form / f"{stem}.toml").get(f"{form}.{group}", {}).get("alone", ())
    return found


@lru_cache
def _stored(form: str, stem: str, group: str, distance: int, corrected: bool) -> Calibration | None:
    """Return a group of the user's own file of a device, or else of the one that ships; none where both lack it."""
    from nearpeak.prediction import FORMS

    for path in (user_folder() / "coefficients" / f"{stem}.toml", _FOLDER / form / f"{stem}.toml"):
        entry = _groups(path).get(f"{form}.{group}")
        if entry is not None:
            _refuse_other(entry, f"{path.stem} {form}.{group}", stem.replace(_PART, ":"))
        if entry is not None and _is_of(entry, stem):
            return _calibration(entry, f"{stem} {form}.{group}", FORMS[form], distance, corrected)
    return None


def device_calibrations(form: Form, group: str) -> tuple[Calibration, ...]:
    """Return the scalars of a group on every device that has its own."""
    found = [_stored(form.name, stem, group, 0, False) for stem in _stems(form.name)]
    return tuple(one for one in found if one is not None)


@lru_cache
def _groups(path: Path) -> Mapping[str, Any]:
    """Return the groups of a file by name; none where there is no file."""
    found: Mapping[str, Any] = read_coefficients(path)["groups"] if path.exists() else {}
    return found


@lru_cache
def _stems(form: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_FOLDER / form).glob("*.toml") if not path.stem.startswith("_")))


def _akin(stem: str, target: Target, form: Form) -> bool:
    """Return whether a device has the architecture of `target`, and multiprocessors of about its size.

    Workstation and data-centre parts share names of architectures, not matrix units.
    """
    other = _device(stem)
    if form.kin is not None:
        return form.kin(target, other)
    if other.architecture != target.architecture:
        return False
    rates = [one.peaks[unit].flop_per_clock for one in (other, target) for unit in _RATES if unit in one.peaks]
    return max(rates) <= 2 * min(rates) if len(rates) == 2 else len(rates) == 0


def _apart(form: Form, target: Target, other: Target, dtypes: Mapping[str, str]) -> tuple[float, float]:
    """Return in octaves how far devices are in what the form goes by, then in their number of multiprocessors."""
    count = abs(math.log2(other.sm_count / target.sm_count)) if other.sm_count and target.sm_count else math.inf
    if form.size is None:
        return 0.0, count
    try:
        return abs(form.size(other, dtypes) - form.size(target, dtypes)), count
    except (NotModelledError, ValueError, KeyError):
        return math.inf, count


@lru_cache
def _device(stem: str) -> Target:
    """Return the device that data of a file were measured on: one that ships, whatever the user calls the same."""
    name = stem.replace(_PART, ":")
    return shipped_target(name) if name.partition(":")[0] in TARGETS else target_of(name)


def _is_of(entry: Any, stem: str) -> bool:
    """Return whether a group is not of another device that the user gave the same name."""
    of = entry.get("figures") if isinstance(entry, dict) else None
    return of is None or stem.partition(_PART)[0] not in TARGETS or of == figures_digest(_device(stem))


def _own_fits(target: Target, form: Form) -> tuple[Path, Mapping[str, Any]]:
    """Return the user's own file of a target that only has the name of a device, and its groups of these figures."""
    path, figures = user_folder() / "coefficients" / f"{stem_of(target.name)}.toml", figures_digest(target)
    start = f"{form.name}."
    found = {name.removeprefix(start): entry for name, entry in _groups(path).items() if name.startswith(start)}
    return path, {n: one for n, one in found.items() if isinstance(one, dict) and one.get("figures") == figures}


def read_coefficients(path: Path) -> Mapping[str, Any]:
    """Return the content of a coefficient file, whose `groups` are checked when they are used."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"calibration {path}: not found") from None
    except ValueError as error:
        raise SpecError(f"calibration {path}: not TOML: {error}") from None
    except RecursionError:
        raise SpecError(f"calibration {path}: nests too deeply; [groups] of tables is right") from None
    except OSError as error:
        raise SpecError(f"calibration {path}: {error.strerror or error}; a coefficient file is right") from None
    if not isinstance(data.get("groups"), dict):
        raise SpecError(f"calibration {path}: has no table [groups]; see docs/guide/prediction.md")
    return data


def _given(file: Path, target: Target, form: Form, groups: tuple[str, ...]) -> Mapping[str, Any]:
    """Return those of `groups` that a file holds, refused where it states that they are of another device."""
    data, documented = read_coefficients(file)["groups"], target.name.partition("+")[0]
    found = {group: data[f"{form.name}.{group}"] for group in groups if f"{form.name}.{group}" in data}
    for group, entry in found.items():
        if not isinstance(entry, dict):
            raise SpecError(f"calibration {file.stem} {form.name}.{group}: is {entry!r}; a table is right, fit again")
        _refuse_other(entry, f"{file.stem} {form.name}.{group}", documented)
    return found


def _refuse_other(entry: Any, name: str, documented: str) -> None:
    """Refuse a group that states that it is of another device; one of the whole device answers for its parts."""
    of = entry.get("device", documented) if isinstance(entry, dict) else documented
    if of not in (documented, documented.partition(":")[0]):
        raise SpecError(f"calibration {name}: was fitted on {of}, not on {documented}")


def calibration_of_group(entry: Mapping[str, Any], name: str, form: Form, wide: float) -> Calibration:
    """Return one group of a file, checked, with its interval `wide` times as wide in logarithms."""
    found = _calibration(entry, name, form, 0, True)
    return replace(widened_by(found, lambda _cell: wide), distance_count=int(wide > 1))


def _calibration(entry: Mapping[str, Any], name: str, form: Form, distance: int, corrected: bool) -> Calibration:
    """Return one group of a file, checked."""
    if not isinstance(entry, dict) or entry.get("version") != form.version:
        found = entry.get("version") if isinstance(entry, dict) else entry
        raise SpecError(f"calibration {name}: is for {found!r}; this is {form.version!r}, fit again")
    check_entry(entry, name, frozenset(form.regimes.values()))
    values, loose = entry["scalars"], entry.get("unidentified", ())
    wrong = sorted({scalar.name for scalar in form.scalars} ^ set(values))
    if wrong:
        raise SpecError(f"calibration {name}: scalars differ from those of the form: {', '.join(wrong)}")
    for scalar in form.scalars:
        given, low, high = values[scalar.name], scalar.low_value, scalar.high_value
        if not isinstance(given, (int, float)) or not low <= given <= high:
            raise SpecError(f"calibration {name}: {scalar.name} is {given}; {low} to {high} is right")
    wide = FAR_RATIO[distance]
    trees = TREES if corrected and distance <= CORRECTED_DISTANCE else ()
    refined = {kind: _trees(entry, name, kind) for kind in trees}
    is_plain = "plain_interval" in entry and not any(refined.values())
    interval = entry["plain_interval" if is_plain else "interval"]
    return Calibration(
        name=name,
        coefficients=tuple(
            Coefficient(
                name=s.name, value=values[s.name], low_value=s.low_value, high_value=s.high_value,
                identified=s.name not in loose,
            )
            for s in form.scalars
        ),
        low_ratio={regime: low**wide for regime, (low, _) in interval.items()},
        high_ratio={regime: high**wide for regime, (_, high) in interval.items()},
        row_count=entry["row_count"], source=entry["source"], version=form.version, distance_count=distance,
        correction=refined.get("correction"), scale=refined.get("scale"),
    )  # fmt: skip


def _trees(entry: Mapping[str, Any], name: str, kind: str) -> Correction | None:
    """Return the trees of one kind of a group, checked."""
    if kind not in entry:
        return None
    try:
        return correction_of(entry[kind])
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"calibration {name}: {kind}: {error}; fit again") from None
