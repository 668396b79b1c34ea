"""PyTorch's global settings (grad mode, default dtype, matmul precision, determinism), restored after a call."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nearpeak.case_tensors.user_functions import EndedError
from nearpeak.core.runs.measurement import Outcome


class ChangedStateError(EndedError):
    """A call that changed global state."""


@contextmanager
def unchanged_state(torch: Any) -> Iterator[None]:
    """Restore global state after the block, and refuse changes of it.

    Raises:
        ChangedStateError: the block changed a state; the message names it.

    >>> import torch
    >>> with unchanged_state(torch):
    ...     torch.set_grad_enabled(False)
    Traceback (most recent call last):
    nearpeak.case_tensors.global_state.ChangedStateError: torch.is_grad_enabled() was True, and is False after the call
    """
    states = _states(torch)
    before = {name: read() for name, (read, _) in states.items()}
    after: dict[str, Any] = {}
    try:
        yield
    finally:
        after = {name: read() for name, (read, _) in states.items()}
        for name, (_, write) in states.items():
            if after[name] != before[name]:
                write(before[name])
    for name, held in before.items():
        if after[name] != held:
            message = f"torch.{name}() was {held}, and is {after[name]} after the call"
            raise ChangedStateError(message, Outcome.INCORRECT)


def _states(torch: Any) -> Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return the reader and writer of each state, by the reader's name."""
    return {
        "is_grad_enabled": (torch.is_grad_enabled, torch.set_grad_enabled),
        "get_default_dtype": (torch.get_default_dtype, torch.set_default_dtype),
        "get_float32_matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "are_deterministic_algorithms_enabled": (
            torch.are_deterministic_algorithms_enabled,
            torch.use_deterministic_algorithms,
        ),
    }
