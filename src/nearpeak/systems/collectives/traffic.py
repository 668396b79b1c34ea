"""Bytes and steps of collectives: what rings pass on, and what must leave and enter a part of a group."""

from nearpeak.base.registry import entry_of
from nearpeak.core.systems.rank_program import COLLECTIVES
from nearpeak.errors import SpecError

_PASSES = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}
"""Times that a ring passes on the parts of all other ranks; the other kinds pass on the whole message once."""


def check_transfer(kind: str, size_bytes: float, rank_count: int) -> None:
    """Refuse a collective that does not exist."""
    entry_of("collective", dict.fromkeys(COLLECTIVES), kind)
    if size_bytes < 0 or rank_count < 1:
        raise SpecError(f"{kind}: needs at least 0 bytes and 1 rank; got {size_bytes:g} and {rank_count}")


def ring_bytes(kind: str, size_bytes: float, rank_count: int) -> float:
    """Return the bytes that each rank of a ring sends; 0 for a group of one.

    Source: Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002; Chan et al. 2007, doi:10.1002/cpe.1206.

    >>> ring_bytes("all_reduce", 8e6, 8), ring_bytes("all_gather", 8e6, 8), ring_bytes("send", 8e6, 2)
    (14000000.0, 7000000.0, 8000000.0)
    """
    check_transfer(kind, size_bytes, rank_count)
    if rank_count == 1:
        return 0.0
    return _PASSES[kind] * (rank_count - 1) / rank_count * size_bytes if kind in _PASSES else float(size_bytes)


def ring_steps(kind: str, rank_count: int) -> int:
    """Return the steps of a ring one after the other; exchanges send to all peers at once.

    >>> ring_steps("all_reduce", 8), ring_steps("all_to_all", 8), ring_steps("send", 2)
    (14, 1, 1)
    """
    if rank_count == 1:
        return 0
    if kind in ("send", "all_to_all"):
        return 1
    return _PASSES.get(kind, 1) * (rank_count - 1)


def exchanged_bytes(size_bytes: float, rank_count: int, part_rank_count: int) -> float:
    """Return what one rank of an all_to_all sends to ranks outside its part of the group.

    >>> exchanged_bytes(8e6, 16, 8)
    4000000.0
    """
    return size_bytes * (rank_count - part_rank_count) / rank_count


def compulsory_bytes(
    kind: str, size_bytes: float, rank_count: int, part_rank_count: int, part_count: int, *, switches_add: bool
) -> float:  # fmt: skip
    """Return the bytes that must cross the border of a part of the group in one direction, whatever the algorithm.

    all_reduce: others need the sum of the part, and the part that of the others; without switches that add up, parts
    send 2 (m - 1) / m of the message on average. all_gather and reduce_scatter: what the ranks outside own, in or out.

    Args:
        part_rank_count: ranks in the part.
        part_count: parts m that the group falls into.
        switches_add: whether switches add up and multicast.

    Source: Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002, with a part as one endpoint.

    >>> compulsory_bytes("all_reduce", 8e6, 32, 8, 4, switches_add=False)
    12000000.0
    >>> compulsory_bytes("all_gather", 8e6, 16, 8, 2, switches_add=True)
    4000000.0
    """
    check_transfer(kind, size_bytes, rank_count)
    if part_count == 1:
        return 0.0
    if kind == "all_reduce":
        return size_bytes if switches_add else 2 * (part_count - 1) / part_count * size_bytes
    outside_bytes = exchanged_bytes(size_bytes, rank_count, part_rank_count)
    if kind in ("all_gather", "reduce_scatter"):
        return outside_bytes
    return part_rank_count * outside_bytes if kind == "all_to_all" else float(size_bytes)
