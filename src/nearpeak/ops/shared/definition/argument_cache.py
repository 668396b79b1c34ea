"""A cache of values and device tensors that depend on the arguments of a case alone."""

# A call that made it anew would copy it from the host each time: a GPU's queue waits for that, and no graph holds it.

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

_KEPT = 16
"""Values that are kept at once; a process runs the calls of few cases in turn."""


def value_of(make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return what `make` makes of arguments that can be keys, made once.

    >>> value_of(max, 2, 3)
    3
    """
    return _value(make, arguments, tuple(named.items()))


def tensor_of(device: Any, make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Return the array that `make` makes as a tensor on `device`, made once; nothing may write to it."""
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    mode = _get_current_dispatch_mode()
    if torch.compiler.is_compiling() or (mode is not None and not getattr(mode, "only_looks", False)):
        return torch.as_tensor(np.array(make(*arguments, **named)), device=device)  # no tensor of theirs may be kept
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
