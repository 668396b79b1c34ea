"""What a form is: how the time of one family of operators follows from a device's figures and a few named scalars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from math import inf
from operator import add
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One scalar of a form: its range, its usual value, and which measurements pin it down."""

    name: str
    """Name in coefficient files; the suffix is the unit."""
    low_value: float
    """Least value that makes sense."""
    high_value: float
    """Largest value that makes sense."""
    usual_value: float
    """Value from which fits start."""
    text: str
    """What it stands for."""
    pinned_by: str
    """Measurements that identify it."""


def scalars(*rows: tuple[str, float, float, float, str, str]) -> tuple[Scalar, ...]:
    """Return the scalars of a table with the columns name, least, largest and usual value, meaning, measurements."""
    return tuple(
        Scalar(name=name, low_value=low, high_value=high, usual_value=usual, text=text, pinned_by=pinned_by)
        for name, low, high, usual, text, pinned_by in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How the kernel that is predicted runs, where it matters and the case does not say."""

    weight_copies_count: int = 5
    """Copies of B that follow one another before one is used again, as layers do; 1 keeps it in cache."""
    quantises_input: bool = False
    """Whether A arrives in bf16 and is quantised by a kernel of its own first."""
    host_timed: bool = False
    """Whether the time is seen from the host, which submits one kernel and waits, so that launching it counts."""
    is_alone: bool = False
    """Whether the device rests before the kernel, as while a library tries its kernels one by one: boards whose clock
    is low at rest then run short kernels before it has risen. Kernels of a step follow one another.
    """
    expert_matrices_count: int = 1
    """Matrices of an expert, side by side along n, that a whole layer multiplies by: 3 with a gate, 2 without.

    1 stands for a grouped product alone.
    """
    layer_tokens_count: Any = 0
    """Tokens of a whole layer before they are spread over devices, one number or a column; 0 stands for m."""
    layer_rows_count: Any = 0
    """Rows of a whole layer before they are spread over devices, its tokens times the experts of each; 0 stands for m.

    Some libraries work on all rows of the tokens that reach a device, those of other devices' experts included.
    """
    unpacks_weights: bool = False
    """Whether weights of few bits became as wide as tokens while loading, as libraries do that have no kernel for them.
    """
    load_exponent_ratio: float = 0.0
    """Exponent of the power law by which rows spread over groups; 0 spreads them evenly."""
    measured_by: str = ""
    """Who takes the measurements that the time is for, where not who took those behind the scalars: see `spread`.

    The interval is then that of other software and other ways of timing.
    """
    leaves_out: str = ""
    """Device whose own scalars do not answer, as if nobody had measured it: what tells how far those of others are."""
    is_corrected: bool = True
    """Whether the bounded correction of the scalars, where they have one, is part of the time: the term `library`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Predicted cases of one group as columns; or one case, as numbers."""

    time_s: Any
    """Expected times."""
    parts_s: Any
    """Parts of each time, one column per term of the form; a list of numbers for one case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseColumns:
    """Cases of one operator, phase and set of formats, their axes as columns."""

    op: str
    """Operator."""
    phase: str
    """Phase: `forward`, `backward` and the like."""
    dtypes: Mapping[str, str]
    """Formats by the name of their column."""
    axes: Mapping[str, Any]
    """Axes: arrays of one length, or one value for all rows."""
    attributes: Mapping[str, str | bool] = field(default_factory=dict)
    """Choices, such as causal."""


def case_columns(case: Case) -> CaseColumns:
    """Return one case as forms read it."""
    return CaseColumns(
        op=case.op, phase=case.phase, dtypes=dict(case.dtypes), axes=dict(case.axes), attributes=dict(case.attributes)
    )


def extents(cases: CaseColumns, names: Sequence[str]) -> Any:
    """Return axes as columns of floats, one row each; 1 for those that the cases do not have.

    >>> one = CaseColumns(op="gemm", phase="forward", dtypes={}, axes={"m": 2, "n": 3})
    >>> extents(one, ("m", "n", "batch")).tolist()
    [[2.0], [3.0], [1.0]]
    """
    given = [cases.axes.get(name, 1) for name in names]
    if all(isinstance(one, int) for one in given):
        return np.array(given, dtype=np.float64)[:, None]
    found = np.empty((len(names), *np.broadcast_shapes((1,), *map(np.shape, given))))
    for place, one in enumerate(given):
        found[place] = one
    return found


def usual_columns(_target: Target, cases: CaseColumns, _setting: "Setting") -> dict[str, Any]:
    """Return extents, and 1 for what was chosen."""
    choices = {"op": cases.op, "phase": cases.phase, **cases.dtypes, **cases.attributes}
    return {**cases.axes, **{f"{name}={value}": 1.0 for name, value in choices.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A family of operators that one formula predicts."""

    name: str
    """Family, the first word of groups in coefficient files."""
    ops: tuple[str, ...]
    """Operators it answers for."""
    version: str
    """Raised whenever the same scalars would give another time."""
    scalars: tuple[Scalar, ...]
    """The scalars, in the order of coefficient arrays."""
    terms: tuple[str, ...]
    """Names of the parts of a time."""
    regimes: Mapping[str, str]
    """Regime of the interval by the largest part."""
    bundles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts of one regime that corrections and the choice of the regime know as one, by its name."""
    groups: Callable[[str, Mapping[str, str]], tuple[str, ...]]
    """Groups of coefficients that fit an operator and its formats, best first; each holds all scalars of the form."""
    rows: Callable[[Target, CaseColumns, Any, Setting], Rows]
    """Rule: target, cases, scalars and setting to times."""
    row: Callable[[Target, CaseColumns, Any, Setting], Rows] | None = None
    """The same rule of one case, whose axes are numbers, without an array for each; none: by a column of one row."""
    is_by_format: bool = False
    """Whether groups are formats: kernels of another one are other kernels."""
    grid: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Extents by axis whose combinations are the candidates of `calibrate plan`; none: there is no plan."""
    grids: Mapping[str, Mapping[str, tuple[int | str, ...]]] = field(default_factory=dict)
    """The same by operator, where operators of a form have different axes and choices."""
    kin: Callable[[Target, Target], bool] | None = None
    """Whether scalars of one device serve another; none: those of its architecture and of about its size do."""
    reformatted: Callable[[str, Sequence[float]], Sequence[float]] = lambda _group, values: values
    """Scalars of a group as a format that belongs to another one would have them: `(group, values)`."""
    tells_of: Callable[[Target, Target, Mapping[str, str]], bool] = lambda _device, _target, _dtypes: True
    """Whether kernels that were measured on a device in some formats may run on another target."""
    phases: tuple[str, ...] = ("forward",)
    """Phases of the operators that it answers for."""
    size: Callable[[Target, Mapping[str, str]], float] | None = None
    """Binary logarithm of what the scalars of devices without data are weighted by; none: all devices alike."""
    transfer: Callable[..., Sequence[Any]] | None = None
    """Scalars of measured devices as another would have them: `(target, dtypes, measured, is_kin=…)`; none: as is."""
    corrected_by: Callable[[Target, CaseColumns, Setting], Mapping[str, Any]] = usual_columns
    """What the bounded correction looks at by name, time and parts aside."""
    kernels: Callable[[CaseColumns], tuple[CaseColumns, ...]] = lambda cases: (cases,)
    """Cases that follow one another and are corrected each on its own."""
    kind: Callable[[Mapping[str, str | bool]], str] = lambda _: ""
    """By which choice cases that share scalars have intervals of their own, such as an element-wise function."""
    widening: Callable[[str, str], float] = lambda _op, _cell: 1.0
    """How much wider, in logarithms, a cell of the interval is for an operator that the measurements were not of."""
    alien: Callable[[Target, Target], bool] = lambda _target, _other: False
    """Whether scalars of a kin device belong to hardware that is put together otherwise: as if another measured it."""
    admits_any: Callable[[CaseColumns], Any] = lambda _: False
    """Which cases libraries run by algorithms with fewer products than the definition, such as Winograd's: what no
    classical algorithm can beat does not bound their time.
    """
    stated: Callable[[CaseColumns, Setting], CaseColumns] = lambda cases, _: cases
    """Cases with what they leave open as it is expected to be, such as the groups that rows reach."""
    left_open: Callable[[CaseColumns, Setting], tuple[Any, tuple[tuple[CaseColumns, Setting], ...]]] = (
        lambda _cases, _setting: (False, ())
    )
    """Which cases leave that open, and all of them as far to either side as the interval is to hold."""
    open_note: str = ""
    """What is said of such cases."""
    beyond: Callable[[Target, CaseColumns], tuple[Any, Any] | None] = lambda _target, _cases: None
    """By how much, in logarithms, cases are faster and slower for lying beyond what was measured; none: none does."""
    beyond_note: str = ""
    """What is said of cases that do."""
    is_fallback: bool = False
    """Whether forms made for an operator come before this one."""
    lacks: Callable[[Mapping[str, str], Mapping[str, str | bool]], str] = lambda _dtypes, _attributes: ""
    """What of these formats and choices it does not model, so that the fallback answers; empty where it does."""
    calibration: Callable[[Target, CaseColumns], Calibration] | None = None
    """Gives the grounds of cases where they are not scalars of a coefficient file."""


def one_after_another(each: Sequence[Rows]) -> Rows:
    """Return the times of kernels that follow one another."""
    if len(each) == 1:
        return each[0]
    times, parts = [one.time_s for one in each], [one.parts_s for one in each]
    whole = [reduce(add, its) for its in zip(*parts, strict=True)] if isinstance(parts[0], list) else reduce(add, parts)
    return Rows(time_s=reduce(add, times), parts_s=whole)


def row_of(form: Form, target: Target, cases: CaseColumns, scalars: Any, setting: Setting) -> Rows:
    """Return the time of one case and its parts, as numbers."""
    if form.row is not None:
        return form.row(target, cases, scalars, setting)
    rows = form.rows(target, cases, scalars, setting)
    return Rows(time_s=float(rows.time_s[0]), parts_s=rows.parts_s[0].tolist())


def leading_of_one(form: Form, parts_s: Sequence[Any]) -> Any:
    """Return the place of a part whose regime one case belongs to, as `leading` does."""
    return _leading(_bundled(Same(form)), parts_s)


@lru_cache(maxsize=64)
def _bundled(form: "Same[Form]") -> tuple[tuple[int, ...], ...]:
    """Return the places of the parts of each bundle."""
    return tuple(tuple(map(form.held.terms.index, names)) for names in form.held.bundles.values())


def _leading(bundles: tuple[tuple[int, ...], ...], parts_s: Sequence[float]) -> int:
    joined = list(parts_s)
    for places in bundles:
        whole = sum([parts_s[place] for place in places])
        for place in places:
            joined[place] = -inf
        joined[places[0]] = whole
    return joined.index(max(joined))


def leading(form: Form, parts_s: Any) -> Any:
    """Return the place of a part whose regime each row belongs to: the largest, or one of the largest bundle."""
    if not form.bundles:
        return np.argmax(parts_s, axis=1)
    joined = np.array(parts_s)
    for names in form.bundles.values():
        places = [form.terms.index(name) for name in names]
        whole = joined[:, places].sum(1)
        joined[:, places] = -np.inf
        joined[:, places[0]] = whole
    return np.argmax(joined, axis=1)


USUAL = Setting()
"""Weights beyond the cache, input as the case has it."""
