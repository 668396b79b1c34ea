"""How losses are put together: the reductions that all of them offer."""

from typing import Any

from nearpeak.errors import SpecError

REDUCTIONS = ("none", "mean", "sum")
"""In the order of PyTorch's numbers 0, 1, 2."""


def checked(reduction: str) -> str:
    """Return `reduction`, refused when it is not known.

    >>> checked("mean")
    'mean'
    """
    if reduction not in REDUCTIONS:
        raise SpecError(f"loss: reduction={reduction!r} is not known; there are {', '.join(REDUCTIONS)}")
    return reduction


def reduced(losses: Any, reduction: str) -> Any:
    """Return NumPy losses as `reduction` says."""
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()
