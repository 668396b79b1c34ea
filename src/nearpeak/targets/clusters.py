"""Fabrics by name, and clusters: a number of devices on the fabric of their nodes and a network between these."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import reading, toml_of_file
from nearpeak.base.registry import unknown_name
from nearpeak.core.systems.fabric import Cluster, Fabric, Tier
from nearpeak.errors import SpecError
from nearpeak.targets import target_of, user_folder
from nearpeak.targets.fabric_file import FabricFile, parse_fabric

_FOLDER = Path(__file__).parent / "fabrics"
_NO_LINK = Tier(name="device", device_count=1, bandwidth_bytes_per_s=inf, latency_s=0.0, source="none needed")
ONE_DEVICE = Fabric(name="none", title="One device", tiers=(_NO_LINK,))
"""Fabric of a device alone, whatever it is."""
_COUNTED = re.compile(r"(\d+)x(.+)")
_INSTANCE = re.compile(r":\d+g\.")
"""Names of instances of a GPU in MIG mode, which reach no peers (NVIDIA MIG user guide, application considerations)."""


def fabric_names(kind: str = "") -> tuple[str, ...]:
    """Return the names of all shipped fabrics, or of those of a kind: `node` or `network`.

    >>> "ib_ndr" in fabric_names("network"), "hgx_h100" in fabric_names("network")
    (True, False)
    """
    names = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))
    return tuple(name for name in names if not kind or shipped_fabric(name).kind == kind)


def fabric_of(name: str) -> Fabric:
    """Return a shipped fabric, or that of a TOML file.

    Raises:
        UnknownNameError: no fabric has the name; the closest are listed.
        SpecError: the file is malformed.

    >>> fabric_of("ib_hdr").tiers[0].bandwidth_bytes_per_s
    25000000000.0
    """
    return stated_fabric(name).fabric


def cluster_of(devices: str, fabric: str = "", rank_count: int = 0) -> Cluster:
    """Return the cluster that a number of devices and their fabric name.

    Args:
        devices: count and target, `64xh100_sxm`, or a target alone, one device.
        fabric: network between the nodes that the target is sold in, `ib400`; with the ports that a node has,
            `ib_hdr:4`; node and network, `pcie4+ib_edr:1`; a node alone, `nvl72_gb200`; or a TOML file. Empty for
            devices of one node.
        rank_count: devices in all where `devices` names none.

    Raises:
        SpecError: the devices are more than a node has and no network is named, or the fabric leaves a figure open.

    >>> cluster = cluster_of("64xh100_sxm", "ib400")
    >>> cluster.device_count, cluster.fabric.name, [tier.name for tier in cluster.fabric.tiers]
    (64, 'hgx_h100+ib400', ['nvlink', 'ib'])
    >>> cluster_of("16xh100_sxm")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: 16xh100_sxm: a node (hgx_h100) has 8 devices; --fabric names the network between nodes: \
ethernet_100g, ethernet_10g, ethernet_25g, ib400, ib_edr, ib_hdr, ib_ndr, ib_xdr, opa100, roce100, roce200, roce400
    """
    count, target = counted_devices(devices)
    if _INSTANCE.search(target):
        raise SpecError(
            f"{devices}: instances of a GPU reach no peers; name the whole device, {target.partition(':')[0]}"
        )
    count = count or rank_count or 1
    node, network = _pair(target, fabric)
    if network is not None and network.kind == "whole":
        whole = network.fabric
    elif network is None or node is None:
        whole = _alone(devices, count, target, node, network)
    else:
        whole = _joined(node, network, _ports(fabric))
    whole.tier_of_span(count)
    return Cluster(target=target, device_count=count, fabric=whole)


def counted_devices(devices: str) -> tuple[int, str]:
    """Return the count, 0 where none is stated, and the target that words such as `64xh100_sxm` name.

    >>> counted_devices("64xh100_sxm"), counted_devices("h100_sxm")
    ((64, 'h100_sxm'), (0, 'h100_sxm'))
    """
    match = _COUNTED.fullmatch(devices)
    if match is None:
        return 0, devices
    if int(match.group(1)) < 1:
        raise SpecError(f"{devices}: a cluster has at least 1 device")
    return int(match.group(1)), match.group(2)


def _pair(target: str, fabric: str) -> tuple[FabricFile | None, FabricFile | None]:
    """Return the files of the node and of the network; none for what the words do not name."""
    first, plus, second = ("", "", fabric) if fabric.endswith(".toml") else fabric.partition("+")
    if not plus:
        second = second or first
    stem = re.split("[:+]", target)[0]
    sold = [name for name in fabric_names("node") if stem in shipped_fabric(name).targets]
    node = stated_fabric(first) if plus else shipped_fabric(sold[0]) if sold else None
    if plus and node is not None and node.kind != "node":
        raise SpecError(f"fabric {fabric}: {first} is no node; those are {', '.join(fabric_names('node'))}")
    if not second:
        return node, None
    named = stated_fabric(second if second.endswith(".toml") else second.partition(":")[0])
    if named.kind == "node":
        return named, None
    return node, named


def _alone(
    devices: str, count: int, target: str, node: FabricFile | None, network: FabricFile | None
) -> Fabric:  # fmt: skip
    """Return the fabric of a single node, or refuse what is left open."""
    if node is None:
        target_of(target)  # an unknown device is that, not one without a node
    if node is None and count == 1:
        return ONE_DEVICE
    if node is None:
        pcie = ", ".join(name for name in fabric_names("node") if name.startswith("pcie"))
        raise SpecError(
            f"{devices}: no document states what joins {target} within a node; --fabric names node and network, "
            f"e.g. pcie4+{'ib_edr' if network is None else network.fabric.name}:1 (nodes: {pcie}, …)"
        )
    size = node.fabric.tiers[-1].device_count
    if count > size:
        raise SpecError(
            f"{devices}: a node ({node.fabric.name}) has {size} devices; --fabric names the network between nodes: "
            f"{', '.join(fabric_names('network'))}"
        )
    return node.fabric


def _ports(fabric: str) -> int:
    """Return the ports of a node that the words state; 0 where they state none."""
    name, colon, ports = fabric.rpartition(":")
    if not colon or fabric.endswith(".toml"):
        return 0
    if not ports.isdecimal() or int(ports) < 1:
        raise SpecError(f"fabric {fabric}: {ports!r} is no number of ports of a node; e.g. {name}:4")
    return int(ports)


def _joined(node: FabricFile, network: FabricFile, stated_ports: int) -> Fabric:
    """Return the tiers of a node with those of a network outside, whose ports the devices of the node share."""
    size, ports = node.fabric.tiers[-1].device_count, stated_ports or node.port_count
    name = network.fabric.name
    if not ports:
        raise SpecError(
            f"fabric {node.fabric.name}+{name}: no document states how many network ports such a node has; "
            f"--fabric {node.fabric.name}+{name}:1 does"
        )
    if size % ports and ports % size:
        raise SpecError(
            f"fabric {node.fabric.name}+{name}:{ports}: {ports} ports do not share out to {size} devices; "
            f"{max(count for count in range(1, ports) if size % count == 0)} would"
        )
    tiers = [
        replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * ports / size)
        if ports >= size
        else replace(tier, shared_by=tier.shared_by * size // ports)
        for tier in network.fabric.tiers
    ]
    suffix = f":{stated_ports}" if stated_ports else ""
    return Fabric(
        name=f"{node.fabric.name}+{name}{suffix}", title=f"{node.fabric.title}; {network.fabric.title}",
        tiers=(*node.fabric.tiers, *tiers),
    )  # fmt: skip


def stated_fabric(name: str) -> FabricFile:
    """Return what a shipped fabric, one of the user's own or a file states."""
    if name.endswith(".toml"):
        path = Path(name)
        where = f"fabric file {path}"
        with reading(where, "fabric"):
            return parse_fabric(path.stem, toml_of_file(path, where), where)
    user_file = user_folder() / "fabrics" / f"{name}.toml"
    if user_file.exists():
        return stated_fabric(str(user_file))
    if name not in fabric_names():
        raise unknown_name("fabric", name, fabric_names())
    return shipped_fabric(name)


@lru_cache(maxsize=256)
def shipped_fabric(name: str) -> FabricFile:
    """Return what the shipped file of a fabric states."""
    raw = _raw(name)
    if base := raw.get("same_as"):
        raw = {**_raw(base), **{key: value for key, value in raw.items() if key != "same_as"}}
    return parse_fabric(name, raw)


def _raw(name: str) -> Mapping[str, Any]:
    return toml_of_file(_FOLDER / f"{name}.toml")
