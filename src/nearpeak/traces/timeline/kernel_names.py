"""Operation family of a kernel or operator by a table of name patterns; unmatched names are unknown."""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nearpeak.core.traces.trace import CopyKind, EventKind, Family, Memory

MOST_CHARACTERS = 1 << 14
"""Characters of a name that are looked at: names of kernels with all their template arguments are shorter."""
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


class NameRule(NamedTuple):
    """What kernels whose names match compute."""

    pattern: re.Pattern[str]
    """Any of its patterns."""
    family: Family
    """Computation."""
    library: bool
    """Whether it is of a communication library."""
    conversion: bool
    """Whether the kernel does nothing but change the layout of a tensor for its neighbours."""


_NO_RULE = NameRule(pattern=re.compile(""), family=Family.UNKNOWN, library=False, conversion=False)


@cache
def name_rules() -> tuple[NameRule, ...]:
    """Return the rules in the order of the table."""
    return tuple(
        NameRule(
            pattern=re.compile("|".join(rule["patterns"]), re.IGNORECASE), family=Family[rule["family"].upper()],
            library=rule.get("library", False), conversion=rule.get("conversion", False),
        )
        for rule in _table()["rule"]
    )  # fmt: skip


def _rule_of(name: str) -> NameRule:
    head = without_parameters(name)
    return next((rule for rule in name_rules() if rule.pattern.search(head)), _NO_RULE)


def family_of(name: str) -> Family:
    """Return what a kernel or operator of this name computes.

    >>> family_of("ampere_sgemm_128x64_tn"), family_of("multimem_all_reduce_kernel"), family_of("my_kernel")
    (<Family.GEMM: 1>, <Family.COMM: 9>, <Family.UNKNOWN: 0>)
    """
    return _rule_of(name).family


def is_layout_conversion(name: str) -> bool:
    """Say whether a kernel of this name does nothing but change the layout of a tensor for its neighbours.

    >>> is_layout_conversion("nchwToNhwcKernel"), is_layout_conversion("SubTensorOpWithScalar1d")
    (True, False)
    """
    return _rule_of(name).conversion


def without_parameters(name: str) -> str:
    """Return the name of a C++ function with its template arguments, without its parameters.

    >>> without_parameters("void at::(anonymous namespace)::f<g(int)::{lambda()#1}, (int)2>(int, h::flash_fwd)")
    'void at::(anonymous namespace)::f<g(int)::{lambda()#1}, (int)2>'
    """
    name, opened = name[:MOST_CHARACTERS], list[str]()
    for place, character in enumerate(name):
        if character == "(" and not opened and place and not name.startswith("(anonymous", place):
            return name[:place]
        if character in "<(":
            opened.append(character)
        elif opened and opened[-1] == {">": "<", ")": "("}.get(character):
            opened.pop()
    return name


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
    return _rule_of(name).library


def work_kind_of(name: str) -> EventKind:
    """Return what work of a device is by its name: a copy, a fill, or else a kernel.

    >>> work_kind_of("Memcpy HtoD"), work_kind_of("mm_fused_nn_bf16")
    (<EventKind.MEMCPY: 5>, <EventKind.KERNEL: 4>)
    """
    if re.match(r"mem(ory)?[ _]?(cpy|copy)|dma", name, re.IGNORECASE):
        return EventKind.MEMCPY
    return EventKind.MEMSET if re.match(r"mem(ory)?[ _]?(set|fill)", name, re.IGNORECASE) else EventKind.KERNEL


def copy_of(name: str) -> tuple[CopyKind, Memory, Memory]:
    """Return direction and both ends of a copy, where its name states them.

    >>> copy_of("Memcpy HtoD (Pageable -> Device)")
    (<CopyKind.H2D: 1>, <Memory.PAGEABLE: 1>, <Memory.DEVICE: 3>)
    >>> copy_of("MEMORY_COPY_HOST_TO_DEVICE"), copy_of("copy")[0]
    ((<CopyKind.H2D: 1>, <Memory.UNKNOWN: 0>, <Memory.DEVICE: 3>), <CopyKind.UNKNOWN: 0>)
    """
    name = name[:MOST_CHARACTERS]
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
