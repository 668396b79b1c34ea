"""Protocols of collectives among the devices of a node: what starts them, the steps of a ring, bytes over a link."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.target import Target
from nearpeak.theory.links import HOST, link_rate

STEPS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "gather": 1, "scatter": 1,
         "broadcast": 1, "reduce": 1}  # fmt: skip
"""Times that a ring passes on a part per other rank."""
SENDING = ("send", "recv")
"""Kinds that are messages between two ranks."""
_ADDING = ("all_reduce", "reduce_scatter", "reduce")
_WHOLE = ("broadcast", "reduce")
"""Kinds that pass on the whole tensor, piece after piece, instead of a part."""
_OWN_DTYPES = ("bf16",)
"""Formats that serving frameworks add up with a kernel of their own over peer memory."""
_BRIDGED = ("PCIe", "NVL", "RTX", "A30", "A40")
"""Words in titles of boards whose links join two of them, so that larger groups meet over the host."""
_NEAR_BYTES = 8 * 2**20
"""Tensor for which such kernels are built (max_size of vLLM's custom all-reduce); what is beyond moves slower."""


class Line(NamedTuple):
    """A fixed time and bytes over the link, as columns of one length."""

    launch_s: Any
    """Start and end."""
    hops_s: Any
    """Steps from rank to rank that a byte waits for."""
    fill_s: Any
    """Filling buffers."""
    wire_bytes: Any
    """Bytes that leave a rank."""
    wire_s: Any
    """Those bytes at the rate of the link."""
    ratio: Any
    """Share of that rate that the protocol reaches."""

    @property
    def time_s(self) -> Any:
        """All of it, one after the other."""
        return self.launch_s + self.hops_s + self.fill_s + self.wire_s / self.ratio


def flagged_and_plain(
    target: Target, kind: str, ranks: Any, size: Any, scalar: Mapping[str, float]
) -> tuple[Line, Line, Any]:
    """Return the faster protocol with flags among the data, that of plain blocks, and by how much blocks are due.

    Where that last number is above 1, libraries take blocks.

    Args:
        size: bytes of the whole tensor, a column.
    """
    steps = STEPS[kind] * (ranks - 1)
    wire = size if kind in _WHOLE else steps * size / ranks
    speed = np.where(ranks == 2, scalar["pair_ratio"], 1.0)
    if kind not in _ADDING:
        speed = speed * scalar["gather_ratio"] * np.where(ranks == 2, scalar["pair_gather_ratio"], 1.0)
    # No protocol outruns the link.
    lines = {
        name: _line(target, wire, scalar["launch_s"], steps * scalar[f"{name}_hop_s"], scalar.get(f"{name}_s", 0.0),
                    np.minimum(scalar[f"{name}_ratio"] * speed, 1.0), ranks)
        for name in ("ll", "ll128", "simple")
    }  # fmt: skip
    switch_bytes = scalar["switch_bytes"] * np.sqrt(np.maximum(ranks - 1, 1))
    return quicker(lines["ll"], lines["ll128"]), lines["simple"], np.maximum(wire, 1.0) / switch_bytes


def own_shots(
    target: Target, kind: str, dtype: str, ranks: Any, size: Any, scalar: Mapping[str, float]
) -> tuple[Line, Line] | None:
    """Return reading all of the others at once, and adding up parts and gathering them; none where frameworks do not.

    That is what kernels over peer memory do, without a ring.
    """
    if kind != "all_reduce" or dtype not in _OWN_DTYPES:
        return None
    hops_s = (ranks - 1) * scalar["own_hop_s"]
    one = _line(target, (ranks - 1) * size, scalar["own_s"], hops_s, 0.0, scalar["one_shot_ratio"], ranks)
    near = np.minimum(1.0, _NEAR_BYTES / np.maximum(size, 1.0))
    ratio = 1 / (near / scalar["two_shot_ratio"] + (1 - near) / scalar["far_ratio"])
    wire = 2 * (ranks - 1) * size / ranks
    return one, _line(target, wire, scalar["own_s"], hops_s, scalar["two_shot_s"], ratio, ranks)


def sending(target: Target, size: Any, scalar: Mapping[str, float]) -> Line:
    """Return a message to one peer."""
    return _line(target, size, scalar["send_s"], 0.0, 0.0, scalar["send_ratio"], 2)


def quicker(one: Line, other: Line) -> Line:
    """Return the faster of two lines, row by row."""
    first = one.time_s <= other.time_s
    return Line(*(np.where(first, left, right) for left, right in zip(one, other, strict=True)))


def _line(target: Target, wire: Any, launch_s: Any, hops_s: Any, fill_s: Any, ratio: Any, ranks: Any) -> Line:
    wire_s = wire / np.where(np.asarray(ranks) > 2, peer_rate(target, pair=False), peer_rate(target, pair=True))
    return Line(*(np.broadcast_to(part, np.shape(wire)) for part in (launch_s, hops_s, fill_s, wire, wire_s, ratio)))


def peer_rate(target: Target, *, pair: bool) -> float:
    """Return the rate of the links to other devices; of the host link where there are none, or bridges of pairs."""
    bridged = not pair and is_bridged(target)
    peers = [link.bandwidth_bytes_per_s for name, link in target.links.items() if name != HOST and not bridged]
    return sum(peers) if peers else link_rate(target, "link" if HOST not in target.links else HOST)


def is_bridged(target: Target) -> bool:
    """Return whether links join two boards at most, so that larger groups meet over the host."""
    return any(word in target.title for word in _BRIDGED)
