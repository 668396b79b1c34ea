"""Output aliasing: a later call must not overwrite tensors that an earlier call returned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.running.implementation_run import Implementation, imported_torch, results_of
from nearpeak.validation.running.trial import templates_of


def overwritten(implementation: Implementation, draws: Sequence[Draw]) -> list[str]:
    """Return the outputs of a call that a later one with other inputs changes, each of them in memory of its own.

    Of runners on arrays nothing is said: what they return may lie in memory that is theirs, and gone after the call.
    """
    if implementation.is_runner and implementation.arrays != "torch":
        return []
    implementation = without_host_copies(implementation)
    held: list[Any] = []  # inputs of both calls: a result may be the memory of one

    def call(draw: Draw) -> Mapping[str, Any]:
        inputs, outputs = results_of(implementation, draw.tensors, draw.arguments, templates_of(draw))
        held.append(inputs)
        return outputs

    return changed_by_a_later_call(call, draws)


def without_host_copies(implementation: Implementation) -> Implementation:
    """Return the implementation whose results are not copied to the host: of a copy nothing is overwritten."""
    there = implementation.there
    if there is None:
        return implementation
    return replace(implementation, call=there, backward=getattr(there, "backward", None))


def changed_by_a_later_call(call: Callable[[Draw], Mapping[str, Any]], draws: Sequence[Draw]) -> list[str]:
    """Return what of the results for the first question the call for another of the same shapes changes."""
    first = draws[0]
    other = next((draw for draw in draws[1:] if shapes_of(draw) == shapes_of(first)), None)
    if other is None:
        return []
    try:
        results = call(first)
        before = {name: _bytes(array).clone() for name, array in results.items()}
        call(other)
    except Exception:  # whatever an implementation raises, others say it
        return []
    return [name for name, array in results.items() if not _bytes(array).equal(before[name])]


def shapes_of(draw: Draw) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs by name."""
    return {name: tuple(tensor.shape) for name, tensor in draw.tensors.items()}


def _bytes(tensor: Any) -> Any:
    torch = imported_torch()
    return torch.as_tensor(tensor).detach().cpu().contiguous().reshape(-1).view(torch.uint8)
