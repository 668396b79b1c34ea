"""Rules of a federated round: policies that choose clients, and servers that wait for all, one or some of them."""

import math
from dataclasses import dataclass

from nearpeak.errors import SpecError

POLICIES = {
    "random": "clients drawn evenly among those present",
    "fastest": "clients with the shortest expected round",
    "deadline": "drawn clients, without those that need longer than the deadline; their energy still counts",
    "energy": "clients with the least energy per training sample",
    "omnifedge": "all clients, each with a model of its own weighted by how well it does on the others' data",
}
"""Policies by name, in words."""
SERVERS = {
    "sync": "waits for every client of the round",
    "async": "mixes in each update when it arrives, with weight alpha / (1 + staleness)^beta",
    "buffered": "averages a number of updates at a time, each with weight 1 / sqrt(1 + staleness)",
}
"""Servers by name, in words. Sources: Xie et al. 2019, arXiv:1903.03934 (async); Nguyen et al. 2022,
arXiv:2106.06639 (buffered)."""
ALPHA, BETA = 0.6, 0.5
"""Mixing weight and exponent of FedAsync's polynomial rule (Xie et al. 2019, section 6)."""
_TIMES = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionPolicy:
    """Rule by which the clients of a round are chosen."""

    name: str
    """One of POLICIES."""
    deadline_s: float | None = None
    """Time after which a client's update does not count; of `deadline` only."""

    @property
    def words(self) -> str:
        """The policy as it is written on the command line."""
        return self.name if self.deadline_s is None else f"{self.name}={self.deadline_s:g}s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRule:
    """Rule by which a server turns updates into the next model."""

    name: str = "sync"
    """One of SERVERS."""
    buffer_count: int = 1
    """Updates that make the next model; of `buffered` only."""

    @property
    def words(self) -> str:
        """The rule as it is written on the command line."""
        return f"{self.name}={self.buffer_count}" if self.name == "buffered" else self.name

    def weight(self, staleness: int) -> float:
        """Return the weight of an update that is `staleness` versions old, before weights of a buffer are normalised.

        >>> ServerRule(name="async").weight(3), ServerRule(name="buffered", buffer_count=2).weight(3)
        (0.3, 0.5)
        """
        if self.name == "async":
            return ALPHA / math.pow(1 + staleness, BETA)
        return 1.0 / math.sqrt(1 + staleness) if self.name == "buffered" else 1.0


def policy_of(text: str) -> SelectionPolicy:
    """Return the policy of `--policy`.

    >>> policy_of("deadline=20s").deadline_s
    20.0
    >>> policy_of("slowest")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: policy 'slowest': is not one of random, fastest, deadline=TIME, energy, omnifedge
    """
    name, sign, value = text.partition("=")
    known = ", ".join("deadline=TIME" if policy == "deadline" else policy for policy in POLICIES)
    if name not in POLICIES or bool(sign) != (name == "deadline"):
        raise SpecError(f"policy {text!r}: is not one of {known}")
    return SelectionPolicy(name=name, deadline_s=_seconds(value, text) if sign else None)


def server_of(text: str) -> ServerRule:
    """Return the server of `--server`.

    >>> server_of("buffered=10").buffer_count
    10
    """
    name, sign, value = text.partition("=")
    if name not in SERVERS or bool(sign) != (name == "buffered"):
        raise SpecError(f"server {text!r}: is not one of sync, async, buffered=UPDATES")
    if sign and not (value.isdecimal() and 0 < int(value) < 10**6):
        raise SpecError(f"server {text!r}: {value!r} is not a number of updates; e.g. buffered=10")
    return ServerRule(name=name, buffer_count=int(value) if sign else 1)


def _seconds(value: str, text: str) -> float:
    digits = value.rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    factor_s = _TIMES.get(value[len(digits) :].strip(), 0.0)
    try:
        time_s = float(digits) * factor_s
    except ValueError:
        time_s = 0.0
    if not 0 < time_s < 1e9:
        raise SpecError(f"policy {text!r}: {value!r} is not a time; e.g. deadline=20s")
    return time_s
