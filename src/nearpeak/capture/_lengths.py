"""Shapes that fake tensors will not state, though lists of lengths or the shapes of the inputs settle them."""

from collections.abc import Callable, Mapping
from typing import Any


def _ctc_loss(log_probs: Any, targets: Any, _inputs: Any, lengths: Any, *_: Any) -> tuple[Any, Any]:
    """Return the losses and alphas; lengths in a tensor are taken to be the longest that its shape allows."""
    lead = log_probs.shape[1:-1]
    known = lengths if isinstance(lengths, (list, tuple)) else ()
    longest = max(known, default=targets.shape[-1] if targets.dim() > 1 or not lead else targets.shape[0] // lead[0])
    return log_probs.new_empty(lead), log_probs.new_empty((*lead, log_probs.shape[0], 2 * longest + 1))


def _least_squares(a: Any, b: Any, *_: Any, **_options: Any) -> tuple[Any, ...]:
    """Return solution and rank; whether there are residuals depends on the rank, and they are left out."""
    import torch

    batch, columns = a.shape[:-2], a.shape[-1]
    right = () if b.dim() == a.dim() - 1 else (b.shape[-1],)
    empty = a.new_empty((0,))
    return a.new_empty((*batch, columns, *right)), empty, a.new_empty(batch, dtype=torch.int64), empty


SHAPES: Mapping[str, Callable[..., Any]] = {"_ctc_loss": _ctc_loss, "linalg_lstsq": _least_squares}
"""Results by operator, from its arguments."""
