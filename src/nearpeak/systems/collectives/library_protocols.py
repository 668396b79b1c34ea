"""Protocols of collective libraries: time of a hop beyond the wire, and share of the link that each reaches."""

from typing import NamedTuple


class Protocol(NamedTuple):
    """One way of sending, as collective libraries implement it."""

    algorithm: str
    """`ring`, `tree` or `switch`."""
    name: str
    """`LL` (a flag in every word), `LL128` (a flag in every line) or `Simple` (blocks, and flags apart)."""
    start_s: float
    """Start and end of one collective."""
    hop_s: float
    """Time of one hop between nodes beyond the latency of the tier."""
    inner_hop_s: float
    """The same inside further nodes than one; 0 where no message passes through all ranks of a node."""
    reached_ratio: float
    """Share of the bandwidth that collectives reach at best."""


NCCL = "NCCL src/graph/tuning.cc, tables of base and hardware latencies and refinements of bandwidths (NVIDIA, BSD-3)"
"""Source of the protocols."""

RINGS = (
    Protocol("ring", "LL", 6.6e-6, 0.0, 0.0, 1 / 4),
    Protocol("ring", "LL128", 14e-6, 1.3e-6, 0.1e-6, 0.92),
    Protocol("ring", "Simple", 8.4e-6, 6.9e-6, 2.8e-6, 1.0),
)
"""Rings over all ranks: hops of 2.7, 4.0 and 9.6 us over the network, 0.6 and 3.4 us (Simple) over NVLink there.

LL128 over NVLink: 0.1 us more than LL in our fits to the tables of AIConfigurator 0.12 on A100 and H100.
"""

TREES = (
    Protocol("tree", "LL", 6.8e-6, 2.3e-6, 0.0, 0.9 / 3.8),
    Protocol("tree", "LL128", 14e-6, 5.8e-6, 0.0, 0.9 * 0.915),
    Protocol("tree", "Simple", 0.0, 25.3e-6, 0.0, 0.9),
)
"""Double binary trees between nodes, chains inside: hops of 5.0, 8.5 and 28 us over the network."""

SWITCH = Protocol("switch", "Simple", 8.4e-6, 8.0e-6, 0.0, 0.9)
"""Sums that the network's switches form (CollNet): a hop of 10.7 us."""


BATCH_COUNT = 8
"""Messages to peers that one batch of an exchange sends at once.

Source: NCCL src/include/device.h, NCCL_MAX_DEV_WORK_P2P_PER_BATCH.
"""


def protocols_of(kind: str, *, is_added_by_switches: bool, algorithm: str = "") -> tuple[Protocol, ...]:
    """Return the protocols among which libraries choose for a collective between nodes.

    Args:
        algorithm: the one that a library is told to take, where it has that for the kind.

    >>> [protocol.algorithm for protocol in protocols_of("all_gather", is_added_by_switches=True)]
    ['ring', 'ring', 'ring']
    """
    if kind in ("send", "all_to_all"):
        return RINGS[2:]
    if kind != "all_reduce":
        return RINGS
    protocols = (*RINGS, *TREES, SWITCH) if is_added_by_switches else (*RINGS, *TREES)
    return tuple(each for each in protocols if each.algorithm == algorithm) or protocols


def tree_limit(protocol: Protocol, node_count: int) -> float:
    """Return the message bytes per second above which libraries take no tree of chains within nodes for its worth.

    Source: NCCL src/graph/tuning.cc, maxTreeBw: buses of 110 and 130 GB/s (LL128) between two nodes, 80 and 105 between
    more, of which a tree gives half.

    >>> tree_limit(TREES[2], 2) / 1e9, tree_limit(TREES[1], 4) / 1e9
    (55.0, 52.5)
    """
    is_lines = protocol.name == "LL128"
    return (65e9 if is_lines else 55e9) if node_count == 2 else (52.5e9 if is_lines else 40e9)
