"""Collectives within a node, point-to-point messages, and copies to and from the host."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.bounds.terms.link_traffic import HOST, link_rate
from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.calibration.related_devices import multiplies_in_pairs
from nearpeak.prediction.calibration.source_spread import RANKS, spread_of
from nearpeak.prediction.collective.protocols import (
    MEASURED_RANKS,
    SENDING,
    Line,
    faster_line,
    flagged_and_plain,
    meets_over_host,
    own_shots,
    sending,
)
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, coefficient_ranges

COEFFICIENTS = coefficient_ranges(
    # name, least, largest, usual, meaning, measurements that identify it
    ("launch_s", 0.5e-6, 40e-6, 4.5e-6, "start and end of one collective", "smallest messages of two ranks"),
    ("ll_hop_s", 0.05e-6, 10e-6, 0.9e-6, "one step of words that carry their own flags", "smallest messages"),
    ("ll128_hop_s", 0.05e-6, 20e-6, 0.9e-6, "one step of lines that carry their own flags", "16 KiB to 1 MiB"),
    ("ll128_s", 0.0, 20e-6, 2e-6, "setting up lines that carry their own flags", "16 KiB to 256 KiB"),
    ("simple_hop_s", 0.05e-6, 40e-6, 3e-6, "one step of blocks with separate flags", "4 to 16 MiB"),
    ("simple_s", 0.0, 120e-6, 12e-6, "filling the buffers of such blocks", "4 to 16 MiB"),
    ("ll_ratio", 0.002, 0.6, 0.06, "reached share of the link with flags in every word", "4 to 64 KiB"),
    ("ll128_ratio", 0.01, 1.0, 0.4, "reached share of the link with flags in every line", "64 KiB to 1 MiB"),
    ("simple_ratio", 0.02, 1.0, 0.72, "reached share of the link with separate flags", "64 MiB and more"),
    ("switch_bytes", 0.05e6, 30e6, 1.5e6, "bytes on the wire of two ranks from which blocks are used", "1 to 8 MiB"),
    ("pair_ratio", 0.3, 8.0, 0.9, "rate between two ranks against that of more", "two and four ranks"),
    ("gather_ratio", 0.4, 1.5, 0.9, "rate of gathering against that of adding up", "all_gather and all_reduce"),
    ("pair_gather_ratio", 0.4, 1.5, 0.9, "the same between two ranks, once more", "two ranks gathering"),
    ("own_s", 0.5e-6, 30e-6, 2.4e-6, "start and end of an all-reduce of one kernel over peer memory", "smallest bf16"),
    ("own_hop_s", 0.0, 8e-6, 0.15e-6, "one more rank of it", "smallest bf16, two and four ranks"),
    ("one_shot_ratio", 0.02, 1.0, 0.5, "reached share of the link when every rank reads all others", "64 KiB, bf16"),
    ("two_shot_ratio", 0.02, 1.0, 0.7, "reached share of the link in two phases", "1 to 8 MiB, bf16"),
    ("far_ratio", 0.02, 1.0, 0.6, "the same for what exceeds 8 MiB", "32 MiB and more, bf16"),
    ("two_shot_s", 0.0, 40e-6, 1.5e-6, "the barrier between the phases", "256 KiB to 2 MiB, bf16"),
    ("send_s", 1e-6, 60e-6, 8e-6, "start and end of sending to one peer", "smallest messages between two devices"),
    ("send_ratio", 0.05, 1.0, 0.75, "reached share of the link when sending", "16 MiB and more between two devices"),
    ("copy_s", 1e-6, 40e-6, 6e-6, "start and end of a copy to or from the host", "smallest copies"),
    ("copy_ratio", 0.2, 1.0, 0.85, "reached share of the host link from pinned memory", "copies of 16 MiB and more"),
)  # fmt: skip
"""The coefficients of the model: ranges, meaning, what pins each down; the kernel reads them in this order."""

TERMS = ("launch", "hops", "fill", "wire", "wire_ceiling", "copy_start", "copy", "copy_ceiling")
"""Parts of a predicted time."""
_SWITCH_SHARPNESS = 12.0
"""Power at which one protocol gives way to the next."""


def _rows(target: Target, cases: CaseColumns, coefficients: Any, _setting: Setting) -> Rows:
    """Return the times of collectives, of messages, or of copies.

    Source: protocols and steps of rings as NCCL documents them (LL, LL128, Simple); Chan et al. 2007,
    doi:10.1002/cpe.1206.
    """
    _refuse_unreached(target, cases)
    fitted = dict(zip((coefficient.name for coefficient in COEFFICIENTS), coefficients, strict=True))
    size = np.atleast_1d(np.asarray(cases.axes["elements"], dtype=np.float64))
    size = size * DTYPES[cases.dtypes["dtype"]].bits_count / 8
    if _is_copy(cases):
        if target.kind == "cpu":
            raise NotModelledError(f"{target.name}: no prediction of transfer; a CPU is the host")
        wire_s = size / link_rate(target, HOST)
        parts = {
            "copy_start": fitted["copy_s"],
            "copy": wire_s,
            "copy_ceiling": wire_s * (1 / fitted["copy_ratio"] - 1),
        }
    elif cases.op == "transfer" or cases.attributes["kind"] in SENDING:
        parts = _parts(sending(target, size, fitted))
    else:
        parts = _collective(target, cases, size, fitted)
    columns = np.stack([np.broadcast_to(parts.get(name, 0.0), size.shape) for name in TERMS], 1)
    return Rows(time_s=columns.sum(1), parts_s=columns)


NODE_DEVICES = 8
"""Devices of a node where a link does not say how many it joins: HGX and DGX boards, OAM base boards and the machine
files of AIConfigurator have eight.
"""
_INSTANCE = re.compile(r":\d+g\.")
"""Names of instances of a GPU in MIG mode."""
BEYOND = (
    f"more ranks than the {MEASURED_RANKS} that the coefficients were fitted on, each doubling of which widens the "
    "interval by the model's error at twice the fitted ranks; or another kind, by what all-to-alls show, left out"
)
"""Note on more ranks or another kind than were measured."""


def _refuse_unreached(target: Target, cases: CaseColumns) -> None:
    """Refuse ranks beyond a node, whose network nothing states, and instances, which do not reach each other."""
    if _is_copy(cases):
        return
    what = "messages" if cases.op == "transfer" else str(cases.attributes["kind"])
    most = int(np.max(cases.axes.get("ranks", 2)))
    if target.vendor == "NVIDIA" and _INSTANCE.search(target.name) and most > 1:
        # NVIDIA MIG user guide, application considerations: no GPU to GPU peer access, over NVLink or PCIe.
        raise NotModelledError(
            f"{target.name}: no prediction of {what}; instances of a GPU reach no peers over NVLink or PCIe, and no "
            "table of how libraries go around that is known; the whole device can be predicted"
        )
    joined = joined_device_count(target)
    if most > joined:
        raise NotModelledError(
            f"{target.name}: no prediction of {what} among {most} ranks; a node has {joined}, and no document states "
            f"the network between nodes: --fabric names it, e.g. ib400; up to {joined} ranks need none"
        )


def joined_device_count(target: Target) -> int:
    """Return the devices of a node, among which collectives are predicted without a network.

    >>> from nearpeak.targets import target_of
    >>> [joined_device_count(target_of(name)) for name in ("h100_sxm", "gb200", "l40s")]
    [8, 72, 8]
    """
    return max((link.device_count or NODE_DEVICES for link in target.links.values()), default=NODE_DEVICES)


def _is_copy(cases: CaseColumns) -> bool:
    return cases.op == "transfer" and str(cases.attributes["direction"]) in ("h2d", "d2h")


def _extrapolation(target: Target, cases: CaseColumns) -> tuple[Any, Any] | None:
    """Return the additional spread of more ranks than were measured, a step for each doubling.

    Steps of boards that meet over the host are others: their slots share bridges and processors. They are predicted to
    cost what the one known step did (`crowding`), so that what that step was missed by lies on both sides, half each.
    """
    ranks = np.atleast_1d(np.asarray(cases.axes.get("ranks", 2), dtype=np.float64))
    is_fitted = cases.op == "transfer" or cases.attributes["kind"] in _FITTED_KINDS
    faster, slower = (0.0, 0.0) if is_fitted else _OTHER_KINDS_SPREAD
    if ranks.max() <= MEASURED_RANKS:
        return None if is_fitted else (np.full(ranks.shape, faster), np.full(ranks.shape, slower))
    further = _rank_spread(target, ranks)
    return np.hypot(faster, further[0]), np.hypot(slower, further[1])


def _rank_spread(target: Target, ranks: Any) -> tuple[Any, Any]:
    """Return the additional spread of more ranks than were measured."""
    doublings = np.log2(np.maximum(ranks / MEASURED_RANKS, 1.0))
    faster, slower = spread_of(RANKS + ("host" if meets_over_host(target) else "links"))
    if meets_over_host(target):
        faster = slower = (faster + slower) / 2
    return doublings * faster, doublings * slower


_FITTED_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "send", "recv")
_OTHER_KINDS_SPREAD = (0.40, 0.20)
"""Spread of kinds that coefficients were not fitted on, faster and slower in logarithms: what all-to-alls of fp16 and
int8 on the A100 and the H100 show, folds 0 and 1 of AIConfigurator's tables (ai-dynamo 095f58a), which were left out.
"""


def _shares_links(target: Target, other: Target) -> bool:
    """Return whether devices are of one generation: the H20 has the H100's multiprocessors at another rate."""
    alike = multiplies_in_pairs(target) == multiplies_in_pairs(other)
    return alike and (target.vendor, target.architecture) == (other.vendor, other.architecture)


_UNSEEN_WIDENING = 2.5
"""Power by which the intervals of copies widen: no public table of them was found, so that it is an assumption."""


def _collective(target: Target, cases: CaseColumns, size: Any, fitted: Mapping[str, float]) -> dict[str, Any]:
    """Return the parts of the protocol that a library takes, or of the kernel over peer memory where it is faster."""
    kind = str(cases.attributes["kind"])
    ranks = np.broadcast_to(np.asarray(cases.axes["ranks"], dtype=np.float64), size.shape)
    flagged, plain, excess = flagged_and_plain(target, kind, ranks, size, fitted)
    share = 1 / (1 + np.maximum(excess, 1e-300) ** -_SWITCH_SHARPNESS)
    flagged_parts, other = _parts(flagged), _parts(plain)
    parts = {name: (1 - share) * flagged_parts[name] + share * other[name] for name in flagged_parts}
    shots = own_shots(target, kind, cases.dtypes["dtype"], ranks, size, fitted)
    if shots is not None:
        shot = _parts(faster_line(*shots))
        first = sum(parts.values()) <= sum(shot.values())
        parts = {name: np.where(first, parts[name], shot[name]) for name in parts}
    alone = ranks <= 1
    return {name: np.where(alone, 0.0, part) for name, part in parts.items()} | {
        "launch": np.where(alone, fitted["own_s"], parts["launch"])
    }


def _parts(line: Line) -> dict[str, Any]:
    """Return the parts of a fixed time and bytes over the link."""
    return {
        "launch": line.launch_s, "hops": line.hops_s, "fill": line.fill_s, "wire": line.wire_s,
        "wire_ceiling": line.wire_s * (1 / line.ratio - 1),
    }  # fmt: skip


KERNEL_MODEL = KernelModel(
    name="collective",
    ops=("collective", "transfer"),
    version="collective-1",
    coefficients=COEFFICIENTS,
    terms=TERMS,
    regimes={
        "launch": "latency", "hops": "latency", "fill": "latency", "wire": "wire", "wire_ceiling": "wire",
        "copy_start": "latency", "copy": "wire", "copy_ceiling": "wire",
    },
    groups=lambda _op, _dtypes: ("fabric",),
    rows=_rows,
    widening=lambda op, _cell: 1.0 if op == "collective" else _UNSEEN_WIDENING,
    extrapolation=_extrapolation,
    extrapolation_note=BEYOND,
    is_other_hardware=lambda target, other: meets_over_host(target) != meets_over_host(other),
    related=_shares_links,
    grids={
        "collective": {
            "kind": ("all_reduce", "all_gather", "reduce_scatter", "send"), "ranks": (2, 4, 8),
            "elements": (2**9, 2**12, 2**15, 2**18, 2**21, 2**24, 2**28),
        },
        "transfer": {"direction": ("h2d", "d2h"), "elements": (2**12, 2**18, 2**24, 2**28)},
    },
)  # fmt: skip
