"""Reading, checking and writing of fabric files: tiers of links with a source for every figure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.systems.fabric import Fabric, Tier, TransferFit
from nearpeak.errors import SpecError
from nearpeak.targets.device_file import positive_quantity

KINDS = ("node", "network", "whole")
"""What a file describes: the links inside a node, those between nodes (of one port), or all of a cluster."""
_TOP: Mapping[str, type] = {
    "title": str, "kind": str, "targets": list, "port_count": int, "port_source": str, "same_as": str, "tier": list,
}  # fmt: skip
_TIER: Mapping[str, type] = {
    "name": str, "device_count": int, "bandwidth": str, "latency": str, "reduces": bool, "oversubscription": float,
    "shared_by": int, "reached_ratio": float, "source": str, "fit": list,
}  # fmt: skip
_FIT: Mapping[str, type] = {
    "kind": str,
    "rank_count": int,
    "base_s": float,
    "bytes_per_s": float,
    "low_ratio": float,
    "high_ratio": float,
}
_NEEDED = ("name", "device_count", "bandwidth", "latency", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFile:
    """What one fabric file states."""

    fabric: Fabric
    """Its tiers."""
    kind: str
    """One of KINDS."""
    targets: tuple[str, ...] = ()
    """Devices that such nodes are built of."""
    port_count: int = 0
    """Network ports of a node; 0 where no document states them."""
    port_source: str = ""
    """Document that states the ports."""


def parse_fabric(name: str, raw: Mapping[str, Any], where: str = "") -> FabricFile:
    """Return what a fabric file states.

    Raises:
        SpecError: an entry is missing, unknown, of the wrong type or unit, or contradicts another.

    >>> tier = {"name": "x", "device_count": 0, "bandwidth": "1 GB/s", "latency": "1 us", "source": "datasheet"}
    >>> parse_fabric("mine", {"title": "Mine", "kind": "network", "tier": [tier]}).fabric.tiers[0].latency_s
    1e-06
    """
    where = where or f"fabric {name}"
    _check(where, raw, _TOP, ("title", "kind", "tier"))
    if raw["kind"] not in KINDS:
        raise SpecError(f"{where}: kind is {raw['kind']!r}; it must be one of {', '.join(KINDS)}")
    tiers = tuple(_tier(f"{where}, tier {place + 1}", table) for place, table in enumerate(raw["tier"]))
    if raw["kind"] == "node" and not (tiers and tiers[-1].device_count):
        raise SpecError(f"{where}: device_count of the last tier of a node is 0; say how many devices the node has")
    if raw.get("port_count", 0) and not raw.get("port_source"):
        raise SpecError(f"{where}: port_count has no port_source; name the document")
    return FabricFile(
        fabric=Fabric(name=name, title=raw["title"], tiers=tiers), kind=raw["kind"],
        targets=tuple(raw.get("targets", ())), port_count=raw.get("port_count", 0),
        port_source=raw.get("port_source", ""),
    )  # fmt: skip


def fabric_text(fabric: Fabric, kind: str = "whole") -> str:
    """Return the file of a fabric, which `parse_fabric` reads.

    >>> tier = Tier(name="x", device_count=0, bandwidth_bytes_per_s=1e9, latency_s=1e-6, source="datasheet")
    >>> print(fabric_text(Fabric(name="mine", title="Mine", tiers=(tier,))).splitlines()[0])
    title = "Mine"
    """
    lines = [f"title = {json.dumps(fabric.title)}", f'kind = "{kind}"']
    for tier in fabric.tiers:
        lines += [
            "", "[[tier]]", f"name = {json.dumps(tier.name)}", f"device_count = {tier.device_count}",
            f'bandwidth = "{tier.bandwidth_bytes_per_s:.6g} B/s"', f'latency = "{tier.latency_s:.6g} s"',
            f"reduces = {str(tier.reduces).lower()}", f"oversubscription = {float(tier.oversubscription)}",
            f"shared_by = {tier.shared_by}", f"reached_ratio = {float(tier.reached_ratio)}",
            f"source = {json.dumps(tier.source)}",
        ]  # fmt: skip
        for fit in tier.fits:
            figures = ", ".join(
                f"{name} = {json.dumps(getattr(fit, name)) if name == 'kind' else getattr(fit, name)}" for name in _FIT
            )
            lines.append(f"[[tier.fit]]\n{figures.replace(', ', chr(10))}")
    return "\n".join(lines) + "\n"


def _tier(where: str, raw: Any) -> Tier:
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: is {raw!r}; it must be a table")
    _check(where, raw, _TIER, _NEEDED)
    fits = []
    for place, table in enumerate(raw.get("fit", ())):
        _check(f"{where}, fit {place + 1}", table, _FIT, ("kind", "rank_count", "base_s", "bytes_per_s"))
        fits.append(TransferFit(**table))
    rest = {key: raw[key] for key in ("reduces", "oversubscription", "shared_by", "reached_ratio") if key in raw}
    return Tier(
        name=raw["name"], device_count=raw["device_count"],
        bandwidth_bytes_per_s=positive_quantity(f"{where}: bandwidth", raw["bandwidth"], "B/s"),
        latency_s=positive_quantity(f"{where}: latency", raw["latency"], "s"), source=raw["source"],
        fits=tuple(fits), **rest,
    )  # fmt: skip


def _check(where: str, raw: Any, known: Mapping[str, type], needed: tuple[str, ...]) -> None:
    if not isinstance(raw, dict):
        raise SpecError(f"{where}: is {raw!r}; it must be a table")
    for key in needed:
        if key not in raw:
            raise SpecError(f"{where}: entry {key!r} is missing")
    for key, value in raw.items():
        if key not in known:
            raise SpecError(f"{where}: entry {key!r} is not known; there are {', '.join(known)}")
        is_number = known[key] is float and isinstance(value, int) and not isinstance(value, bool)
        if not is_number and (not isinstance(value, known[key]) or (known[key] is int and isinstance(value, bool))):
            raise SpecError(f"{where}: {key} is {value!r}; it must be of type {known[key].__name__}")
