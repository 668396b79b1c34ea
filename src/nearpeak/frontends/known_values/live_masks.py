"""Live query-key pairs of attention masks: pairs that the program masks out are dead, data-dependent ones live."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nearpeak.frontends.known_values.tensor_origins import Origins
from nearpeak.frontends.known_values.tensor_pieces import Made, Part, TooLargeError, repeats
from nearpeak.frontends.known_values.value_spans import high_of
from nearpeak.ops.shared.live_pairs import Live

LARGEST_MASK_ELEMENTS = 2**30
"""Largest mask, in distinct elements, that is counted; values of larger ones stay unknown, to bound capture time."""

_BLOCK_ELEMENTS = 2**19
HIDDEN = -5e8
"""Half of the usual masking constant, as data may be added: the exponential is 0 relative to unmasked scores."""


class Scores(NamedTuple):
    """Extents of the scores that a mask applies to."""

    batch: int
    """Sequences."""
    heads: int
    """Query heads."""
    groups: int
    """Key heads."""
    q: int
    """Queries."""
    kv: int
    """Keys."""
    causal: bool
    """True if query i sees no key after key i, in addition to the mask."""


class LiveMasks:
    """Counts the live pairs of masks; a mask that several layers share is counted once."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._counted: dict[Any, tuple[Part, Live | None]] = {}
        self._unknown: dict[int, Any] = {}  # kept, so that identities of storages are not used again
        self._mixed: dict[int, Any] = {}

    def known(self, mask: Any) -> bool:
        """Return whether the program determines the mask; data-dependent masks are noted."""
        if self._origins.of(mask) is None:
            self._unknown[mask.untyped_storage()._cdata] = mask
            return False
        return True

    def live(self, query: Any, key: Any, mask: Any, causal: bool) -> Live | None:
        """Return the live pairs of `mask`, none if its values are data or too many to count."""
        if not self.known(mask):
            return None
        part = self._origins.of(mask)
        assert part is not None
        scores = Scores(query.shape[0], query.shape[1], key.shape[1], query.shape[2], key.shape[2], causal)
        question = (id(part.origin), *part[1:], scores)
        if question not in self._counted:  # the part stays, so that its origin's identity is not used again
            self._counted[question] = (part, counted(part, scores))
        live = self._counted[question][1]
        if live is None or not part.origin.mixed:
            return live
        hides = live.pairs < prod(scores[:2]) * scores.q * scores.kv
        (self._mixed if hides else self._unknown)[mask.untyped_storage()._cdata] = mask
        return live if hides else None

    def assumptions(self) -> tuple[str, ...]:
        """Return notes on masks whose values are not known."""
        large = sum(1 for _, live in self._counted.values() if live is None)
        counts = {
            "depend on inputs or weights: every pair counts as live": len(self._unknown),
            "depend on inputs or weights in part: pairs that the program does not hide count as live": len(self._mixed),
            "are too many to count: every pair counts as live": large,
        }
        return tuple(
            f"values of {count} attention mask{'s' if count > 1 else ''} {cause}"
            for cause, count in counts.items()
            if count
        )


def counted(part: Part, scores: Scores) -> Live | None:
    """Return the live pairs of a mask over `scores`, summed over heads and batch; none if it is too large."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    if not prod(scores[:5]):
        return Live(0, 0, 0)
    missing = 4 - len(part.shape)
    shape, strides = (1,) * missing + part.shape, (0,) * missing + part.strides
    # A repeated plane is counted once; repeated queries are too, unless causality tells them apart.
    extents = [1 if stride == 0 else extent for extent, stride in zip(shape, strides, strict=True)]
    extents[2] = scores.q if scores.causal else extents[2]
    mask = Part(part.origin, shape, strides, part.offset)
    extents[:2] = [1 if repeats(mask, dimension) else extents[dimension] for dimension in (0, 1)]
    if prod(extents) > LARGEST_MASK_ELEMENTS:
        return None
    try:
        with _disable_current_modes(), torch.no_grad(), one_thread():
            return _summed(mask, scores, extents)
    except (TooLargeError, RecursionError):
        return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: blocks are too small to gain from more."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _summed(mask: Part, scores: Scores, extents: list[int]) -> Live:
    """Sum the distinct planes, each multiplied by its repetitions."""
    made = Made()
    pairs = queries = keys = 0
    share = scores.heads // scores.groups
    for batch in range(extents[0]):
        seen = np.zeros((scores.groups if extents[1] > 1 else 1, scores.kv), dtype=bool)
        for head in range(extents[1]):
            plane = _plane(mask, scores, batch, head, extents[2], made)
            pairs, queries = pairs + plane[0], queries + plane[1]
            seen[head // share if extents[1] > 1 else 0] |= plane[2]
        keys += int(seen.sum()) * (1 if extents[1] > 1 else scores.groups)
    repeated = scores.batch // extents[0]
    planes = repeated * (scores.heads // extents[1])
    return Live(pairs * planes, keys * repeated, queries * planes)


def _plane(mask: Part, scores: Scores, batch: int, head: int, rows: int, made: Made) -> tuple[int, int, Any]:
    """Return, for one head of one sequence, live pairs, queries with a live key, and the mask of live keys."""
    pairs = queries = 0
    seen = np.zeros(scores.kv, dtype=bool)
    step = max(1, _BLOCK_ELEMENTS // max(1, scores.kv))
    for first in range(0, rows, step):
        count = min(step, rows - first)
        starts = [at if extent > 1 else 0 for at, extent in zip((batch, head, first, 0), mask.shape, strict=True)]
        sizes = [1, 1, count if mask.shape[2] > 1 else 1, mask.shape[3]]
        # For partly data-dependent values the upper bound counts: a pair is dead only if no data can make it live.
        block = np.broadcast_to(_alive(high_of(mask.block(starts, sizes, made))[0, 0]), (count, scores.kv))
        if scores.causal:
            block = np.tril(block, first)
        pairs += int(np.count_nonzero(block))
        queries += int(np.count_nonzero(block.any(axis=1)))
        seen |= block.any(axis=0)
    repeated = scores.q // rows if rows else 0
    return pairs * repeated, queries * repeated, seen


def _alive(block: Any) -> Any:
    """Return which pairs are live: scores far below zero mask a pair, unless the whole row is masked."""
    import torch

    if block.dtype == torch.bool:
        return block.numpy()
    shown = (block > max(HIDDEN, torch.finfo(block.dtype).min / 2)).numpy()
    rows = shown.any(axis=-1, keepdims=True)
    return shown if rows.all() else np.where(rows, shown, (block > float("-inf")).numpy())
