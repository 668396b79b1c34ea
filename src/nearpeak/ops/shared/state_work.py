"""Bytes that a recurrence over a state reads and writes, forward and backward."""

from collections.abc import Mapping
from typing import NamedTuple

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work


class Operands(NamedTuple):
    """Elements of what a recurrence takes and gives."""

    dtype: DType
    """Format of all but the states."""
    state_dtype: DType
    """Format of the first and of the final state."""
    outputs: int
    """Elements of the output, and of the one operand that is shaped like it."""
    others: int
    """Elements of all other operands but the state."""
    states: int
    """Elements of the state."""


def forward_work(
    operands: Operands, flop: Mapping[str, int], special_count: int, *, begun: bool, ended: bool
) -> Work:  # fmt: skip
    """Return the work that reads every operand and the first state once, and writes the output and the final one."""
    dtype, state_dtype, outputs, others, states = operands
    return Work(
        flop=flop,
        special_count=special_count,
        read_bytes=dtype.bytes(outputs + others) + state_dtype.bytes(begun * states),
        write_bytes=dtype.bytes(outputs) + state_dtype.bytes(ended * states),
    )


def backward_work(
    operands: Operands, flop: Mapping[str, int], special_count: int, *, again: Mapping[str, int] | None = None,
    begun: bool, ended: bool,
) -> Work:  # fmt: skip
    """Return the work that reads operands and upstream gradients, and writes a gradient for each operand.

    Args:
        again: FLOP that repeat the forward pass.
        begun: a first state was given and has a gradient.
        ended: the final state has a gradient.
    """
    dtype, state_dtype, outputs, others, states = operands
    return Work(
        flop=flop,
        recompute_flop=again or {},
        special_count=special_count,
        read_bytes=dtype.bytes(2 * outputs + others) + state_dtype.bytes((begun + ended) * states),
        write_bytes=dtype.bytes(outputs + others) + state_dtype.bytes(begun * states),
    )
