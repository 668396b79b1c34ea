"""Does any schedule beat a proved term? nearpeak's bound of a tiny machine against the least of all its schedules."""

import dataclasses
from collections.abc import Iterable

from tests.brute_force.graphs import WORD_BYTES
from tests.brute_force.machine import Program, depth, least_moves, least_products

from nearpeak.core.answers.bound import PROVED, Bound
from nearpeak.core.work.target import Memory, Target
from nearpeak.targets import target_of

PINS = ("dram", "capacity", "barrier")
INNER = ("l2", "ingress")
_DEVICE = target_of("h100_sxm")


def tiny(storage: int, credit: int) -> Target:
    """Return a device with that many words on chip, `credit` of them its last cache; it moves a byte per second."""
    return dataclasses.replace(
        _DEVICE,
        dram=Memory(capacity_bytes=2**30, bandwidth_bytes_per_s=1.0, source="brute force"),
        l2=Memory(capacity_bytes=credit * WORD_BYTES, bandwidth_bytes_per_s=1.0, source="brute force"),
        on_chip_bytes=(storage - credit) * WORD_BYTES,
        clock_hz=1.0,
    )


def beaten(
    program: Program, bound: Bound, storage: int, credit: int, *, inner: bool = False, limit: int = 8_000
) -> Iterable[str]:
    """Give each proved term of `bound`, taken on `tiny(storage, credit)`, that some schedule beats.

    Args:
        inner: search the inner level too, where the multiprocessors hold `storage - credit` words and no result stays.
        limit: states after which a search gives up.
    """
    proved = {term.name: term.time_s for term in bound.terms if term.status == PROVED}
    yield from _moved(program, storage, credit, {name: proved[name] for name in PINS if name in proved}, limit)
    if inner:
        own = {name: proved[name] for name in INNER if name in proved}
        yield from _moved(program, storage - credit, 0, own, limit)
    matrix = [term for term in bound.terms if term.name == "matrix"]
    flop = sum(value for term in matrix for name, value in term.quantities.items() if name.endswith("_flop"))
    if flop > 2 * least_products(program):
        yield f"matrix: {flop} FLOP, a schedule takes {2 * least_products(program)}"
    if proved.get("depth", 0.0) > depth(program):
        yield f"depth: {proved['depth']} steps, a schedule takes {depth(program)}"


def _moved(program: Program, storage: int, credit: int, claims: dict[str, float], limit: int) -> Iterable[str]:
    """Give the claims, in bytes, that some schedule beats: only schedules below the largest claim are searched."""
    claimed = max(claims.values(), default=0.0)
    least = least_moves(program, storage, credit, below=claimed / WORD_BYTES, limit=limit) * WORD_BYTES
    yield from (f"{name}: {claim} bytes, a schedule takes {least}" for name, claim in claims.items() if claim > least)
