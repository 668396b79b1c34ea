"""Coefficient files (TOML): building, writing and reading the fitted groups of one device."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearpeak.core.answers.prediction import Correction
from nearpeak.prediction.calibration.coefficient_reader import read_coefficients
from nearpeak.prediction.calibration.fit import Fit
from nearpeak.prediction.kernel_model import KernelModel
from nearpeak.prediction.residual_correction import correction_entry

TABLES = ("scalars", "interval", "plain_interval", "correction", "scale")
"""Tables of an entry, in their order."""
Ends = Mapping[str, tuple[float, float]]
"""5th and 95th percentile of measured over predicted by regime."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """Trees fitted on top of a group's coefficients."""

    correction: Correction | None
    """Correction for libraries' kernel choices; none where trees do not help."""
    scale: Correction | None
    """Relative interval widths of cases; none where too few rows show them."""
    ends: Ends
    """Ends of the interval with both."""


def group_entry(
    model: KernelModel, fitted: Fit, ends: Ends, row_count: int, source: str, refined: Refinement | None = None
) -> dict[str, Any]:
    """Return one group as coefficient files hold it.

    Args:
        ends: of the coefficients alone.
        refined: trees on top of the coefficients, and the ends with them.
    """
    return {
        "version": model.version, "row_count": row_count, "source": source, "unidentified": list(fitted.unidentified),
        "scalars": {s.name: float(f"{v:.4g}") for s, v in zip(model.coefficients, fitted.values, strict=True)},
        **intervals(ends, refined),
    }  # fmt: skip


def intervals(ends: Ends, refined: Refinement | None) -> dict[str, Any]:
    """Return the part of an entry with its intervals and, if there are any, its trees."""
    if refined is None or refined.correction is refined.scale is None:
        return {"interval": rounded(ends)}
    trees = {"correction": refined.correction, "scale": refined.scale}
    return {"interval": rounded(refined.ends), "plain_interval": rounded(ends)} | {
        name: correction_entry(ensemble) for name, ensemble in trees.items() if ensemble is not None
    }


def rounded(ends: Ends) -> dict[str, list[float]]:
    """Return ends of intervals as coefficient files hold them.

    >>> rounded({"dram": (0.91234, 1.1)})
    {'dram': [0.9123, 1.1]}
    """
    return {name: [round(low, 4), round(high, 4)] for name, (low, high) in ends.items()}


def group_text(name: str, entry: Mapping[str, Any]) -> str:
    """Return a group as TOML.

    >>> print(group_text("gemm.bf16", {"version": "gemm-1", "scalars": {"launch_s": 2e-06}, "interval": {}}))
    [groups."gemm.bf16"]
    version = "gemm-1"
    [groups."gemm.bf16".scalars]
    launch_s = 2e-06
    [groups."gemm.bf16".interval]
    <BLANKLINE>
    """
    tables = [table for table in TABLES if table in entry]
    lines = [f'[groups."{name}"]']
    lines += [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items() if key not in tables]
    for table in tables:
        lines.append(f'[groups."{name}".{table}]')
        lines += [f"{key} = {json.dumps(value)}" for key, value in entry[table].items()]
    return "\n".join(lines) + "\n"


def file_text(groups: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a coefficient file as TOML, its groups in the order of their names."""
    return "\n".join(group_text(name, groups[name]) for name in sorted(groups))


def groups_of(path: Path) -> dict[str, Any]:
    """Return the groups of the file at `path`; none where there is no file."""
    return dict(read_coefficients(path)["groups"]) if path.exists() else {}
