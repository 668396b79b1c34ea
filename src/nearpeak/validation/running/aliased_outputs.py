"""Output aliasing: a later call must not overwrite tensors that an earlier call returned."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.running.implementation_run import Implementation, imported_torch, results_of
from nearpeak.validation.running.trial import templates_of


def overwritten(implementation: Implementation, draws: Sequence[Draw]) -> list[str]:
    """Return the outputs of a call that a later call with other inputs overwrites.

    Runners on arrays are not checked: they may return memory of their own that is valid during the call alone.
    """
    if implementation.is_runner and implementation.arrays != "torch":
        return []
    implementation = without_host_copies(implementation)
    held: list[Any] = []  # keeps the inputs of both calls alive, as a result may alias one

    def call(draw: Draw) -> Mapping[str, Any]:
        inputs, outputs = results_of(implementation, draw.tensors, draw.arguments, templates_of(draw))
        held.append(inputs)
        return outputs

    return changed_by_a_later_call(call, draws)


def without_host_copies(implementation: Implementation) -> Implementation:
    """Return the implementation without copies of results to the host: a copy cannot be overwritten."""
    there = implementation.there
    if there is None:
        return implementation
    return replace(implementation, call=there, backward=getattr(there, "backward", None))


def changed_by_a_later_call(call: Callable[[Draw], Mapping[str, Any]], draws: Sequence[Draw]) -> list[str]:
    """Return the results of a call for the first draw that a call for another draw of the same shapes changes."""
    first = draws[0]
    other = next((draw for draw in draws[1:] if shapes_of(draw) == shapes_of(first)), None)
    if other is None:
        return []
    try:
        results = call(first)
        before = {name: _bytes(array).clone() for name, array in results.items()}
        call(other)
    except Exception:  # other checks report an exception
        return []
    return [name for name, array in results.items() if not _bytes(array).equal(before[name])]


def shapes_of(draw: Draw) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs by name."""
    return {name: tuple(tensor.shape) for name, tensor in draw.tensors.items()}


def _bytes(tensor: Any) -> Any:
    torch = imported_torch()
    return torch.as_tensor(tensor).detach().cpu().contiguous().reshape(-1).view(torch.uint8)
