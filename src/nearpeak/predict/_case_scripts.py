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


@dataclass(slots=True, kw_only=True)
class _Group:
    """Scripts of the cases of an operator and its phase, formats and choices on one target, in one setting."""

    scripts: list[Callable[..., Prediction | None]] = field(default_factory=list)
    """Each gives the prediction by the axes of a case that it holds for, and nothing of others."""
    formula_count: int = 0
    """Cases that no script answered for."""
    is_refused: bool = False
    """Whether something is done to the axes that cannot be written down."""


class Scripts:
    """Those of one target and setting; equal to itself alone, so that caches find it at once."""

    __slots__ = ("groups", "setting", "target")

    def __init__(self, target: Target, setting: Setting) -> None:
        self.target, self.setting = target, setting
        self.groups = defaultdict[tuple[Any, ...], _Group](_Group)


_latest: list[Scripts | None] = [None]
"""Those that were asked for last, which are mostly the next ones too: hashing a target and a setting takes longer."""


def scripts_of(target: Target, setting: Setting) -> Scripts:
    """Return the scripts of a target and a setting: one object for all."""
    scripts = _latest[0]
    if scripts is None or scripts.target is not target or scripts.setting is not setting:
        scripts = _latest[0] = _scripts(Same(target), setting)
    return scripts


@lru_cache(maxsize=256)
def _scripts(same: "Same[Target]", setting: Setting) -> Scripts:
    return Scripts(same.held, setting)


def predicted_by_script(case: Case, scripts: Scripts) -> Prediction:
    """Return the prediction of one case.

    Raises:
        NotModelledError: no form answers, or the device states too little.
    """
    group = scripts.groups[case.op, case.phase, case.dtypes, case.attributes]
    for script in group.scripts:
        try:
            found = script(case.axes)
        except (ArithmeticError, ValueError):  # the formulas say what is wrong, or that nothing is
            break
        if found is not None:
            return found
    columns = case_columns(case)
    prediction: Prediction = predicted(columns, scripts.target, scripts.setting)
    _extend(group, columns, scripts)
    return prediction


def _extend(group: _Group, columns: CaseColumns, scripts: Scripts) -> None:
    """Add the script of a case to its group, where enough cases showed that there are more to come."""
    group.formula_count += 1
    is_full = group.is_refused or len(group.scripts) == _MOST_SCRIPTS
    if is_full or group.formula_count % _WORTH_COUNT or not columns.axes:
        return
    script = Script()
    try:
        found = predicted(replace(columns, axes=_axes(script, columns)), scripts.target, scripts.setting)
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
