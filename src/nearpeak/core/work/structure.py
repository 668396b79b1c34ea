"""Reuse and order within a case's work, as the capacity, barrier and depth terms of bounds need them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Contraction:
    """Products of two operands that are summed into outputs, each triple of places at most once."""

    product_count: int
    """Multiply-adds."""
    word_bits_count: int
    """Bits of the narrowest of both operands and the result: what one place on chip holds at least."""
    reuse_count: int = 1
    """Most pairs of output position and kernel tap that one input position serves; 1 for matrix products."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Groups of an input of which every output needs its own element and a figure over the whole group."""

    group_count: int
    """Groups, which share no element."""
    group_bytes: int
    """Size of one group as stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Instructions of which each needs the result of the one before."""

    step_count: int
    """Least number of dependent instructions, one per step of a non-linear recurrence."""
    width_count: int = 1
    """Operands that are summed within one step: the hidden units."""
