"""Off-by-one mutants of sliding windows: padding, dilation, the last window of ceil mode."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.validation.mutants.mutant import Mutant, Tensors, fitted, right_call
from nearpeak.validation.oracle.float64_oracle import declared_formats, draw_inputs
from nearpeak.validation.running.implementation_run import Call

_SHIFTED = re.compile(r"p([dhw])$")
_SPREAD = re.compile(r"d([dhw])$")


def of_windows(case: Case) -> Iterator[Mutant]:
    """Yield the mutants of each spatial axis: padding off by one, dilation off by one, the last window dropped."""
    axes = dict(case.axes)
    for name, value in axes.items():
        if _SHIFTED.match(name) and axes.get(f"k{name[1]}", 0):
            yield _of(case, "padding off by one", name, {name: value + 1})
            if value:
                yield _of(case, "padding left out", name, {name: value - 1})
        if _SPREAD.match(name) and axes.get(f"k{name[1]}", 0) > 1:
            yield _of(case, "dilation off by one", name, {name: value + 1})
    if dict(case.attributes).get("ceil"):
        yield _of(case, "ceil mode dropped", "", {"ceil": False})


def _of(case: Case, row: str, where: str, other: Mapping[str, Any]) -> Mutant:
    return Mutant(row=row, where=where, make=_maker(case, other), other=other)


def _maker(case: Case, other: Mapping[str, Any]) -> Callable[[], Call]:
    right, formats = right_call(case), declared_formats(case)
    draw = draw_inputs(case, 0, "normal")
    shapes = {name: expected.values.shape for name, expected in draw.expected.items()} if draw else {}

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        outputs = right(tensors, **{**arguments, **other})
        return {name: fitted(y, shapes.get(name, y.shape)) for name, y in outputs.items() if name in formats}

    return lambda: call
