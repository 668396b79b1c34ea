"""Collective communication as seen by one rank of a group: all_reduce, all_gather, reduce_scatter and others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.process_group import group_of_text
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.axis_checks import required_multiple, required_one_of, required_positive
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How much of the tensors of a collective over n ranks."""

    whole_count: int = 0
    """Whole tensors."""
    own_count: int = 0
    """Times the part of 1/n that the rank owns."""
    others_count: int = 0
    """Times the parts of all other ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What one collective moves."""

    read: Share
    """What the rank reads of its own memory."""
    write: Share
    """What the rank writes."""
    sent: Share
    """What must leave the rank, when switches may add up and multicast."""
    received: Share
    """What must enter it."""
    endpoint_count: int = 0
    """Times the parts of all others that ranks send and receive on average when switches do neither."""


_WHOLE, _OWN, _OTHERS, _NONE = Share(whole_count=1), Share(own_count=1), Share(others_count=1), Share()
KINDS: Mapping[str, Kind] = {
    "all_reduce": Kind(read=_WHOLE, write=_WHOLE, sent=_WHOLE, received=_WHOLE, endpoint_count=2),
    "all_gather": Kind(read=_OWN, write=_WHOLE, sent=_OWN, received=_OTHERS, endpoint_count=1),
    "reduce_scatter": Kind(read=_WHOLE, write=_OWN, sent=_OTHERS, received=_OWN, endpoint_count=1),
    "all_to_all": Kind(read=_WHOLE, write=_WHOLE, sent=_OTHERS, received=_OTHERS, endpoint_count=1),
    "broadcast": Kind(read=_WHOLE, write=_NONE, sent=_WHOLE, received=_NONE, endpoint_count=1),
    "reduce": Kind(read=_WHOLE, write=_WHOLE, sent=_NONE, received=_WHOLE, endpoint_count=1),
    "gather": Kind(read=_OWN, write=_WHOLE, sent=_NONE, received=_OTHERS),
    "scatter": Kind(read=_WHOLE, write=_OWN, sent=_OTHERS, received=_NONE),
    "send": Kind(read=_WHOLE, write=_NONE, sent=_WHOLE, received=_NONE),
    "recv": Kind(read=_NONE, write=_WHOLE, sent=_NONE, received=_WHOLE),
}
"""All collectives by name; broadcast, reduce, gather and scatter as their root takes part, the busiest rank."""

LEAVES: Mapping[str, Kind] = {
    "broadcast": KINDS["recv"],
    "reduce": KINDS["send"],
    "gather": Kind(read=_OWN, write=_NONE, sent=_OWN, received=_NONE),
    "scatter": Kind(read=_NONE, write=_OWN, sent=_NONE, received=_OWN),
}
"""How the ranks other than the root take part."""


def collective(
    elements: int, dtype: DType, ranks: int = 2, kind: str = "all_reduce", role: str = "root"
) -> Work:  # fmt: skip
    """Return the least work of one rank in a collective over the whole tensor x[elements].

    Shapes: the whole tensor is the input of all_reduce, reduce_scatter, all_to_all, broadcast, reduce, scatter and
    send, the output of all_gather, gather and recv; a part is elements / ranks of it.
    Counts: bytes that must leave and enter the rank. With n ranks and s bytes: all_reduce s each way when switches add
    up (every element must leave and a result must come back), else 2 s (n - 1) / n; all_gather receives
    s (n - 1) / n and sends s / n when switches multicast, else as much; reduce_scatter mirrors it; all_to_all
    s (n - 1) / n each way. Additions, which a switch may do, are not counted.

    Args:
        ranks: ranks of the group; a group of one sends nothing.
        kind: a name of KINDS.
        role: root or leaf, for broadcast, reduce, gather and scatter.

    Source: Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002 (all_reduce without help of switches);
    Chan et al. 2007, doi:10.1002/cpe.1206 (the other kinds); Graham et al. 2016, doi:10.1109/COMHPC.2016.006 (switches
    that add up).

    >>> collective(1024, DType(name="bf16", bits_count=16), 8, kind="all_gather").comm_bytes["peer.in"]
    1792
    """
    row = _row(kind, role)
    required_positive("collective", ranks=ranks)
    parts = any(s.own_count or s.others_count for s in (row.read, row.write, row.sent, row.received))
    if parts:
        required_multiple("collective", {"ranks": ranks}, elements=elements)
    part = elements // ranks
    several = minimum(ranks - 1, 1)

    def size(share: Share) -> int:
        parts_elements = share.own_count * part + share.others_count * (elements - part)
        return dtype.bytes(share.whole_count * elements + parts_elements)

    ports = {"peer.in": several * size(row.received), "peer.out": several * size(row.sent)}
    each = row.endpoint_count * (ranks - 1) * size(_WHOLE) // ranks
    ports |= {"endpoint.in": each, "endpoint.out": each}
    return Work(read_bytes=size(row.read), write_bytes=size(row.write), comm_bytes=ports)


def _row(kind: str, role: str) -> Kind:
    required_one_of("collective", ("root", "leaf"), role=role)
    return LEAVES[kind] if role == "leaf" and kind in LEAVES else entry_of("kind", KINDS, kind)


def _inputs(elements: int, dtype: str, ranks: int, kind: str, role: str, **_: Any) -> dict[str, Tensor]:
    is_flat = role == "leaf" or kind in ("broadcast", "scatter", "send", "recv")
    width = elements // ranks if kind in ("all_gather", "gather") else elements
    return {"x": Tensor(shape=(width,) if is_flat else (ranks, width), dtype=dtype)}


def _outcome(x: Any, elements: int, ranks: int, kind: str, role: str) -> Any:
    """Return what the first rank ends up with, from what all ranks hold; nothing where it only sends."""
    part = elements // ranks
    if _row(kind, role).write == _NONE:
        return None
    if kind in ("all_reduce", "reduce"):
        return x.sum(0)
    if kind == "reduce_scatter":
        return x.sum(0)[:part]
    if kind == "all_to_all":
        return x[:, :part].reshape(elements)
    return x.reshape(-1)[: part if kind == "scatter" else elements]


def _reference(arrays: dict[str, Any], elements: int, ranks: int, kind: str, role: str, **_: Any) -> dict[str, Any]:
    y = _outcome(arrays["x"], elements, ranks, kind, role)
    return {} if y is None else {"y": y}


_FUNCTIONAL = {
    "all_reduce": "all_reduce", "all_reduce_": "all_reduce", "all_reduce_coalesced": "all_reduce",
    "all_reduce_coalesced_": "all_reduce", "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather", "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter", "all_to_all_single": "all_to_all", "broadcast": "broadcast",
    "broadcast_": "broadcast", "isend": "send", "irecv": "recv",
}  # fmt: skip
_CLASSIC = {
    "allreduce_": ("all_reduce", "tensors"), "allreduce_coalesced_": ("all_reduce", "tensors"),
    "allgather_": ("all_gather", "output_tensors"), "_allgather_base_": ("all_gather", "output_tensor"),
    "allgather_coalesced_": ("all_gather", "output_lists"),
    "allgather_into_tensor_coalesced_": ("all_gather", "outputs"),
    "reduce_scatter_": ("reduce_scatter", "input_tensors"), "_reduce_scatter_base_": ("reduce_scatter", "input_tensor"),
    "reduce_scatter_tensor_coalesced_": ("reduce_scatter", "inputs"), "alltoall_": ("all_to_all", "input_tensors"),
    "alltoall_base_": ("all_to_all", "input"), "broadcast_": ("broadcast", "tensors"), "reduce_": ("reduce", "tensors"),
    "gather_": ("gather", "output_tensors"), "scatter_": ("scatter", "input_tensors"), "send": ("send", "tensors"),
    "recv_": ("recv", "tensors"), "recv_any_source_": ("recv", "tensors"),
}  # fmt: skip
"""Kind, and the argument that holds the whole tensor, of each operator of torch.distributed that works in place."""


def _from_functional(site: AtenSite) -> tuple[Match, ...]:
    """Match the collectives of torch.distributed that return their results, one case per tensor."""
    kind = _FUNCTIONAL[site.name.split(".")[1]]
    first = next(site.args[name] for name in ("input", "inputs", "tensor") if name in site.args)
    whole = site.outputs if kind == "all_gather" else first if isinstance(first, list) else [first]
    ranks, rank = _group(site.args["group_name"])
    _even(site, "output_split_sizes", "input_split_sizes")
    return _cases(kind, whole, ranks, "root" if site.args.get("src", rank) == rank else "leaf")


def _from_classic(site: AtenSite) -> tuple[Match, ...]:
    """Match the collectives of torch.distributed that fill tensors; lists of parts count as one tensor."""
    kind, name = _CLASSIC[site.name.split(".")[1]]
    ranks, rank = _group(site.args["process_group"])
    _even(site, "output_split_sizes", "input_split_sizes")
    role = "root" if site.args.get("root_rank", rank) == rank else "leaf"
    whole = _flat(site.args[name])
    if not whole:  # a leaf of gather or scatter has no list of parts
        parts = _flat(site.args["input_tensors" if kind == "gather" else "output_tensors"])
        whole = [Tensor(shape=(ranks * part.elements,), dtype=part.dtype) for part in parts]
    elif kind in ("all_gather", "gather", "scatter", "reduce_scatter", "all_to_all") and len(whole) > 1:
        whole = [Tensor(shape=(sum(part.elements for part in whole),), dtype=whole[0].dtype)]
    return _cases(kind, whole, ranks, role)


def _cases(kind: str, whole: Any, ranks: int, role: str) -> tuple[Match, ...]:
    common: dict[str, Any] = {"kind": kind, "ranks": ranks, "role": role if kind in LEAVES else "root"}
    return tuple(Match(arguments={"elements": t.elements, "dtype": t.dtype, **common}) for t in whole)


def _even(site: AtenSite, *names: str) -> None:
    """Refuse shares of different sizes: what stays on the rank is not known."""
    for name in names:
        if len(set(site.args.get(name) or ())) > 1:
            raise NotModelledError(f"collective: no rule for uneven {name} {site.args[name]}; they must be equal")


def _flat(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [tensor for item in value for tensor in _flat(item)]


def _group(name: str) -> tuple[int, int]:
    """Return the number of ranks of a process group, and the own rank in it.

    Args:
        name: registered name of the group, or a text as captures describe one (`text_of_group`).
    """
    if described := group_of_text(name):
        return described.rank_count, described.rank
    from torch.distributed.distributed_c10d import _resolve_process_group

    group = _resolve_process_group(name)
    return group.size(), group.rank()


OPERATOR = Operator(
    forward=collective,
    family="movement",
    degree_count=2,
    tolerance=Tolerance(kind="reduction", reduction="ranks"),
    inputs=_inputs,
    reference=_reference,
    torch_call=_reference,
    aten={
        **{f"_c10d_functional.{name}.default": _from_functional for name in _FUNCTIONAL},
        **{f"c10d.{name}.default": _from_classic for name in _CLASSIC},
    },
)
