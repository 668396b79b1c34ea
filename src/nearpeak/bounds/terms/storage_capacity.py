"""Capacity terms: the traffic of products with operand reuse when the storage cannot hold all operands."""

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from nearpeak.bounds.terms.memory_traffic import bandwidth_of
from nearpeak.bounds.terms.term_column import TermColumn, is_zero
from nearpeak.core.answers.bound import MODEL, PROVED, STRICT_DTYPES, Policy
from nearpeak.core.work.structure import Contraction
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work

# Theorem. A program forms V products a·b, each summed into one output, on a machine with S words of storage. Then it
# moves at least 2 V / sqrt(S R) - 3 S words in and out of that storage, whatever its order, splitting of sums and
# recomputation, where R is the most (output, tap) pairs that one input position serves. Proof: docs/guide/bounds.md.

_MOVED_WORDS = "max(2 * products_count / sqrt({words} * reuse_count) - 3 * {words}, 0)"
_BYTES = f"word_bits / 8 * {_MOVED_WORDS}"
_FORMULA = "(2 products / sqrt(S reuse) - 3 S)+ / {level} rate"


def storage_bytes(target: Target) -> int | None:
    """Return all storage on the chip: last cache, registers, shared and tensor memory; none where one is open."""
    if target.on_chip_bytes is None or target.l2.capacity_bytes is None:
        return None
    return target.on_chip_bytes + target.l2.capacity_bytes


def capacity_terms(work: Work, target: Target, policy: Policy) -> Sequence[TermColumn]:
    """Charge the traffic that limited storage forces: on memory, and on the last cache where its rate is known."""
    if work.contraction is None or policy.algorithm != "classical":
        return ()
    terms = []
    whole, inner, l2_rate = storage_bytes(target), target.on_chip_bytes, target.l2.bandwidth_bytes_per_s
    if whole is not None:
        levels = ("storage_bytes", whole, "dram_bytes_per_s", bandwidth_of(target))
        terms.append(_term("capacity", work.contraction, policy, levels, "DRAM"))
    if inner is not None and l2_rate:
        levels = ("multiprocessors_bytes", inner, "l2_bytes_per_s", l2_rate)
        terms.append(_term("ingress", work.contraction, policy, levels, "L2"))
    return [term for term in terms if not is_zero(term.time_s)]


def moved_words(contraction: Contraction, words: float) -> Any:
    """Return the words that must move in or out of a storage of that many words.

    >>> moved_words(Contraction(product_count=64, word_bits_count=16), 4.0)
    52.0
    """
    reused: Any = words * contraction.reuse_count
    root = sqrt(reused) if isinstance(reused, (int, float)) else np.sqrt(reused)
    least: Any = 2 * contraction.product_count / root - 3 * words
    return max(least, 0.0) if isinstance(least, float) else np.maximum(least, 0.0)


def _term(
    name: str, contraction: Contraction, policy: Policy, levels: tuple[str, int, str, float], level: str
) -> TermColumn:
    """Return the term of one level: a storage by name and size, filled at a rate by name and figure."""
    storage, size_bytes, speed, rate = levels
    bits = contraction.word_bits_count
    words = size_bytes * 8 / bits
    return TermColumn(
        name=name,
        time_s=bits / 8 * moved_words(contraction, words) / rate,
        # A policy that permits narrower products permits narrower copies on chip, so that more of them fit.
        status=PROVED if policy.dtype in STRICT_DTYPES else MODEL,
        formula=_FORMULA.format(level=level),
        expression=f"{_BYTES.format(words=f'({storage} * 8 / word_bits)')} / {speed}",
        quantities={
            "products_count": contraction.product_count, "reuse_count": contraction.reuse_count, "word_bits": bits,
            storage: size_bytes, speed: rate,
        },
    )  # fmt: skip
