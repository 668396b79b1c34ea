"""Predictions of single cases by scripts: what one case of a group does to its axes is done to those of the next."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearpeak.core.case import Case
from nearpeak.core.kind import Kind
from nearpeak.core.prediction import Prediction
from nearpeak.core.same import Same
from nearpeak.core.target import Target
from nearpeak.ops import OPS
from nearpeak.predict._case import predicted
from nearpeak.predict._form import CaseColumns, Setting, case_columns
from nearpeak.predict._script import Placeholder, Script, called

_WORTH_COUNT = 24
"""Cases by the formulas that take as long as writing a script: a step on many devices never needs most of them."""
_MOST_SCRIPTS = 24
"""Scripts of a group, each for other outcomes of what is decided on the way."""


class Group:
    """Scripts of the cases of an operator and its phase, formats and choices on one target, in one setting."""

    __slots__ = ("formula_count", "is_refused", "scripts")

    def __init__(self) -> None:
        self.scripts: list[Callable[..., Any]] = []  # each gives nothing of the axes of cases that it does not hold for
        self.formula_count = 0  # cases that no script answered for
        self.is_refused = False  # whether something is done to the axes that cannot be written down

    def found(self, axes: tuple[tuple[str, int], ...]) -> Any:
        """Return what the script of a case with these axes gives; nothing where there is none."""
        for script in self.scripts:
            try:
                found = script(axes)
            except (ArithmeticError, ValueError):  # the formulas say what is wrong, or that nothing is
                return None
            if found is not None:
                return found
        return None

    def extend(self, columns: CaseColumns, formulas: Callable[[CaseColumns], Any], worth_count: int) -> None:
        """Add the script of a case, where enough cases showed that there are more to come.

        Args:
            formulas: give what stands for a figure or for several in one, of columns of numbers of a script.
            worth_count: cases by the formulas that take as long as writing a script.
        """
        self.formula_count += 1
        is_full = self.is_refused or len(self.scripts) == _MOST_SCRIPTS
        if is_full or self.formula_count % worth_count or not columns.axes:
            return
        script = Script()
        try:
            found: Any = formulas(replace(columns, axes=_axes(script, columns)))
        except (TypeError, ValueError, AttributeError):  # arrays and the like, which placeholders are not
            found = None
        self.is_refused = not isinstance(found, Placeholder)
        if self.is_refused:
            return
        self.scripts.append(script.function([*map(_argument, columns.axes)], found, tuple(columns.axes)))


class Scripts:
    """Those of one target and setting; equal to itself alone, so that caches find it at once."""

    __slots__ = ("groups", "kept_count", "path", "setting", "step_groups", "target")

    def __init__(self, target: Target, setting: Setting) -> None:
        self.target, self.setting = target, setting
        self.groups = defaultdict[tuple[Any, ...], Group](Group)  # of predictions
        self.step_groups = defaultdict[Kind, Group](Group)  # of what steps need of their cases
        self.path: Path | None = None  # where later processes find them
        self.kept_count = -1  # scripts of steps that later processes have; less than none where nobody looked yet


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
    found: Prediction | None = group.found(case.axes)
    if found is not None:
        return found
    columns = case_columns(case)
    prediction = predicted(columns, scripts.target, scripts.setting)
    group.extend(columns, lambda some: _scripted(some, scripts), _WORTH_COUNT)
    return prediction


def _scripted(columns: CaseColumns, scripts: Scripts) -> Any:
    """Return what stands for the prediction of a case whose axes are numbers of a script."""
    found = predicted(columns, scripts.target, scripts.setting)
    return called(Prediction, **{one.name: getattr(found, one.name) for one in fields(found)})


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
