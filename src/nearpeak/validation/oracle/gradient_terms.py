"""Derivatives of a gradient by each arithmetic step of its computation."""

# A gradient divided by a wrong count is wrong in one of its terms, to which the whole may be orthogonal: a layer norm's
# gradient has no mean in a row, and one that subtracts too much of the mean is off by a constant there. Perturbing one
# step of the oracle at a time gives the derivatives by all steps (Griewank and Walther 2008, chapter 3).

import linecache
import traceback
from collections.abc import Callable, Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak import ops
from nearpeak.errors import MeasureError
from nearpeak.validation.oracle.format_limits import rounded, widened
from nearpeak.validation.oracle.gradient_oracle import Derivation
from nearpeak.validation.oracle.rounding import nudged
from nearpeak.validation.oracle.sensitivity import Arrays, evaluated

STEP = 2.0**-20
"""Relative change of a step: differences keep 32 bits of float64, and are linear to 20."""
MOST_STEPS = 48
"""Most steps that are perturbed, evenly spaced in long recurrences."""
MOST_ELEMENTS = 2**25
"""Most elements computed for them: fewer steps and terms for large tensors."""
MOST_TERMS = 6
"""Most terms in addition to the gradients themselves: the most independent ones."""
LEAST_APART = 0.15
"""Least norm of a term's part that is orthogonal to the others: of a smaller one, they show the error too."""
LEAST_SIZE = 2.0**-9
"""Least length of a term over its gradient's: in a smaller one, a factor of two is below the roundoff of bf16."""
WHOLE = -1
"""The number that stands for the whole gradient, or for all steps."""


_OPERATORS = Path(ops.__file__).parent
Steps = tuple[int, ...]
"""Numbers of steps in the oracle's order of evaluation."""
Terms = Mapping[str, Mapping[int, Any]]
"""By gradient and step."""


class _Step:
    """A callable that changes the result of one step and counts all steps."""

    def __init__(self, number: int, change: Callable[[Any], Any]) -> None:
        """Choose the step, WHOLE for every one."""
        self.number, self.change, self.count, self.name = number, change, 0, ""
        self.is_done = False
        """Whether the step is done, so that all later computation may be plain."""

    def named(self, name: str) -> "_Step":
        """Return itself after storing which function the next result is of."""
        self.name = name
        return self

    def __call__(self, values: Any) -> Any:
        """Return the changed result of the chosen step, the exact one of others."""
        self.count += 1
        self.is_done = 0 <= self.number < self.count
        return self.change(values) if self.number in (self.count - 1, WHOLE) else values


def terms_of(derived: Derivation, names: Collection[str], steps: Steps, where: str) -> Terms:
    """Return the terms of each gradient: its derivatives by a relative change of each step, and itself as WHOLE."""
    arrays = {name: widened(tensor) for name, tensor in derived.tensors.items()}
    whole = evaluated(derived.reference, arrays, where)
    terms_by_name = {name: {WHOLE: whole[name]} for name in names if name in whole}
    for number in steps:
        results = _results(derived, arrays, where, _Step(number, _larger))
        for name, terms in terms_by_name.items():
            if name in results and results[name].shape == whole[name].shape:
                terms[number] = (results[name] - whole[name]) / STEP
    return terms_by_name


def unlike_steps(derived: Derivation, names: Collection[str], where: str) -> Steps:
    """Return the steps whose terms are the most independent of each other and of the gradients themselves."""
    elements = sum(tensor.numel() for tensor in derived.tensors.values())
    most = min(MOST_TERMS, MOST_ELEMENTS // max(2 * elements, 1))
    return _unlike(terms_of(derived, names, _tried(derived, where), where))[:most]


def step_description(derived: Derivation, number: int, where: str) -> str:
    """Return a description of a step: its function, and the line of the operator's file that calls it.

    Steps of PyTorch's backward pass have no such line.
    """
    descriptions: list[str] = []

    def look(values: Any) -> Any:
        descriptions.append(f"{step.name} {_operator_line() or f'on the way back, step {number + 1}'}")
        return values

    step = _Step(number, look)
    _results(derived, {name: widened(tensor) for name, tensor in derived.tensors.items()}, where, step)
    return descriptions[0] if descriptions else f"step {number + 1}"


def _operator_line() -> str:
    """Return the innermost line of an operator's file that is being executed; empty in PyTorch's backward pass."""
    for frame, line in traceback.walk_stack(None):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_OPERATORS):
            return f"in `{linecache.getline(str(path), line).strip()}` ({path.name}:{line})"
    return ""


def stored(derived: Derivation, dtype: Any, where: str) -> dict[int, dict[str, Any]]:
    """Return by step, and for all steps as WHOLE, the gradients where its result is rounded to PyTorch's `dtype`."""
    arrays = {name: widened(tensor) for name, tensor in derived.tensors.items()}
    return {
        number: _results(derived, arrays, where, _Step(number, lambda values: _rounded(values, dtype)))
        for number in (WHOLE, *_tried(derived, where))
    }


def _tried(derived: Derivation, where: str) -> Steps:
    """Return the numbers of the examined steps, in order."""
    count, arrays = (
        _Step(WHOLE, lambda values: values),
        {name: widened(tensor) for name, tensor in derived.tensors.items()},
    )
    _results(derived, arrays, where, count)
    most = min(count.count, MOST_STEPS, MOST_ELEMENTS // max(sum(array.size for array in arrays.values()), 1))
    return tuple(int(number) for number in np.unique(np.linspace(0, count.count - 1, most).astype(int)))


def _larger(values: Any) -> Any:
    return values * (1.0 + STEP)


def _rounded(values: Any, dtype: Any) -> Any:
    """Return float64 values as they are after rounding to `dtype`, in NumPy or in PyTorch."""
    if isinstance(values, np.ndarray | np.generic):
        return values if values.dtype.kind == "c" else rounded(values, dtype)
    return values if values.is_complex() else values.to(dtype).to(values.dtype)


def _unlike(terms: Terms) -> Steps:
    """Return the steps with the most independent terms, by Gram-Schmidt orthogonalisation.

    >>> _unlike({"grad_x": {WHOLE: np.array([1.0, 0.0]), 0: np.array([2.0, 0.0]), 1: np.array([1.0, 1.0])}})
    (1,)
    """
    numbers = sorted({step for by_step in terms.values() for step in by_step if step != WHOLE})
    long = {step: _joined(terms, step, tuple(terms)) for step in numbers}
    rest = {
        step: vector / np.linalg.norm(vector) for step, vector in long.items() if np.linalg.norm(vector) > LEAST_SIZE
    }
    for name in terms:
        rest = _without(rest, _joined(terms, WHOLE, (name,)))
    chosen: list[int] = []
    while rest and len(chosen) < MOST_TERMS:
        step = max(rest, key=lambda vector: float(np.linalg.norm(rest[vector])))
        along = rest.pop(step)
        if np.linalg.norm(along) < LEAST_APART:
            break
        chosen.append(step)
        rest = _without(rest, along / np.linalg.norm(along))
    return tuple(chosen)


def _joined(terms: Terms, step: int, names: Collection[str]) -> Any:
    """Return the concatenated terms of one step for the gradients `names`, each in units of its gradient's length.

    >>> _joined({"grad_x": {WHOLE: np.array([2.0, 0.0]), 0: np.array([1.0, 1.0])}}, 0, ("grad_x",)).tolist()
    [0.5, 0.5]
    """
    parts = []
    for name, by_step in terms.items():
        whole = np.nan_to_num(by_step[WHOLE], posinf=0.0, neginf=0.0).ravel()
        part = by_step.get(step) if name in names else None
        flat = np.zeros(whole.shape) if part is None else np.nan_to_num(part, posinf=0.0, neginf=0.0).ravel()
        parts.append(flat / max(float(np.linalg.norm(whole)), 1e-300))
    return np.concatenate(parts)


def _without(rest: Mapping[int, Any], along: Any) -> dict[int, Any]:
    """Return the vectors without their components along a unit vector."""
    return {step: vector - along * float(along @ vector) for step, vector in rest.items()}


def _results(derived: Derivation, arrays: Arrays, where: str, step: _Step) -> dict[str, Any]:
    """Return the gradients with one step of them changed; none where the reference takes plain arrays only."""
    try:
        if derived.is_closed:
            return nudged(derived.reference, arrays, where, step)
        with _watching()(step):
            return evaluated(derived.reference, arrays, where)
    except (AssertionError, MeasureError, RuntimeError):  # what PyTorch's decompositions refuse
        return {}


@cache
def _watching() -> Callable[[_Step], Any]:
    """Return the mode that passes PyTorch's steps, forward and backward, through a `_Step`."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watching(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
        def __init__(self, step: _Step) -> None:
            super().__init__()
            self._step = step

        def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            parts = _parts(call)
            if parts is not None:
                with self:
                    return parts(*args, **(kwargs or {}))
            result = call(*args, **(kwargs or {}))
            if _aliases(call):
                return result
            self._step.named(call.__name__.partition(".")[0])
            if isinstance(result, torch.Tensor):
                return self._changed(result)
            return torch.utils._pytree.tree_map_only(torch.Tensor, self._changed, result)

        def _changed(self, tensor: Any) -> Any:
            return self._step(tensor) if tensor.dtype in (torch.float64, torch.complex128) else tensor

    return Watching


@cache
def _aliases(call: Any) -> bool:
    """Return whether a PyTorch function aliases or mutates its arguments."""
    return any(value.alias_info is not None for value in (*call._schema.returns, *call._schema.arguments))


@cache
def _parts(call: Any) -> Any:
    """Return PyTorch's decomposition of a backward function; none of other functions."""
    if "backward" not in str(call):
        return None
    from torch._decomp import decomposition_table

    return decomposition_table.get(call)
