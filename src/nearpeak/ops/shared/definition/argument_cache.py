"""A cache of values and device tensors that depend on the arguments of a case alone."""

# Without the cache each call would copy the value from the host, which stalls the GPU's queue and cannot be captured
# in a CUDA graph.

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

_KEPT = 16
"""Number of cached values; a process alternates between few cases."""


def value_of(make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the cached result of `make` for hashable arguments.

    >>> value_of(max, 2, 3)
    3
    """
    return _value(make, arguments, tuple(named.items()))


def tensor_of(device: Any, make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the array that `make` returns as a cached tensor on `device`, which must not be written to."""
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    mode = _get_current_dispatch_mode()
    if torch.compiler.is_compiling() or (mode is not None and not getattr(mode, "only_looks", False)):
        # Tensors of a tracing mode must not be cached.
        return torch.as_tensor(np.array(make(*arguments, **named)), device=device)
    return _tensor(make, arguments, tuple(named.items()), device)


@lru_cache(maxsize=_KEPT)
def _value(make: Callable[..., Any], arguments: tuple[Any, ...], named: tuple[tuple[str, Any], ...]) -> Any:
    return make(*arguments, **dict(named))


@lru_cache(maxsize=_KEPT)
def _tensor(
    make: Callable[..., Any], arguments: tuple[Any, ...], named: tuple[tuple[str, Any], ...], device: Any
) -> Any:
    import torch

    with torch.inference_mode(False):  # gradients may want it later
        return torch.as_tensor(np.array(make(*arguments, **dict(named))), device=device)
