"""Inputs that change in a few elements between samples, so that cached results are stale."""

import random
from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import OPS

CHANGED_COUNT = 2
"""Elements that change before each sample: few, to disturb the hardware caches little."""
FACTORS = (0.5, 2.0, 0.75, 1.5)
"""Factors of changed numbers: exact in every format, and keeping the sign."""
State = dict[tuple[int, str, int], Any]
"""Values of changed elements, by set of inputs, input name and position."""


class Varied:
    """The inputs of a prepared case, or the upstream gradients of a gradient's, which change outside the timed part.

    Numbers become multiples of their first values; positions, classes and integers become other ones of the same input.
    Inputs with constraints, such as sorted offsets or a stated number of true elements, do not change.
    """

    def __init__(self, case: Case, prepared: Prepared, inputs: tuple[Mapping[str, Any], ...]) -> None:
        """Select the inputs that may change."""
        self._refresh = prepared.refresh
        if case.phase != "forward":  # tensors saved in the forward pass do not follow its inputs
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
        self._random = random.Random()  # seeded by the system, so that the timed code cannot predict it

    @property
    def changes(self) -> bool:
        """Whether any input changes."""
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
        """Return the current values of the changed elements."""
        return dict(self._now)

    def restore(self, state: State) -> None:
        """Set the changed elements to the values of `state`."""
        for key, first in self._first.items():
            self._put(*key, state.get(key, first))

    def _put(self, number: int, name: str, at: int, value: Any) -> None:
        self._flat[number][name][at] = value
        self._now[number, name, at] = value
        assert self._refresh is not None  # without it nothing changes
        self._refresh(number, name, at)


def variable_inputs(case: Case) -> tuple[str, ...]:
    """Return the inputs of `case` whose elements may change independently.

    >>> from nearpeak.ops import case
    >>> variable_inputs(case("gemm", m=2, n=2, k=3, dtype="bf16"))
    ('a', 'b')
    """
    operator, arguments = OPS[case.op], forward_arguments(case)
    if case.phase != "forward" or operator.draws or operator.valid is not None:
        return ()
    counted = any(arguments.get(axis) for axis in operator.data_axes)  # the case states how many differ, or are true
    return tuple(
        name
        for name, spec in operator.inputs(**arguments).items()
        if spec.dtype != "bool" and not (counted and _is_whole(case, name, spec.dtype))
    )


def _is_whole(case: Case, name: str, dtype: str) -> bool:
    """Return whether an input holds integers: positions, classes, counts, masks."""
    kind = dtype_of(dtype).kind
    return kind not in ("float", "complex") or bool(OPS[case.op].tolerance.limit(name, forward_arguments(case)))
