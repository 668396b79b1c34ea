"""Overlap of tensor-parallel collectives with the matrix products beside them, both split into pieces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from nearpeak.core.systems.duration import WHOLE, KernelDuration, Taken, TransferDuration
from nearpeak.core.systems.rank_program import RankCall, Transfer
from nearpeak.core.work.case import Case

PIECE_COUNTS = (2, 4, 8)
"""Pieces that are tried; one piece is no overlap."""
_ROWS = {"gemm": "m", "scaled_gemm": "m"}
"""Axis of an operator along which its rows are split."""
_MOST_BETWEEN = 4
"""Kernels between a gather and its product at most: copies, scales and transposes of narrow inputs."""
_COPY = ".copy"
"""End of the names of copies that lay a whole tensor out for its collective, or after it; pieces need none."""
_GATHERS, _REDUCTIONS = ("all_gather",), ("reduce_scatter", "all_reduce")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlappedCall:
    """A product and the collective that brings its input or takes its output."""

    product: RankCall
    """The product."""
    transfer: RankCall
    """The collective."""


def overlapped(calls: Sequence[RankCall]) -> tuple[RankCall | OverlappedCall, ...]:
    """Return `calls` with each pair of a product and the tensor-parallel collective next to it as one.

    A gather pairs with the product after it, a reduction with the product before it; copies between them fall away.

    >>> from nearpeak.ops import case
    >>> product = RankCall(name="up", case=case("gemm", m=8, n=8, k=8, dtype="bf16"))
    >>> gather = RankCall(name="gather", transfer=Transfer(kind="all_gather", bytes=128, dim="tp"))
    >>> [type(call).__name__ for call in overlapped([gather, product, product])]
    ['OverlappedCall', 'RankCall']
    """
    pairs, place = list[RankCall | OverlappedCall](), 0
    while place < len(calls):
        stop = _partner(calls, place)
        if stop is None:
            pairs.append(calls[place])
            place += 1
            continue
        first, last = calls[place], calls[stop]
        product, transfer = (last, first) if first.case is None else (first, last)
        pairs += [call for call in calls[place + 1 : stop] if not call.name.endswith(_COPY)]
        pairs.append(OverlappedCall(product=product, transfer=transfer))
        place = stop + 1
    return tuple(pairs)


def _partner(calls: Sequence[RankCall], place: int) -> int | None:
    """Return the place of the product of a gather, or of the reduction of a product; none where there is no pair."""
    first = calls[place]
    is_gather = _moves(first, _GATHERS)
    if first.count != 1 or not (is_gather or _is_product(first)):
        return None
    for stop in range(place + 1, min(place + 2 + _MOST_BETWEEN, len(calls))):
        call = calls[stop]
        if _is_product(call) if is_gather else _moves(call, _REDUCTIONS):
            return stop if call.count == 1 else None
        if call.case is None or not (is_gather or call.name.endswith(_COPY)):
            return None
    return None


def _moves(call: RankCall, kinds: Sequence[str]) -> bool:
    transfer = call.transfer
    return transfer is not None and transfer.dim == "tp" and transfer.kind in kinds and not call.is_beside


def _is_product(call: RankCall) -> bool:
    return call.case is not None and call.case.op in _ROWS


def overlap_time(
    case: Case, transfer: Transfer, kernel: Callable[[Case, Taken], KernelDuration],
    move: Callable[[Transfer], TransferDuration],
) -> tuple[float, int]:  # fmt: skip
    """Return the time of a product and its collective in the best number of pieces, and that number.

    In c pieces: the first piece of one, then the longer of both c - 1 times, then the last piece of the other. Products
    of pieces run on the multiprocessors and the rate of memory that the collective leaves.

    Source: pipeline of two stages; Wang et al. 2022, doi:10.1145/3567955.3567959 (decomposed collectives).
    """
    whole, whole_move = kernel(case, WHOLE), move(transfer)
    best = whole.time_s + whole_move.time_s, 1
    rows = dict(case.axes)[_ROWS[case.op]]
    for count in PIECE_COUNTS:
        if rows % count or transfer.bytes % count:
            continue
        piece_s = move(replace(transfer, bytes=transfer.bytes // count)).time_s
        product_s = kernel(_piece(case, count), whole_move.taken).time_s
        best = min(best, (piece_s + (count - 1) * max(piece_s, product_s) + product_s, count))
    return best


@lru_cache(maxsize=1 << 14)
def _piece(case: Case, count: int) -> Case:
    """Return the product of one of `count` equal pieces of the rows."""
    axis = _ROWS[case.op]
    return replace(case, axes=tuple((name, size // count if name == axis else size) for name, size in case.axes))
