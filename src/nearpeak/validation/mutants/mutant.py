"""The mutant: a right implementation with one mistake, and helpers that make it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.validation.running.implementation_run import Call, Implementation

Tensors = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One wrong implementation."""

    row: str
    """Kind of mistake."""
    where: str
    """The input, output or dimension that it changes; empty where it is the whole call."""
    make: Callable[[], Call]
    """Makes a fresh call; some mutants keep state between calls."""
    inputs: Callable[[dict[str, Any]], Tensors] | None = None
    """For mutants that compute correctly with changed inputs: the change."""
    of_gradient: bool = False
    """Whether only the gradient is wrong."""
    moves: Callable[[Any], Any] | None = None
    """For mutants that only permute elements of the tensor `where`, or of every upstream gradient: the permutation."""
    changes: Callable[[Any], Any] | None = None
    """For mutants that change outputs element by element: the change."""
    ignores: str = ""
    """Argument that the mutant ignores."""
    other: Mapping[str, Any] | None = None
    """For mutants that compute with other arguments: these; results are fitted to the shapes of the case."""
    algebraic: bool = False
    """Whether only the formula may be wrong, not its range: if float64 results are right, it is equivalent."""

    @property
    def name(self) -> str:
        """Kind of mistake and place."""
        return f"{self.row} {self.where}".strip()

    def implementation(self) -> Implementation:
        """Return a fresh implementation."""
        return Implementation(name=self.name, call=self.make())


def right_call(case: Case) -> Call:
    """Return PyTorch's own implementation of the operator."""
    return OPS[case.op].torch_call


def with_outputs(case: Case, change: Callable[[dict[str, Any]], Tensors]) -> Callable[[], Call]:
    """Return the maker of a mutant that changes the outputs."""
    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        return change(dict(right(tensors, **arguments)))

    return lambda: call


def of_inputs_changed(case: Case, row: str, where: str, change: Callable[[dict[str, Any]], Tensors]) -> Mutant:
    """Return a mutant that computes with changed inputs."""
    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        return right({**tensors, **change({name: tensor.clone() for name, tensor in tensors.items()})}, **arguments)

    return Mutant(row=row, where=where, make=lambda: call, inputs=change)


def with_output(case: Case, name: str, change: Callable[[Any], Any]) -> Callable[[], Call]:
    """Return the maker of a mutant that changes one output."""
    return with_outputs(case, lambda outputs: {**outputs, name: change(outputs[name].clone())})


def fitted(y: Any, shape: tuple[int, ...]) -> Any:
    """Return `y` cut to `shape` or padded with zeros, as a kernel with another window leaves it."""
    if tuple(y.shape) == tuple(shape) or y.dim() != len(shape):
        return y
    whole = y.new_zeros(shape)
    part = tuple(slice(min(have, want)) for have, want in zip(y.shape, shape, strict=True))
    whole[part] = y[part]
    return whole
