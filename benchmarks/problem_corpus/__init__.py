"""Problem files of every kind that the KernelBench convention knows, written by us: rows here, files when asked for."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.problem_corpus import level_1, level_2, level_3, level_4

_FILE = """import math

import torch
import torch.nn.functional as F
from torch import nn
{before}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{layers}

    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def write_all(folder: Path) -> dict[int, list[Path]]:
    """Write every problem below `folder` and return the files by level."""
    return {level: list(_written(folder / f"level_{level}", rows)) for level, rows in _LEVELS.items()}


def _written(folder: Path, rows: str) -> Iterator[Path]:
    folder.mkdir(parents=True)
    for row in rows.strip().splitlines():
        name, layers, result, inputs = (cell.strip() for cell in row.split("|"))
        path = folder / f"{name}.py"
        if path.exists():
            raise ValueError(f"{path.name}: two rows have this name")
        path.write_text(_problem(layers, result, inputs), encoding="utf-8")
        yield path


def _problem(layers: str, result: str, inputs: str) -> str:
    """Return the text of one problem file.

    Args:
        layers: `name=constructor` parts apart by `;`, or `.` for none.
        inputs: shapes apart by spaces: `4x8` draws from rand, `i10:4x8` whole numbers below 10, `b:4x8` booleans.
    """
    parts = [part.strip() for part in layers.split(";") if part.strip() != "."]
    body = "\n".join(f"        self.{part}" for part in parts) or "        pass"
    shapes = inputs.split()
    return _FILE.format(
        before=level_3.CLASSES if "Net(" in layers else level_4.CLASSES if "Pretrained(" in layers else "",
        layers=body, result=result, names=", ".join("xyzvw"[: len(shapes)]), inputs=", ".join(map(_drawn, shapes)),
    )  # fmt: skip


def _drawn(shape: str) -> str:
    kind, _, extents = shape.rpartition(":")
    size = "(" + "".join(f"{extent}, " for extent in extents.split("x")) + ")"
    if kind == "b":
        return f"torch.randint(0, 2, {size}).bool()"
    return f"torch.randint(0, {kind[1:]}, {size})" if kind else f"torch.rand{size}"


_LEVELS = {1: level_1.ROWS, 2: level_2.ROWS, 3: level_3.ROWS, 4: level_4.ROWS}
