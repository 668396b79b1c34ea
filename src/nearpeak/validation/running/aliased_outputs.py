"""Output aliasing: a later call must not overwrite tensors that an earlier call returned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nearpeak.validation.oracle.float64_oracle import Question
from nearpeak.validation.running.implementation_run import Implementation, imported_torch, results_of
from nearpeak.validation.running.trial import templates_of


def overwritten(implementation: Implementation, questions: Sequence[Question]) -> list[str]:
    """Return the outputs of a call that a later one with other inputs changes, each of them in memory of its own.

    Of runners on arrays nothing is said: what they return may lie in memory that is theirs, and gone after the call.
    """
    if implementation.is_runner and implementation.arrays != "torch":
        return []
    implementation = staying_there(implementation)
    held: list[Any] = []  # inputs of both calls: a result may be the memory of one

    def call(asked: Question) -> Mapping[str, Any]:
        inputs, found = results_of(implementation, asked.tensors, asked.arguments, templates_of(asked))
        held.append(inputs)
        return found

    return changed_by_a_later_call(call, questions)


def staying_there(implementation: Implementation) -> Implementation:
    """Return the implementation whose results are not copied to the host: of a copy nothing is overwritten."""
    there = implementation.there
    if there is None:
        return implementation
    return replace(implementation, call=there, backward=getattr(there, "backward", None))


def changed_by_a_later_call(call: Callable[[Question], Mapping[str, Any]], questions: Sequence[Question]) -> list[str]:
    """Return what of the results for the first question the call for another of the same shapes changes."""
    first, shapes = questions[0], _shapes(questions[0])
    other = next((asked for asked in questions[1:] if _shapes(asked) == shapes), None)
    if other is None:
        return []
    try:
        results = call(first)
        before = {name: _bytes(one).clone() for name, one in results.items()}
        call(other)
    except Exception:  # whatever an implementation raises, others say it
        return []
    return [name for name, one in results.items() if not _bytes(one).equal(before[name])]


def _shapes(asked: Question) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in asked.tensors.items()}


def _bytes(one: Any) -> Any:
    torch = imported_torch()
    return torch.as_tensor(one).detach().cpu().contiguous().reshape(-1).view(torch.uint8)
