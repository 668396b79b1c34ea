"""Collectives among the devices of one node, messages between two of them, and copies to and from the host."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._collective_scalars import SCALARS
from nearpeak.predict._form import CaseColumns, Form, Rows, Setting
from nearpeak.theory.links import HOST, link_rate

TERMS = ("launch", "hops", "fill", "wire", "wire_ceiling", "copy_start", "copy", "copy_ceiling")
"""Parts of a predicted time."""
_STEPS = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "all_to_all": 1, "gather": 1, "scatter": 1,
          "broadcast": 1, "reduce": 1}  # fmt: skip
"""Times that a ring passes on a part per other rank."""
_ADDING = ("all_reduce", "reduce_scatter", "reduce")
_WHOLE = ("broadcast", "reduce")
"""Kinds that pass on the whole tensor, piece after piece, instead of a part."""
_SENDING = ("send", "recv")
_OWN_DTYPES = ("bf16",)
"""Formats that serving frameworks add up with a kernel of their own over peer memory."""
_BRIDGED = ("PCIe", "NVL", "RTX", "A30", "A40")
"""Words in titles of boards whose links join two of them, so that larger groups meet over the host."""
_NEAR_BYTES = 8 * 2**20
"""Tensor for which such kernels are built (max_size of vLLM's custom all-reduce); what is beyond moves slower."""
_SWITCH_SHARPNESS = 12.0
"""Power at which one protocol gives way to the next."""


def _groups(_op: str, _dtypes: Mapping[str, str]) -> tuple[str, ...]:
    """Return the group of coefficients: one for each fabric."""
    return ("fabric",)


def _rows(target: Target, cases: CaseColumns, scalars: Any, _setting: Setting) -> Rows:
    """Return the times of collectives, of messages, or of copies.

    Source: protocols and steps of rings as NCCL documents them (LL, LL128, Simple); Chan et al. 2007,
    doi:10.1002/cpe.1206.
    """
    scalar = dict(zip((one.name for one in SCALARS), scalars, strict=True))
    size = np.atleast_1d(np.asarray(cases.axes["elements"], dtype=np.float64))
    size = size * DTYPES[cases.dtypes["dtype"]].bits_count / 8
    if cases.op == "transfer" and str(cases.attributes["direction"]) in ("h2d", "d2h"):
        parts = _copy(target, size, scalar)
    elif cases.op == "transfer" or cases.attributes["kind"] in _SENDING:
        parts = _line(target, size, scalar["send_s"], 0.0, 0.0, scalar["send_ratio"])
    else:
        parts = _collective(target, cases, size, scalar)
    columns = np.stack([np.broadcast_to(parts.get(name, 0.0), size.shape) for name in TERMS], 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


def _copy(target: Target, size: Any, scalar: Mapping[str, float]) -> dict[str, Any]:
    if target.kind == "cpu":
        raise NotModelledError(f"{target.name}: no prediction of transfer; a CPU is the host")
    wire_s = size / link_rate(target, HOST)
    return {"copy_start": scalar["copy_s"], "copy": wire_s, "copy_ceiling": wire_s * (1 / scalar["copy_ratio"] - 1)}


def _collective(target: Target, cases: CaseColumns, size: Any, scalar: Mapping[str, float]) -> dict[str, Any]:
    """Return the parts of the protocol that a library takes, or of the kernel over peer memory where it is faster."""
    kind = str(cases.attributes["kind"])
    ranks = np.broadcast_to(np.asarray(cases.axes["ranks"], dtype=np.float64), size.shape)
    steps = _STEPS[kind] * (ranks - 1)
    wire = size if kind in _WHOLE else steps * size / ranks
    speed = np.where(ranks == 2, scalar["pair_ratio"], 1.0)
    if kind not in _ADDING:
        speed = speed * scalar["gather_ratio"] * np.where(ranks == 2, scalar["pair_gather_ratio"], 1.0)
    # No protocol outruns the link.
    rate = {name: np.minimum(scalar[f"{name}_ratio"] * speed, 1.0) for name in ("ll", "ll128", "simple")}
    lines = {
        name: _line(target, wire, scalar["launch_s"], steps * scalar[f"{name}_hop_s"],
                    scalar.get(f"{name}_s", 0.0), rate[name], ranks)
        for name in rate
    }  # fmt: skip
    flagged = _faster(lines["ll"], lines["ll128"])
    switch_bytes = scalar["switch_bytes"] * np.sqrt(np.maximum(ranks - 1, 1))
    share = 1 / (1 + (switch_bytes / np.maximum(wire, 1.0)) ** _SWITCH_SHARPNESS)
    found = {name: (1 - share) * flagged[name] + share * lines["simple"][name] for name in flagged}
    if kind == "all_reduce" and cases.dtypes["dtype"] in _OWN_DTYPES:
        found = _faster(found, _own(target, ranks, size, scalar))
    alone = ranks <= 1
    return {name: np.where(alone, 0.0, part) for name, part in found.items()} | {
        "launch": np.where(alone, scalar["own_s"], found["launch"])
    }


def _own(target: Target, ranks: Any, size: Any, scalar: Mapping[str, float]) -> dict[str, Any]:
    """Return the faster of reading all of the others at once, and of adding up parts and gathering them."""
    hops_s = (ranks - 1) * scalar["own_hop_s"]
    one = _line(target, (ranks - 1) * size, scalar["own_s"], hops_s, 0.0, scalar["one_shot_ratio"], ranks)
    wire = 2 * (ranks - 1) * size / ranks
    near = np.minimum(1.0, _NEAR_BYTES / np.maximum(size, 1.0))
    ratio = 1 / (near / scalar["two_shot_ratio"] + (1 - near) / scalar["far_ratio"])
    two = _line(target, wire, scalar["own_s"], hops_s, scalar["two_shot_s"], ratio, ranks)
    return _faster(one, two)


def _line(
    target: Target, wire: Any, launch_s: Any, hops_s: Any, fill_s: Any, ratio: Any, ranks: Any = 2
) -> dict[str, Any]:  # fmt: skip
    """Return the parts of a fixed time and bytes over the link."""
    wire_s = wire / np.where(np.asarray(ranks) > 2, _peer_rate(target, pair=False), _peer_rate(target, pair=True))
    parts = {
        "launch": launch_s,
        "hops": hops_s,
        "fill": fill_s,
        "wire": wire_s,
        "wire_ceiling": wire_s * (1 / ratio - 1),
    }
    return {name: np.broadcast_to(part, np.shape(wire)) for name, part in parts.items()}


def _peer_rate(target: Target, *, pair: bool) -> float:
    """Return the rate of the links to other devices; of the host link where there are none, or bridges of pairs."""
    bridged = not pair and any(word in target.title for word in _BRIDGED)
    peers = [link.bandwidth_bytes_per_s for name, link in target.links.items() if name != HOST and not bridged]
    return sum(peers) if peers else link_rate(target, "link" if HOST not in target.links else HOST)


def _faster(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    first = sum(one.values()) <= sum(other.values())
    return {name: np.where(first, one[name], other[name]) for name in one}


FORM = Form(
    name="collective",
    ops=("collective", "transfer"),
    version="collective-1",
    scalars=SCALARS,
    terms=TERMS,
    regimes={
        "launch": "latency", "hops": "latency", "fill": "latency", "wire": "wire", "wire_ceiling": "wire",
        "copy_start": "latency", "copy": "wire", "copy_ceiling": "wire",
    },
    groups=_groups,
    rows=_rows,
    grids={
        "collective": {
            "kind": ("all_reduce", "all_gather", "reduce_scatter", "send"), "ranks": (2, 4, 8),
            "elements": (2**9, 2**12, 2**15, 2**18, 2**21, 2**24, 2**28),
        },
        "transfer": {"direction": ("h2d", "d2h"), "elements": (2**12, 2**18, 2**24, 2**28)},
    },
)  # fmt: skip
