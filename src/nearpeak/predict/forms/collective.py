"""Collectives among the devices of one node, messages between two of them, and copies to and from the host."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.predict._collective_protocols import (
    SENDING,
    Line,
    flagged_and_plain,
    is_bridged,
    own_shots,
    quicker,
    sending,
)
from nearpeak.predict._collective_scalars import SCALARS
from nearpeak.predict._form import CaseColumns, Form, Rows, Setting
from nearpeak.theory.links import HOST, link_rate

TERMS = ("launch", "hops", "fill", "wire", "wire_ceiling", "copy_start", "copy", "copy_ceiling")
"""Parts of a predicted time."""
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
    elif cases.op == "transfer" or cases.attributes["kind"] in SENDING:
        parts = _parts(sending(target, size, scalar))
    else:
        parts = _collective(target, cases, size, scalar)
    columns = np.stack([np.broadcast_to(parts.get(name, 0.0), size.shape) for name in TERMS], 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


def _copy(target: Target, size: Any, scalar: Mapping[str, float]) -> dict[str, Any]:
    if target.kind == "cpu":
        raise NotModelledError(f"{target.name}: no prediction of transfer; a CPU is the host")
    wire_s = size / link_rate(target, HOST)
    return {"copy_start": scalar["copy_s"], "copy": wire_s, "copy_ceiling": wire_s * (1 / scalar["copy_ratio"] - 1)}


_UNSEEN_WIDENING = 2.5
"""Power by which the intervals of copies widen: no public table of them was found, so that it is an assumption."""


def _collective(target: Target, cases: CaseColumns, size: Any, scalar: Mapping[str, float]) -> dict[str, Any]:
    """Return the parts of the protocol that a library takes, or of the kernel over peer memory where it is faster."""
    kind = str(cases.attributes["kind"])
    ranks = np.broadcast_to(np.asarray(cases.axes["ranks"], dtype=np.float64), size.shape)
    flagged, plain, excess = flagged_and_plain(target, kind, ranks, size, scalar)
    share = 1 / (1 + np.maximum(excess, 1e-300) ** -_SWITCH_SHARPNESS)
    one, other = _parts(flagged), _parts(plain)
    found = {name: (1 - share) * one[name] + share * other[name] for name in one}
    own = own_shots(target, kind, cases.dtypes["dtype"], ranks, size, scalar)
    if own is not None:
        shot = _parts(quicker(*own))
        first = sum(found.values()) <= sum(shot.values())
        found = {name: np.where(first, found[name], shot[name]) for name in found}
    alone = ranks <= 1
    return {name: np.where(alone, 0.0, part) for name, part in found.items()} | {
        "launch": np.where(alone, scalar["own_s"], found["launch"])
    }


def _parts(line: Line) -> dict[str, Any]:
    """Return the parts of a fixed time and bytes over the link."""
    return {
        "launch": line.launch_s, "hops": line.hops_s, "fill": line.fill_s, "wire": line.wire_s,
        "wire_ceiling": line.wire_s * (1 / line.ratio - 1),
    }  # fmt: skip


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
    widening=lambda op, _cell: 1.0 if op == "collective" else _UNSEEN_WIDENING,
    alien=lambda target, other: is_bridged(target) != is_bridged(other),
    grids={
        "collective": {
            "kind": ("all_reduce", "all_gather", "reduce_scatter", "send"), "ranks": (2, 4, 8),
            "elements": (2**9, 2**12, 2**15, 2**18, 2**21, 2**24, 2**28),
        },
        "transfer": {"direction": ("h2d", "d2h"), "elements": (2**12, 2**18, 2**24, 2**28)},
    },
)  # fmt: skip
