"""Pointwise calls that an inference engine computes in the kernel of the product before them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nearpeak.core.work.workload import Call, Workload
from nearpeak.ops import OPS

ROOTS = ("product", "convolution")
"""Families of operators whose kernels take an epilogue. Source: NVIDIA TensorRT developer guide, section on layer
fusion: convolution and fully connected layers with activations, element-wise sums and scales."""


class Epilogues(NamedTuple):
    """Calls of a piece that need no kernel of their own."""

    shares: Mapping[int, float]
    """Share of each such call's traffic that stays, by position: operands that the product does not make."""

    def rest(self, positions: Sequence[int]) -> tuple[int, ...]:
        """Return the calls that keep a kernel."""
        return tuple(position for position in positions if position not in self.shares)


def reader_counts(calls: Sequence[Call]) -> Mapping[int, int]:
    """Return the number of calls that read each storage."""
    counts: dict[int, int] = {}
    for call in calls:
        for buffer in {use.buffer for use in call.reads}:
            counts[buffer] = counts.get(buffer, 0) + 1
    return counts


def epilogues(workload: Workload, positions: Sequence[int], readers: Mapping[int, int]) -> Epilogues:
    """Return the pointwise calls among `positions` whose main operand comes from a product that nothing else reads.

    Args:
        readers: calls that read each storage.
    """
    products: set[int] = set()  # storages that a product wrote, with its epilogue so far
    shares: dict[int, float] = {}
    for position in positions:
        call = workload.calls[position]
        if call.case is None or call.call_count != 1:
            continue
        family = OPS[call.case.op].family
        if family in ROOTS:
            products.update(use.buffer for use in call.writes)
        elif family == "pointwise" and (share := _share(workload, call, products, readers)) is not None:
            shares[position] = share
            products.update(use.buffer for use in call.writes)
    return Epilogues(shares)


def _share(workload: Workload, call: Call, products: set[int], readers: Mapping[int, int]) -> float | None:
    """Return the share of the call's traffic that stays as an epilogue; none where it cannot be one."""
    written_bytes = sum(use.bytes for use in call.writes)
    for use in reversed(call.reads):
        is_own = use.buffer in products and readers.get(use.buffer) == 1
        if is_own and use.bytes == written_bytes and workload.buffers[use.buffer].kind == "activation":
            read_bytes = sum(other.bytes for other in call.reads)
            return (read_bytes - use.bytes) / (read_bytes + written_bytes) if written_bytes else 0.0
    return None
