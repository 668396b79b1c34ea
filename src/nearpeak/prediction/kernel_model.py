"""Interface of kernel models: the time of an operator family from device figures and named coefficients."""

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
class CoefficientRange:
    """One coefficient of a model: its range, usual value, and the measurements that identify it."""

    name: str
    """Name in coefficient files; the suffix is the unit."""
    low_value: float
    """Least value that makes sense."""
    high_value: float
    """Largest value that makes sense."""
    usual_value: float
    """Value from which fits start."""
    text: str
    """Meaning."""
    pinned_by: str
    """Measurements that identify it."""


def coefficient_ranges(*rows: tuple[str, float, float, float, str, str]) -> tuple[CoefficientRange, ...]:
    """Return coefficients by name, least, largest and usual value, meaning, and identifying measurements."""
    return tuple(
        CoefficientRange(name=name, low_value=low, high_value=high, usual_value=usual, text=text, pinned_by=pinned_by)
        for name, low, high, usual, text, pinned_by in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Conditions of the predicted kernel that its case does not state."""

    weight_copies_count: int = 5
    """Copies of B that follow one another before one is used again, as layers do; 1 keeps it in cache."""
    quantises_input: bool = False
    """Whether A arrives in bf16 and a separate kernel quantises it first."""
    host_timed: bool = False
    """Whether the time is seen from the host, which submits one kernel and waits, so that launching it counts."""
    is_alone: bool = False
    """Whether the device rests before the kernel, as while a library tries its kernels one by one: boards whose clock
    is low at rest then run short kernels before it has risen. Kernels of a step follow one another.
    """
    expert_matrices_count: int = 1
    """Matrices of an expert, side by side along n, that a whole layer multiplies by: 3 with a gate, 2 without.

    1: a single grouped product.
    """
    layer_tokens_count: Any = 0
    """Tokens of a whole layer before they are spread over devices, a number or a column; 0 means m."""
    layer_rows_count: Any = 0
    """Rows of a whole layer before they are spread over devices, its tokens times the experts of each; 0 means m.

    Some libraries work on all rows of the tokens that reach a device, those of other devices' experts included.
    """
    unpacks_weights: bool = False
    """Whether weights of few bits became as wide as tokens while loading, as libraries do that have no kernel for them.
    """
    load_exponent_ratio: float = 0.0
    """Exponent of the power law by which rows spread over groups; 0 spreads them evenly."""
    measured_by: str = ""
    """Source of the measurements to be predicted where it differs from that of the coefficients; widens intervals."""
    excluded_device: str = ""
    """Device whose own coefficients are not used, as if it had not been measured (leave-one-out)."""
    is_corrected: bool = True
    """Whether the bounded correction, where the coefficients have one, is part of the time: the term `library`."""
    is_sustained: bool | None = None
    """Whether work like this goes on for seconds, so that the clock is the one that the board's power sustains over the
    mix: of a step all its calls, of a case itself. None: as usual, yes for steps, no for cases and tables of them.
    """
    software: str = ""
    """Serving framework whose kernels run, of `software_ratio.SOFTWARE`; empty: the best of all measured, by case."""
    software_or_best: bool = False
    """Whether the best of all stands in where the framework has no data, as in steps."""
    is_eager: bool = False
    """Whether PyTorch runs the calls one by one as they are written; `software` of `pytorch` says so, too."""
    engine: str = ""
    """Inference engine that builds the kernels, where boards have a model of it: `tensorrt`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Predicted cases of one group as columns; or one case, as numbers."""

    time_s: Any
    """Expected times."""
    parts_s: Any
    """Parts of each time, one column per term of the model; a list of numbers for one case."""


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
    """Return one case as models read it."""
    return CaseColumns(
        op=case.op, phase=case.phase, dtypes=dict(case.dtypes), axes=dict(case.axes), attributes=dict(case.attributes)
    )


def extents(cases: CaseColumns, names: Sequence[str]) -> Any:
    """Return axes as columns of floats, one row each; 1 for those that the cases do not have.

    >>> one = CaseColumns(op="gemm", phase="forward", dtypes={}, axes={"m": 2, "n": 3})
    >>> extents(one, ("m", "n", "batch")).tolist()
    [[2.0], [3.0], [1.0]]
    """
    values = [cases.axes.get(name, 1) for name in names]
    if all(isinstance(value, int) for value in values):
        return np.array(values, dtype=np.float64)[:, None]
    columns = np.empty((len(names), *np.broadcast_shapes((1,), *map(np.shape, values))))
    for place, value in enumerate(values):
        columns[place] = value
    return columns


def usual_columns(_target: Target, cases: CaseColumns, _setting: "Setting") -> dict[str, Any]:
    """Return extents, and 1 for what was chosen."""
    choices = {"op": cases.op, "phase": cases.phase, **cases.dtypes, **cases.attributes}
    return {**cases.axes, **{f"{name}={value}": 1.0 for name, value in choices.items()}}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelModel:
    """A model of the time of a family of operators."""

    name: str
    """Family, the first word of groups in coefficient files."""
    ops: tuple[str, ...]
    """Operators it answers for."""
    version: str
    """Changes whenever the same coefficients would give another time."""
    coefficients: tuple[CoefficientRange, ...]
    """The coefficients, in the order of coefficient arrays."""
    terms: tuple[str, ...]
    """Names of the parts of a time."""
    regimes: Mapping[str, str]
    """Regime of the interval by the largest part."""
    bundles: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts of one regime that corrections and the choice of the regime know as one, by its name."""
    groups: Callable[[str, Mapping[str, str]], tuple[str, ...]]
    """Groups of coefficients for an operator and its formats, best first; each holds all coefficients."""
    rows: Callable[[Target, CaseColumns, Any, Setting], Rows]
    """Rule: target, cases, coefficients and setting to times."""
    row: Callable[[Target, CaseColumns, Any, Setting], Rows] | None = None
    """The same rule for one case, whose axes are numbers, without arrays; none: by a column of one row."""
    is_by_format: bool = False
    """Whether groups are formats: kernels differ by format."""
    grid: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Extents by axis whose combinations are the candidates of `calibrate plan`; none: there is no plan."""
    grids: Mapping[str, Mapping[str, tuple[int | str, ...]]] = field(default_factory=dict)
    """The same by operator, where operators of a model have different axes and choices."""
    related: Callable[[Target, Target], bool] | None = None
    """Whether one device's coefficients apply to another; none: same architecture and similar size."""
    reformatted: Callable[[str, Sequence[float]], Sequence[float]] = lambda _group, values: values
    """Transfer of a group's coefficients to a format of another group: `(group, values)`."""
    informs: Callable[[Target, Target, Mapping[str, str]], bool] = lambda _device, _target, _dtypes: True
    """Whether kernels that were measured on a device in some formats may run on another target."""
    phases: tuple[str, ...] = ("forward",)
    """Phases of the operators that it answers for."""
    size: Callable[[Target, Mapping[str, str]], float] | None = None
    """Binary logarithm of the weight for means over devices; none: equal weights."""
    transfer: Callable[..., Sequence[Any]] | None = None
    """Transfer of measured devices' coefficients to another: `(target, dtypes, measured, is_related=…)`."""
    correction_columns: Callable[[Target, CaseColumns, Setting], Mapping[str, Any]] = usual_columns
    """Inputs of the bounded correction by name, besides time and parts."""
    corrected: Callable[[Target, CaseColumns], Any] = lambda _target, _cases: True
    """Cases of the kind that corrections and interval scales were fitted on; others keep the time of the model."""
    kernels: Callable[[CaseColumns], tuple[CaseColumns, ...]] = lambda cases: (cases,)
    """Kernels of a case in sequence, each corrected separately."""
    kind: Callable[[Mapping[str, str | bool]], str] = lambda _: ""
    """Attribute by which cases with the same coefficients have separate intervals, e.g. an element-wise function."""
    widening: Callable[[str, str], float] = lambda _op, _cell: 1.0
    """Factor of an interval cell's width, in logarithms, for an operator without measurements."""
    is_other_hardware: Callable[[Target, Target], bool] = lambda _target, _other: False
    """Whether related devices differ in their interconnect, so that the spread between sources applies."""
    admits_any: Callable[[CaseColumns], Any] = lambda _: False
    """Cases that libraries run by algorithms with fewer products than the definition, such as Winograd's: bounds for
    classical algorithms do not hold for them.
    """
    completed: Callable[[CaseColumns, Setting], CaseColumns] = lambda cases, _: cases
    """Cases with expected values for unstated quantities, such as the groups that rows reach."""
    open_values: Callable[[CaseColumns, Setting], tuple[Any, tuple[tuple[CaseColumns, Setting], ...]]] = (
        lambda _cases, _setting: (False, ())
    )
    """Which cases have unstated quantities, and all cases with their extreme values, which the interval encloses."""
    open_note: str = ""
    """Note on such cases."""
    extrapolation: Callable[[Target, CaseColumns], tuple[Any, Any] | None] = lambda _target, _cases: None
    """Additional spread, faster and slower in logarithms, of cases beyond the measured range; none: all within."""
    extrapolation_note: str = ""
    """Note on extrapolated cases."""
    is_fallback: bool = False
    """Whether operator-specific models are preferred to this one."""
    lacks: Callable[[Mapping[str, str], Mapping[str, str | bool]], str] = lambda _dtypes, _attributes: ""
    """The format or attribute that is not modelled, so that the fallback is used; empty if all are."""
    calibration: Callable[[Target, CaseColumns], Calibration] | None = None
    """Calibration of cases whose data are not in coefficient files."""


def sequential(each: Sequence[Rows]) -> Rows:
    """Return the times of kernels in sequence."""
    if len(each) == 1:
        return each[0]
    times, parts = [rows.time_s for rows in each], [rows.parts_s for rows in each]
    whole = [reduce(add, its) for its in zip(*parts, strict=True)] if isinstance(parts[0], list) else reduce(add, parts)
    return Rows(time_s=reduce(add, times), parts_s=whole)


def row_of(model: KernelModel, target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    """Return the time of one case and its parts, as numbers."""
    if model.row is not None:
        return model.row(target, cases, coefficients, setting)
    rows = model.rows(target, cases, coefficients, setting)
    return Rows(time_s=float(rows.time_s[0]), parts_s=rows.parts_s[0].tolist())


def leading_part_of_case(model: KernelModel, parts_s: Sequence[Any]) -> Any:
    """Return the place of a part whose regime one case belongs to, as `leading` does."""
    return _leading(_bundled(Same(model)), parts_s)


@lru_cache(maxsize=64)
def _bundled(model: "Same[KernelModel]") -> tuple[tuple[int, ...], ...]:
    """Return the places of the parts of each bundle."""
    return tuple(tuple(map(model.held.terms.index, names)) for names in model.held.bundles.values())


def _leading(bundles: tuple[tuple[int, ...], ...], parts_s: Sequence[float]) -> int:
    joined = list(parts_s)
    for places in bundles:
        whole = sum([parts_s[place] for place in places])
        for place in places:
            joined[place] = -inf
        joined[places[0]] = whole
    return joined.index(max(joined))


def leading(model: KernelModel, parts_s: Any) -> Any:
    """Return the place of a part whose regime each row belongs to: the largest, or one of the largest bundle."""
    if not model.bundles:
        return np.argmax(parts_s, axis=1)
    joined = np.array(parts_s)
    for names in model.bundles.values():
        places = [model.terms.index(name) for name in names]
        whole = joined[:, places].sum(1)
        joined[:, places] = -np.inf
        joined[:, places[0]] = whole
    return np.argmax(joined, axis=1)


USUAL = Setting()
"""Weights beyond the cache, input as the case has it."""
