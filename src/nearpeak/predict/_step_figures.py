"""What a step needs of each of its cases: times, and the bytes and bounds that its calls are held to."""

from dataclasses import replace
from functools import lru_cache
from math import nan
from typing import Any, NamedTuple

from nearpeak.core.case import Case
from nearpeak.core.distinct import DistinctRows
from nearpeak.core.kind import kind_of
from nearpeak.core.prediction import Prediction
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.ops import OPS
from nearpeak.predict._case import predicted
from nearpeak.predict._case_scripts import Scripts
from nearpeak.predict._form import CaseColumns, case_columns
from nearpeak.predict._grounds import CLASSICAL, FARTHEST
from nearpeak.predict._script import called, together
from nearpeak.predict._work_columns import fixed_of
from nearpeak.predict.prediction import predict_case
from nearpeak.theory.terms import proved_s

_WORTH_COUNT = 1
"""Cases by the formulas after which a script is written: a step of one kind is followed by others."""


class StepFigures(NamedTuple):
    """What a step needs of one of its cases."""

    time_s: float
    """Expected time; not a number where `reason` says why there is none."""
    low_s: float
    """Low end of its 90 % interval."""
    high_s: float
    """High end of its 90 % interval."""
    distance_count: int
    """Steps from the data of its scalars."""
    read_bytes: int
    """Distinct bytes read."""
    write_bytes: int
    """Distinct bytes written."""
    bound_s: float
    """Time that no classical algorithm can beat."""
    other_s: float
    """The same of its arithmetic and its traffic with other devices alone: whatever bytes a call touches."""
    reason: str = ""
    """Why it has no prediction; empty where it has one."""


def step_figures(step: DistinctRows, scripts: Scripts) -> list[StepFigures]:
    """Return what a step needs of each of its cases, those of a kind one after the other.

    Raises:
        NotModelledError: the device states too little for the bound of one.
    """
    found: list[Any] = [None] * len(step.cases)
    for kind, places in step.kinds:
        group = scripts.step_groups[kind]
        for place in places:
            case = step.cases[place]
            found[place] = group.found(case.axes) or _by_formulas(case, scripts)
    return found


@lru_cache(maxsize=1 << 14)
def _by_formulas(case: Case, scripts: Scripts) -> StepFigures:
    columns = case_columns(case)
    try:
        prediction = predict_case(case, scripts.target, scripts.setting)
    except NotModelledError as error:
        return StepFigures._make((nan, nan, nan, FARTHEST, *_of_work(columns, scripts.target), str(error)))
    group = scripts.step_groups[kind_of(case)]
    group.extend(columns, lambda some: _scripted(some, scripts), _WORTH_COUNT)
    return StepFigures._make(_figures(columns, prediction, scripts.target))


def _scripted(columns: CaseColumns, scripts: Scripts) -> Any:
    """Return what stands for the figures of a case whose axes are numbers of a script."""
    prediction = predicted(columns, scripts.target, scripts.setting)
    return called(StepFigures._make, together(_figures(columns, prediction, scripts.target)))


def _figures(columns: CaseColumns, prediction: Prediction, target: Target) -> tuple[Any, ...]:
    """Return the figures in their order."""
    times_s = prediction.time_s, prediction.low_s, prediction.high_s
    return (*times_s, prediction.distance_count, *_of_work(columns, target), "")


def _of_work(columns: CaseColumns, target: Target) -> tuple[Any, ...]:
    """Return the figures that follow from the work of a case."""
    work = OPS[columns.op].work(columns.phase, "classical", {**columns.axes, **fixed_of(columns)})
    other = replace(work, read_bytes=0, write_bytes=0, contraction=None, barrier=None)
    bounds_s = (proved_s(one, target, CLASSICAL) for one in (work, other))
    return (work.read_bytes, work.write_bytes, *bounds_s)
