"""Collective protocols within a node: launch cost, ring steps, and bytes over the links."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from nearpeak.bounds.terms.link_traffic import HOST, link_rate
from nearpeak.core.work.target import Target

STEPS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "gather": 1, "scatter": 1,
         "broadcast": 1, "reduce": 1}  # fmt: skip
"""Times that a ring passes on a part per other rank."""
SENDING = ("send", "recv")
"""Kinds that are messages between two ranks."""
_ADDING = ("all_reduce", "reduce_scatter", "reduce")
_WHOLE = ("broadcast", "reduce")
"""Kinds that pass on the whole tensor, piece after piece, instead of a part."""
MEASURED_RANKS = 4
"""Most ranks of the rows behind the coefficients (aic_collectives: 2 and 4)."""
_OWN_DTYPES = ("bf16",)
"""Formats that serving frameworks reduce with a custom kernel over peer memory."""
_BRIDGED = ("PCIe", "NVL", "RTX", "A30", "A40")
"""Words in titles of boards whose links join two of them, so that larger groups meet over the host."""
_SWITCH_RANKS = 4
"""Most ranks among which libraries were measured to keep to rings where switches could add up."""
_NEAR_BYTES = 8 * 2**20
"""Tensor size for which such kernels are built (max_size of vLLM's custom all-reduce); further bytes move slower."""


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
        """Sum of the sequential parts."""
        return self.launch_s + self.hops_s + self.fill_s + self.wire_s / self.ratio


def flagged_and_plain(
    target: Target, kind: str, ranks: Any, size: Any, fitted: Mapping[str, float]
) -> tuple[Line, Line, Any]:
    """Return the faster protocol with flags among the data, that of plain blocks, and by how much blocks are due.

    Where that last number is above 1, libraries take blocks.

    Args:
        size: bytes of the whole tensor, a column.
    """
    steps = STEPS[kind] * (ranks - 1)
    wire = size if kind in _WHOLE else steps * size / ranks
    speed = np.where(ranks == 2, fitted["pair_ratio"], 1.0) / crowding(target, ranks, fitted)
    if kind not in _ADDING:
        speed = speed * fitted["gather_ratio"] * np.where(ranks == 2, fitted["pair_gather_ratio"], 1.0)
    # No protocol outruns the link.
    lines = {
        name: _line(target, wire, fitted["launch_s"], steps * fitted[f"{name}_hop_s"], fitted.get(f"{name}_s", 0.0),
                    np.minimum(fitted[f"{name}_ratio"] * speed, 1.0), ranks)
        for name in ("ll", "ll128", "simple")
    }  # fmt: skip
    if kind == "all_reduce" and adds_in_switch(target):
        lines["simple"] = faster_line(lines["simple"], _in_switch(target, lines["simple"], ranks, size))
    switch_bytes = fitted["switch_bytes"] * np.sqrt(np.maximum(ranks - 1, 1))
    return faster_line(lines["ll"], lines["ll128"]), lines["simple"], np.maximum(wire, 1.0) / switch_bytes


def crowding(target: Target, ranks: Any, fitted: Mapping[str, float]) -> Any:
    """Return the slow-down of slots that share bridges and processors, beyond the measured ranks.

    Twice the ranks are taken to cost what they did from two to four, the one step that is known; links cost nothing.
    """
    if not meets_over_host(target):
        return np.ones_like(ranks)
    return max(fitted["pair_ratio"], 1.0) ** np.log2(np.maximum(ranks / MEASURED_RANKS, 1.0))


def adds_in_switch(target: Target) -> bool:
    """Return whether switches between the devices add up what they send: NVLink SHARP, from NVLink 4 on.

    Blackwell's switches do, too, but all-reduces of eight B200 are published at 1.11 times the rate of four, where
    Hopper's are at 1.27 and rings of the A100 at 1.02 (gpu_facts.md, collectives): they are left to the ring.

    Source: NVIDIA H100 whitepaper (2022), third-generation NVSwitch.

    >>> from nearpeak.targets import target_of
    >>> [adds_in_switch(target_of(name)) for name in ("h200_sxm", "h100_pcie", "a100_sxm_80gb", "b200_sxm")]
    [True, False, False, False]
    """
    return target.vendor == "NVIDIA" and target.architecture == "hopper" and not meets_over_host(target)


def _in_switch(target: Target, ring: Line, ranks: Any, size: Any) -> Line:
    """Return an all-reduce that switches add up: each rank sends the tensor once, and the sum of its part.

    At four ranks libraries keep to the ring, so that adding in switches is no faster there; it is taken to reach the
    share of the link at which both take equally long, and to fill buffers for each of its two phases: assumptions.
    """
    ring_bytes, alike = ring_share(_SWITCH_RANKS), 1 + 1 / _SWITCH_RANKS
    bytes_sent = size * (1 + 1 / ranks)
    return ring._replace(
        fill_s=2 * ring.fill_s,
        wire_bytes=bytes_sent,
        wire_s=bytes_sent / peer_rate(target, pair=False),
        ratio=ring.ratio * alike / ring_bytes,
    )


def ring_share(ranks: float) -> float:
    """Return the bytes that a rank sends in a ring, of those of the tensor.

    >>> ring_share(2), ring_share(4)
    (1.0, 1.5)
    """
    return STEPS["all_reduce"] * (ranks - 1) / ranks


def own_shots(
    target: Target, kind: str, dtype: str, ranks: Any, size: Any, fitted: Mapping[str, float]
) -> tuple[Line, Line] | None:
    """Return reading all of the others at once, and adding up parts and gathering them; none where frameworks do not.

    That is what kernels over peer memory do, without a ring. Slots that share bridges slow them as they slow rings.
    """
    if kind != "all_reduce" or dtype not in _OWN_DTYPES:
        return None
    hops_s = (ranks - 1) * fitted["own_hop_s"]
    near, crowded = np.minimum(1.0, _NEAR_BYTES / np.maximum(size, 1.0)), crowding(target, ranks, fitted)
    single_ratio = fitted["one_shot_ratio"] / crowded
    ratio = 1 / (near / fitted["two_shot_ratio"] + (1 - near) / fitted["far_ratio"]) / crowded
    single_shot = _line(target, (ranks - 1) * size, fitted["own_s"], hops_s, 0.0, single_ratio, ranks)
    wire = 2 * (ranks - 1) * size / ranks
    return single_shot, _line(target, wire, fitted["own_s"], hops_s, fitted["two_shot_s"], ratio, ranks)


def sending(target: Target, size: Any, fitted: Mapping[str, float]) -> Line:
    """Return a message to one peer."""
    return _line(target, size, fitted["send_s"], 0.0, 0.0, fitted["send_ratio"], 2)


def faster_line(line: Line, other: Line) -> Line:
    """Return the faster of two lines, row by row."""
    first = line.time_s <= other.time_s
    return Line(*(np.where(first, left, right) for left, right in zip(line, other, strict=True)))


def _line(target: Target, wire: Any, launch_s: Any, hops_s: Any, fill_s: Any, ratio: Any, ranks: Any) -> Line:
    wire_s = wire / np.where(np.asarray(ranks) > 2, peer_rate(target, pair=False), peer_rate(target, pair=True))
    return Line(*(np.broadcast_to(part, np.shape(wire)) for part in (launch_s, hops_s, fill_s, wire, wire_s, ratio)))


def peer_rate(target: Target, *, pair: bool) -> float:
    """Return the rate of the links to other devices; of the host link where there are none, or bridges of pairs."""
    bridged = not pair and is_bridged(target)
    peers = [link.bandwidth_bytes_per_s for name, link in target.links.items() if name != HOST and not bridged]
    return sum(peers) if peers else link_rate(target, "link" if HOST not in target.links else HOST)


def meets_over_host(target: Target) -> bool:
    """Return whether more than two boards meet over the host link.

    >>> from nearpeak.targets import target_of
    >>> [meets_over_host(target_of(name)) for name in ("l40s", "rtx_4090", "h100_pcie", "h100_sxm")]
    [True, True, True, False]
    """
    return is_bridged(target) or set(target.links) <= {HOST}


def is_bridged(target: Target) -> bool:
    """Return whether links join two boards at most, so that larger groups meet over the host."""
    return any(word in target.title for word in _BRIDGED)
