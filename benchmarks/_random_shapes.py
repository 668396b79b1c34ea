"""Random shapes of an operator: its directed cases with axes drawn anew, or one at 1, where all take them."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.golden.directed import directed

from nearpeak.case_tensors.empty_cases import refuse_empty
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS, work_of
from nearpeak.validation import refuse_narrow
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats, draw_inputs

FORMATS = ("fp32", "bf16", "fp64", "fp16")
MOST_ELEMENTS, MOST_FLOP = 20_000, 2_000_000
MOST_WRITTEN_BYTES = 2**22
"""An enlargement to the nearest value takes no FLOP, and fills any memory."""
TRIES = 60
EXTENTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 80, 100, 127, 128, 200, 257)
"""What an axis may become; small ones are as likely as large ones."""
STATED = ("kh", "kw", "kd", "sh", "sw", "sd", "ph", "pw", "pd", "dh", "dw", "dd", "groups", "layers", "directions")
"""Axes that seldom go with others: they change half as often, and stay small."""


def random_cases(op: str, count: int, seed: int) -> Iterator[Case]:
    """Give `count` cases of random shapes, the formats in turn; fewer where `TRIES` draws a case find none."""
    draw, lines = random.Random(f"{op} {seed}"), directed(op)
    formats = FORMATS[seed % len(FORMATS) :] + FORMATS[: seed % len(FORMATS)]
    found = 0
    for tried in range(TRIES * count):
        if found == count:
            return
        line = {name: value for name, value in draw.choice(lines).items() if name[0] != "_"}
        dtype = line.get("dtype", formats[(found + tried // (TRIES // 4)) % len(formats)])
        kept = 0.25 + 0.7 * tried / (TRIES * count)  # axes that belong together change one by one in the end
        case = _taken(op, {**line, **_other_axes(draw, op, line, kept), "dtype": dtype})
        if case is not None:
            found += 1
            yield case


def edge_cases(op: str, count: int, seed: int) -> Iterator[Case]:
    """Give `count` directed cases with one axis at 1, one that they leave at its default too: nothing else changes."""
    draw, lines = random.Random(f"{op} {seed} edge"), directed(op)
    axes = [name for name in OPS[op].signatures["forward"].axes if name not in OPS[op].data_axes]
    found: set[str] = set()
    for _ in range(TRIES if axes else 0):
        if len(found) == count:
            return
        line = {name: value for name, value in draw.choice(lines).items() if name[0] != "_"}
        case = _taken(op, {"dtype": draw.choice(FORMATS), **line, draw.choice(axes): 1})
        if case is not None and case.digest not in found:
            found.add(case.digest)
            yield case


def _other_axes(draw: random.Random, op: str, line: dict[str, Any], kept: float) -> dict[str, int]:
    signature = OPS[op].signatures["forward"]
    changed = {}
    for name in signature.axes:
        if name not in line or draw.random() < kept or name in OPS[op].data_axes:
            continue
        small = name in STATED or name.rpartition("_")[0] in STATED
        if small and draw.random() < 0.5:
            continue
        changed[name] = draw.choice((1, 2, 3, 4, 5) if small else EXTENTS)
    return changed


def _taken(op: str, arguments: dict[str, Any]) -> Case | None:
    """Return the case if the operator, its oracle and PyTorch take it, and it is small."""
    try:
        case = OPS[op].case("forward", **arguments)
        refuse_narrow(case)
        declared = OPS[op].inputs(**arguments_of(case)).values()
        if sum(tensor.elements for tensor in declared) > MOST_ELEMENTS or not all(t.elements for t in declared):
            return None
        work = work_of(case)
        if sum(work.flop.values()) > MOST_FLOP or work.write_bytes > MOST_WRITTEN_BYTES or not declared_formats(case):
            return None
        refuse_empty(case)
        asked = draw_inputs(case, 0, "normal")
        return case if asked is not None and _tells(asked) else None
    except (NearpeakError, NotImplementedError, RuntimeError, ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _tells(asked: Draw) -> bool:
    """Say whether results are there, the first finite, none NaN or all zero: what lies in padding tells nothing."""
    found = [one.rounded * 1.0 for one in asked.expected.values()]  # finite in float64 may be infinite in its format
    there = all(one.size and not np.isnan(one).any() for one in found)
    floats = [one.values for one in asked.expected.values() if one.values.dtype.kind in "fc"]
    return there and bool(np.isfinite(found[0]).all()) and all(map(np.any, floats or found[:1]))
