"""Inputs that change in a few elements between samples, so that cached results are stale."""

import random
from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.runs.measurement import Prepared
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import OPS

CHANGED_COUNT = 2
"""Elements that change before each sample: few, as other caches than the kernel's own would notice many."""
FACTORS = (0.5, 2.0, 0.75, 1.5)
"""By which numbers are multiplied: exact in every format, and sign and positivity stay."""
State = dict[tuple[int, str, int], Any]
"""What elements hold that were changed: set of inputs, input, position."""


class Varied:
    """The inputs of a prepared case, changed outside of what is timed; of a gradient, what comes from above.

    Numbers become multiples of what they were at first; positions, classes and whole numbers become others of the same
    input. What the operator's rules tie together, sorted offsets or the number of marked elements, stays as it is.
    """

    def __init__(self, case: Case, prepared: Prepared, inputs: tuple[Mapping[str, Any], ...]) -> None:
        """Find what may change."""
        self._refresh = prepared.refresh
        if case.phase != "forward":  # what a gradient has kept of the forward pass does not follow its inputs
            inputs = prepared.upstream
        names = variable_inputs(case) if case.phase == "forward" else tuple(inputs[0]) if inputs else ()
        self._names = [name for name in names if inputs[0][name].size] if prepared.refresh is not None else []
        specs = OPS[case.op].inputs(**forward_arguments(case))
        self._numbers = {
            name for name in self._names if not (name in specs and _is_whole(case, name, specs[name].dtype))
        }
        self._now: State = {}
        self._first: State = {}
        self._flat = [{name: arrays[name].reshape(-1) for name in self._names} for arrays in inputs]
        self._random = random.Random()  # seeded by the system: what comes next is for nothing that runs to know

    @property
    def changes(self) -> bool:
        """Whether anything does."""
        return bool(self._names)

    def change(self, number: int) -> None:
        """Change a few elements of one input of a set."""
        if not self._names:
            return
        draw = self._random.getrandbits
        name = self._names[draw(30) % len(self._names)]
        flat = self._flat[number][name]
        for _ in range(CHANGED_COUNT):
            at, how = draw(40) % flat.size, draw(40)
            first = self._first.setdefault((number, name, at), flat[at])
            if name in self._numbers:
                self._put(number, name, at, first * flat.dtype.type(FACTORS[how % len(FACTORS)]))
            else:
                other = how % flat.size
                self._put(number, name, at, self._first.get((number, name, other), flat[other]))

    def state(self) -> State:
        """Return what the changed elements hold now."""
        return dict(self._now)

    def restore(self, state: State) -> None:
        """Let the changed elements hold what they held then."""
        for key, first in self._first.items():
            self._put(*key, state.get(key, first))

    def _put(self, number: int, name: str, at: int, value: Any) -> None:
        self._flat[number][name][at] = value
        self._now[number, name, at] = value
        assert self._refresh is not None  # without it nothing changes
        self._refresh(number, name, at)


def variable_inputs(case: Case) -> tuple[str, ...]:
    """Return the inputs of `case` whose elements may each change by themselves.

    >>> from nearpeak.ops import case
    >>> variable_inputs(case("gemm", m=2, n=2, k=3, dtype="bf16"))
    ('a', 'b')
    """
    operator, arguments = OPS[case.op], forward_arguments(case)
    if case.phase != "forward" or operator.draws or operator.valid is not None:
        return ()
    counted = any(arguments.get(axis) for axis in operator.data_axes)  # how many differ, or are true, is stated
    return tuple(
        name
        for name, spec in operator.inputs(**arguments).items()
        if spec.dtype != "bool" and not (counted and _is_whole(case, name, spec.dtype))
    )


def _is_whole(case: Case, name: str, dtype: str) -> bool:
    """Say whether an input holds whole numbers: positions, classes, counts, marks."""
    kind = dtype_of(dtype).kind
    return kind not in ("float", "complex") or bool(OPS[case.op].numerics.limit(name, forward_arguments(case)))
