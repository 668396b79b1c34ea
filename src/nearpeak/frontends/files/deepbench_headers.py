"""Import of DeepBench problem headers (gemm_problems.h, conv_problems.h, rnn_problems.h and others)."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import text_of_file
from nearpeak.core.work.case import Case
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import case

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SET = re.compile(r"\b(\w++)\s*+=?\s*+\{((?:[^{}]++|\{[^{}]*+\})*+)\}\s*+;")
_ROW = re.compile(r"make_tuple\s*\(([^()]*)\)|\{([^{}]*)\}")
_CELLS = {"vanilla": "rnn_tanh", "lstm": "lstm", "gru": "gru"}


def capture_deepbench(path: Path, *, dtype: str | None = None) -> Workload:
    """Return the problems of a DeepBench header as unrelated calls, each with its set as module.

    GEMM rows are (m, n, k, a_t, b_t) of column-major matrices; the case keeps these names and letters, and the work
    is that of the row-major problem. Convolution rows are (w, h, c, n, k, filter w, filter h, pad w, pad h, stride w,
    stride h): width comes first. Recurrent rows are (hidden, batch, steps, cell). Sparse rows
    (m, n, k, a_t, b_t, sparsity) are kept as uncovered calls.

    Args:
        dtype: format of all operands, which the headers leave open; fp32 when not given.

    Raises:
        SpecError: the file is missing, or holds no row that can be read.

    Source: DeepBench, github.com/baidu-research/DeepBench, code/kernels.
    """
    if not path.is_file():
        raise SpecError(f"{path}: no such file; give a header of DeepBench problems")
    calls: list[Call] = []
    rejected: list[str] = []
    text = text_of_file(path, errors="replace")
    plain = _COMMENT.sub(lambda comment: re.sub(r"[^\n]", " ", comment.group()), text)
    rows = [
        (match.group(1), row) for match in _SET.finditer(plain)
        for row in _ROW.finditer(plain, match.start(2), match.end(2))
    ]  # fmt: skip
    for group, row in rows:
        number = plain.count("\n", 0, row.start()) + 1
        cells = [cell.strip() for cell in (row.group(1) or row.group(2) or "").split(",")]
        try:
            problem, operator = _problem(cells, dtype or "fp32")
        except (SpecError, ValueError) as error:
            rejected.append(f"line {number}: {error}")
            continue
        source = f"{path.name}:{number}"
        calls.append(Call(case=problem, operator=operator, phase="forward", module=group, source=source))
    if not calls:
        raise SpecError(f"{path}: holds no problem; rows look like std::make_tuple(1760, 16, 1760, false, false)")
    recurrent = any(call.operator == "deepbench.rnn" for call in calls)
    notes = ["recurrent layers take inputs as wide as their state"] if recurrent else []
    unread = f"{len(rejected)} rows could not be read: {'; '.join(rejected[:5])}" if rejected else ""
    notes += [unread] if unread else []
    origin = {"kind": "deepbench", "file": path.name, "rows": str(len(calls)), **({"unread": unread} if unread else {})}
    return Workload(name=path.stem, step="sweep", calls=tuple(calls), origin=origin, assumptions=tuple(notes))


def _problem(cells: list[str], dtype: str) -> tuple[Case | None, str]:
    """Return the case of a row and the name of its kind, which follows from the number of cells."""
    kinds: dict[int, tuple[str, Callable[..., Case | None]]] = {
        4: ("deepbench.rnn", _recurrent), 5: ("deepbench.gemm", _gemm), 6: ("deepbench.sparse", _sparse),
        11: ("deepbench.conv", _conv),
    }  # fmt: skip
    if len(cells) not in kinds:
        raise SpecError(f"{len(cells)} cells; gemm has 5, conv 11, rnn 4, sparse 6")
    name, make = kinds[len(cells)]
    try:
        return make(dtype, *map(_value, cells)), name
    except NotModelledError:
        return None, name


def _value(cell: str) -> Any:
    if cell in ("true", "false"):
        return cell == "true"
    if cell[:1] == cell[-1:] == '"':
        return cell[1:-1]
    try:
        return int(cell)
    except ValueError:
        return float(cell)


def _gemm(dtype: str, m: int, n: int, k: int, a_t: bool, b_t: bool) -> Case:
    return case("gemm", m=m, n=n, k=k, layout="nt"[a_t] + "nt"[b_t], dtype=dtype)


def _sparse(_dtype: str, *_cells: Any) -> None:
    """No operator of the catalogue knows sparse weights: the row stays uncovered."""


def _conv(
    dtype: str, w: int, h: int, c: int, n: int, k: int, kw: int, kh: int, pw: int, ph: int, sw: int, sh: int
) -> Case:
    return case(
        "conv", batch=n, in_channels=c, out_channels=k, w=w, h=h, kw=kw, kh=kh, pw=pw, ph=ph, sw=sw, sh=sh, dtype=dtype
    )


def _recurrent(dtype: str, hidden: int, batch: int, steps: int, cell: str) -> Case:
    if cell not in _CELLS:
        raise SpecError(f"cell {cell!r} is not one of {', '.join(_CELLS)}")
    return case("recurrent", batch=batch, steps=steps, features=hidden, hidden=hidden, cell=_CELLS[cell], dtype=dtype)
