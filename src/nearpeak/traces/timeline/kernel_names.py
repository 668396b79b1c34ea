"""Operation family of a kernel or operator by a table of name patterns; unmatched names are unknown."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from nearpeak.core.traces.trace import CopyKind, Family, Memory

_COPY = re.compile(r"(Host|Device|Array|Peer|H|D|A|P)\s*To\s*(Host|Device|Array|Peer|H|D|A|P)(?![a-z])", re.IGNORECASE)
_ENDS = re.compile(r"\(\s*([A-Za-z]+)\s*->\s*([A-Za-z]+)\s*\)")
_MEMORY = {"pageable": Memory.PAGEABLE, "pinned": Memory.PINNED, "device": Memory.DEVICE, "managed": Memory.MANAGED}
_DIRECTIONS = {
    "hd": CopyKind.H2D, "ha": CopyKind.H2D, "dh": CopyKind.D2H, "ah": CopyKind.D2H, "dd": CopyKind.D2D,
    "da": CopyKind.D2D, "ad": CopyKind.D2D, "aa": CopyKind.D2D, "hh": CopyKind.H2H, "pp": CopyKind.P2P,
}  # fmt: skip


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))


@cache
def _rules() -> tuple[tuple[re.Pattern[str], Family, bool], ...]:
    """Return (pattern, family, whether it is of a communication library) in the order of the table."""
    return tuple(
        (
            re.compile("|".join(rule["patterns"]), re.IGNORECASE),
            Family[rule["family"].upper()],
            rule.get("library", False),
        )
        for rule in _table()["rule"]
    )


def family_of(name: str) -> Family:
    """Return what a kernel or operator of this name computes.

    >>> family_of("ampere_sgemm_128x64_tn"), family_of("multimem_all_reduce_kernel"), family_of("my_kernel")
    (<Family.GEMM: 1>, <Family.COMM: 9>, <Family.UNKNOWN: 0>)
    """
    return next((family for pattern, family, _ in _rules() if pattern.search(name)), Family.UNKNOWN)


def is_bookkeeping(name: str) -> bool:
    """Say whether an operator of a framework computes nothing: views, allocations, questions, steps of autograd.

    >>> is_bookkeeping("aten::view"), is_bookkeeping("AddmmBackward0"), is_bookkeeping("aten::mm")
    (True, True, False)
    """
    return re.search("|".join(_table()["bookkeeping"]["patterns"]), name) is not None


def is_library_communication(name: str) -> bool:
    """Say whether the name is of a kernel of NCCL or RCCL: what most tools count as communication.

    >>> is_library_communication("ncclDevKernel_AllReduce"), is_library_communication("multimem_all_reduce_kernel")
    (True, False)
    """
    return any(library and pattern.search(name) for pattern, _, library in _rules())


def copy_of(name: str) -> tuple[CopyKind, Memory, Memory]:
    """Return direction and both ends of a copy, where its name states them.

    >>> copy_of("Memcpy HtoD (Pageable -> Device)")
    (<CopyKind.H2D: 1>, <Memory.PAGEABLE: 1>, <Memory.DEVICE: 3>)
    >>> copy_of("MEMORY_COPY_HOST_TO_DEVICE"), copy_of("copy")[0]
    ((<CopyKind.H2D: 1>, <Memory.UNKNOWN: 0>, <Memory.DEVICE: 3>), <CopyKind.UNKNOWN: 0>)
    """
    direction, source, target = CopyKind.UNKNOWN, Memory.UNKNOWN, Memory.UNKNOWN
    if match := _COPY.search(name.replace("_", "")):
        letters = (match[1][0] + match[2][0]).lower()
        direction = _DIRECTIONS.get(letters, CopyKind.P2P)
        source = Memory.DEVICE if letters[0] == "d" else source
        target = Memory.DEVICE if letters[1] == "d" else target
    elif re.search(r"peer|ptop|p2p", name, re.IGNORECASE):
        direction = CopyKind.P2P
    if ends := _ENDS.search(name):
        source = _MEMORY.get(ends[1].lower(), source)
        target = _MEMORY.get(ends[2].lower(), target)
    return direction, source, target
