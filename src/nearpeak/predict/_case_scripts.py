"""Predictions of single cases by scripts: what one case of a group does to its axes is done to those of the next."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from nearpeak.core.case import Case
from nearpeak.core.prediction import Prediction
from nearpeak.core.same import Same
from nearpeak.core.target import Target
from nearpeak.ops import OPS
from nearpeak.predict._case import predicted
from nearpeak.predict._form import CaseColumns, Setting, case_columns
from nearpeak.predict._script import Script

_WORTH_COUNT = 24
"""Cases by the formulas that take as long as writing a script: a step on many devices never needs most of them."""
_MOST_SCRIPTS = 24
"""Scripts of a group, each for other outcomes of what is decided on the way."""


@dataclass(slots=True)
class _Group:
    """Scripts of the cases of an operator and its phase, formats and choices at one place."""

    scripts: list[Callable[..., Prediction | None]] = field(default_factory=list)
    """Each gives the prediction by the axes of a case that it holds for, and nothing of others."""
    formula_count: int = 0
    """Cases that no script answered for."""
    is_refused: bool = False
    """Whether something is done to the axes that cannot be written down."""


class Place:
    """Where cases are predicted, a target and a setting, with the scripts for it; equal to itself alone."""

    __slots__ = ("groups", "setting", "target")

    def __init__(self, target: Target, setting: Setting) -> None:
        self.target, self.setting = target, setting
        self.groups = defaultdict[tuple[Any, ...], _Group](_Group)


@lru_cache(maxsize=256)
def place_of(same: "Same[Target]", setting: Setting) -> Place:
    """Return the place of a target and a setting: one object for all."""
    return Place(same.held, setting)


def predicted_by_script(case: Case, place: Place) -> Prediction:
    """Return the prediction of one case.

    Raises:
        NotModelledError: no form answers, or the device states too little.
    """
    group = place.groups[case.op, case.phase, case.dtypes, case.attributes]
    for script in group.scripts:
        try:
            found = script(case.axes)
        except (ArithmeticError, ValueError):  # the formulas say what is wrong, or that nothing is
            break
        if found is not None:
            return found
    columns = case_columns(case)
    prediction: Prediction = predicted(columns, place.target, place.setting)
    _extend(group, columns, place)
    return prediction


def _extend(group: _Group, columns: CaseColumns, place: Place) -> None:
    """Add the script of a case to its group, where enough cases showed that there are more to come."""
    group.formula_count += 1
    is_full = group.is_refused or len(group.scripts) == _MOST_SCRIPTS
    if is_full or group.formula_count % _WORTH_COUNT or not columns.axes:
        return
    script = Script()
    try:
        found = predicted(replace(columns, axes=_axes(script, columns)), place.target, place.setting)
    except (TypeError, ValueError, AttributeError):  # arrays and the like, which placeholders are not
        group.is_refused = True
        return
    group.scripts.append(script.function([*map(_argument, columns.axes)], found, tuple(columns.axes)))


def _axes(script: Script, columns: CaseColumns) -> dict[str, Any]:
    """Return what stands for each axis; those at their default are numbers, for which alone the script then holds."""
    signature, axes = OPS[columns.op].signatures[columns.phase], dict[str, Any]()
    for name, extent in columns.axes.items():
        other = signature.same.get(name)
        if extent == signature.defaults.get(name):
            axes[name] = script.alike(_argument(name), extent)
        elif other in axes and extent == columns.axes[other]:
            axes[name] = script.alike(_argument(name), axes[other])
        else:
            axes[name] = script.argument(_argument(name), extent)
    return axes


def _argument(axis: str) -> str:
    return f"a_{axis}"
