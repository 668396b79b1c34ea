"""Link terms: bytes that must enter or leave a device over the rate of its links in one direction."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from nearpeak.bounds.terms.term_column import TermColumn, larger
from nearpeak.core.answers.bound import PROVED, Policy
from nearpeak.core.work.target import Link, Target
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError

HOST = "host"
"""Name of the link to the host in device files."""


def moved_bytes(work: Work, policy: Policy) -> Iterator[tuple[str, Any]]:
    """Yield `link` and `host` with the larger of the bytes in and out, where there are any."""
    if not work.comm_bytes:
        return
    # Without help of switches a device still sends and receives what it must with it.
    peers = ("peer",) if policy.switch_reduction else ("peer", "endpoint")
    for name, ports in (("link", peers), (HOST, (HOST,))):
        size_bytes: Any = 0
        for port, way in product(ports, ("in", "out")):
            size_bytes = larger(size_bytes, work.comm_bytes.get(f"{port}.{way}", 0))
        if np.any(np.asarray(size_bytes) > 0):
            yield name, size_bytes


def links_of(target: Target, name: str) -> list[Link]:
    """Return all links of the device, or its host link alone.

    Raises:
        NotModelledError: no document states one.
    """
    links = [link for key, link in target.links.items() if name == "link" or key == HOST]
    if not links:
        what = "link to the host" if name == HOST else "link to other devices"
        raise NotModelledError(f"{target.name}: no {what} is documented, so no bound on traffic over it")
    return links


def link_rate(target: Target, name: str) -> float:
    """Return the bytes per second in one direction of all links, or of the host link."""
    return sum(link.bandwidth_bytes_per_s for link in links_of(target, name))


def link_terms(work: Work, target: Target, policy: Policy) -> Iterator[TermColumn]:
    """Yield each link term that `work` has.

    Traffic with other devices may take all links at once, that to the host among them: peers reach each other over
    both. Directions do not slow each other, so the larger one counts. A CPU is the host: its copies cross no link.

    Raises:
        NotModelledError: no document states a link that the work needs.
    """
    for name, size_bytes in moved_bytes(work, policy):
        if name == HOST and _is_host(target):
            continue
        rate = link_rate(target, name)
        yield TermColumn(
            name=name, time_s=size_bytes / rate, status=PROVED,
            formula=f"larger of bytes in and out / {_FORMULA[name]}",
            expression=f"moved_bytes / {name}_bytes_per_s",
            quantities={"moved_bytes": size_bytes, f"{name}_bytes_per_s": rate},
        )  # fmt: skip


def _is_host(target: Target) -> bool:
    return target.kind == "cpu"


def link_assumptions(work: Work, target: Target, policy: Policy) -> tuple[str, ...]:
    """Return the identifiers of what the link terms of `work` rest on."""
    ports = {port.split(".")[0] for port in work.comm_bytes}.difference([HOST] if _is_host(target) else [])
    peers = ("A15", *(["A17"] if policy.switch_reduction else [])) if "peer" in ports else ()
    return tuple(sorted({*peers, *(("A15", "A16") if HOST in ports else ())}))


_FORMULA = {"link": "rate of all links in one direction", HOST: "rate of the host link in one direction"}
