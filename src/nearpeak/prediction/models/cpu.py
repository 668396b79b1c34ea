"""The local CPU, one thread: roofline times scaled by the ratios that probes of similar cases measured."""

from typing import Any

import numpy as np

from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.calibration.probe_file import (
    COSTS,
    LEVELS,
    Kind,
    Probes,
    base_s,
    interpolated,
    key_of,
    probes_of,
    roof_parts,
)
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting

TERMS = ("launch", *COSTS, "library")
"""Parts of a predicted time, each weighted by what like probes took of it; `library`: what remains between probes."""
_REGIMES = {
    "launch": "launch", "memory": "dram", "vector": "rows", "tensor": "tensor",
    "groups": "rows", "library": "library",
}  # fmt: skip


def _rows(target: Target, cases: CaseColumns, _scalars: Any, _setting: Setting) -> Rows:
    """Return the times of cases with inputs from memory.

    Source: derived; measured over roofline time varies slowly with the logarithms of the extents.
    """
    _, kind = _kind_of(probes_of(target), cases)
    parts = roof_parts(target, cases)
    costs = np.stack([parts[name] for name in COSTS], 1)
    size = len(costs)
    columns = [
        np.log2(np.maximum(np.broadcast_to(np.asarray(cases.axes.get(name, 1), dtype=np.float64), (size,)), 1.0))
        for name in kind.axes
    ]
    wanted = np.stack(columns, 1) if columns else np.zeros((size, 1))
    plain_s = base_s(costs, kind.weights)
    time_s = plain_s * np.exp(interpolated(kind.places, kind.over, wanted))
    each = costs * kind.weights[1:]
    named = dict(zip(COSTS, each.T, strict=True))
    named["launch"] = np.full(size, kind.weights[0])
    named["library"] = time_s - plain_s
    return Rows(time_s=time_s, parts_s=np.stack([named[name] for name in TERMS], 1))


def _kind_of(probes: Probes, cases: CaseColumns) -> tuple[int, Kind]:
    """Return the nearest kind that has probes."""
    for level in range(LEVELS):
        kind = probes.kinds[level].get(key_of(level, cases.op, cases.phase, cases.dtypes, cases.attributes))
        if kind is not None:
            return level, kind
    raise NotModelledError("cpu: no probes at all; run 'nearpeak calibrate roofs'")


def _calibration(target: Target, cases: CaseColumns) -> Calibration:
    """Return the provenance of the probes, and the interval that leaving probes of the same nearness out gave."""
    name, _, edits = target.name.partition("+")
    if edits:
        raise NotModelledError(
            f"{name}: predicted from probes of it as it is, which tell nothing of it with {edits}; leave --set out"
        )
    probes = probes_of(target)
    level, kind = _kind_of(probes, cases)
    low, high = probes.ends[level]
    return Calibration(
        name=f"{target.name} probes of {_WORDS[level]}", coefficients=(), row_count=len(kind.over),
        low_ratio=dict.fromkeys(_REGIMES.values(), float(np.exp(low))),
        high_ratio=dict.fromkeys(_REGIMES.values(), float(np.exp(high))),
        source=f"{probes.source}; one thread, inputs from memory", version=KERNEL_MODEL.version,
        distance_count=0 if level == 0 else 1,
    )  # fmt: skip


_WORDS = (
    "this operator", "this operator in another format", "this operator with other choices",
    "operators of its family", "all operators",
)  # fmt: skip


KERNEL_MODEL = KernelModel(
    name="cpu", ops=(), version="cpu-1", coefficients=(), terms=TERMS, regimes=_REGIMES, rows=_rows,
    groups=lambda _op, dtypes: (dtypes.get("dtype", ""),),
    calibration=_calibration,
)  # fmt: skip
