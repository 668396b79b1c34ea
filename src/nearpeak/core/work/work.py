"""Least work of a case, independent of any machine: arithmetic by kind, bytes read and written, launches."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.work.structure import Barrier, Chain, Contraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """Least work of any program that computes a case; adds and scales like a vector."""

    flop: Mapping[str, int] = field(default_factory=dict)
    """FLOP by kind: `matrix.<dtype>` (products that matrix units can form) or `vector.<dtype>`; an FMA is 2."""
    recompute_flop: Mapping[str, int] = field(default_factory=dict)
    """Part of `flop` that only repeats what an earlier operator of the same step computed."""
    special_count: int = 0
    """Evaluations of exp, log, sqrt, division and the like."""
    read_bytes: int = 0
    """Distinct bytes that must be read."""
    write_bytes: int = 0
    """Distinct bytes that must be written."""
    comm_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes that must cross a link of one device, by port and direction: `peer.in`, `peer.out` (other devices, with
    switches that add up and multicast), `endpoint.in`, `endpoint.out` (the mean over the devices of a group, without
    such switches), `host.in`, `host.out`."""
    launch_count: int = 1
    """Kernels launched when each operator is one kernel."""
    contraction: Contraction | None = None
    """Products that share operands, where a single case has them; a sum of works keeps no such structure."""
    barrier: Barrier | None = None
    """Groups of an input that are needed twice; a sum of works keeps none."""
    chain: Chain | None = None
    """Instructions that wait for each other; a sum of works keeps none."""

    def __add__(self, other: "Work") -> "Work":
        """Return the work of doing both.

        >>> (Work(flop={"vector.fp32": 2}, read_bytes=8) + Work(flop={"vector.fp32": 3}, write_bytes=4)).flop
        {'vector.fp32': 5}
        """
        return Work(
            flop=_added(self.flop, other.flop),
            recompute_flop=_added(self.recompute_flop, other.recompute_flop),
            special_count=self.special_count + other.special_count,
            read_bytes=self.read_bytes + other.read_bytes,
            write_bytes=self.write_bytes + other.write_bytes,
            comm_bytes=_added(self.comm_bytes, other.comm_bytes),
            launch_count=self.launch_count + other.launch_count,
        )

    def __mul__(self, count: int) -> "Work":
        """Return the work of doing it `count` times.

        >>> (Work(read_bytes=8) * 3).read_bytes
        24
        """
        return Work(
            flop={unit: amount * count for unit, amount in self.flop.items()},
            recompute_flop={unit: amount * count for unit, amount in self.recompute_flop.items()},
            special_count=self.special_count * count,
            read_bytes=self.read_bytes * count,
            write_bytes=self.write_bytes * count,
            comm_bytes={port: amount * count for port, amount in self.comm_bytes.items()},
            launch_count=self.launch_count * count,
        )

    @property
    def total_flop(self) -> int:
        """All FLOP, of every kind."""
        return sum(self.flop.values())


NO_WORK = Work(launch_count=0)
"""The neutral element of `+`."""


def _added(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {unit: left.get(unit, 0) + right.get(unit, 0) for unit in sorted({*left, *right})}
