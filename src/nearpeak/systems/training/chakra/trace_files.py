"""Chakra files: one trace of protocol-buffer messages per rank, and the file of groups that simulators read beside."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path

from nearpeak.core.systems.mesh import Mesh
from nearpeak.errors import SpecError
from nearpeak.systems.training.chakra.trace_nodes import COMPUTE, Attribute, TraceNode, TracePlan, rank_nodes
from nearpeak.traces.export.protobuf_fields import message_field, number_field, text_field, varint

VERSION = "0.0.4"
"""Version of the schema that is written."""
MOST_RANKS = 4096
"""Ranks for which files are written."""
_INT32, _INT64, _BOOL, _STRING = 7, 9, 27, 29
"""Fields of an attribute's value (mlcommons/chakra, schema/protobuf/et_def.proto, AttributeProto)."""
_SHORT = ("comm_src", "comm_dst", "comm_tag")
"""Attributes that readers take as 32-bit numbers and as 0 if they have another type (mlcommons/chakra,
src/feeder/et_feeder_node.cpp)."""


def write_traces(
    folder: Path, name: str, plan: TracePlan, mesh: Mesh, group_mesh: Callable[[str], Mesh]
) -> tuple[Path, ...]:
    """Write `name.RANK.et` for every rank of a mesh, and `name.json` with the ranks of every group; return the files.

    Durations are whole microseconds, the unit of the schema, of which kernels take at least one.

    Args:
        mesh: all ranks, with the pipeline as `pp`.
        group_mesh: gives the mesh in which the groups of a transfer's dimension lie.

    Raises:
        SpecError: more ranks than MOST_RANKS, or another number of pipeline ranks than the schedule has.
    """
    if mesh.rank_count > MOST_RANKS or mesh.degree("pp") != plan.schedule.rank_count:
        raise SpecError(
            f"trace: {mesh.rank_count} ranks with pp={mesh.degree('pp')}; files are written for up to {MOST_RANKS} "
            f"ranks, and the schedule has pp={plan.schedule.rank_count}"
        )
    groups: dict[tuple[str, tuple[int, ...]], str] = {}
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in mesh.ranks():
        place = mesh.coordinate(rank)

        def group_of(dim: str, rank: int = rank) -> str:
            return groups.setdefault((dim, group_mesh(dim).group(dim, rank)), str(len(groups) + 1))

        def rank_at(stage: int, place: Mapping[str, int] = place) -> int:
            return mesh.rank({**place, "pp": stage})

        paths.append(folder / f"{name}.{rank}.et")
        with paths[-1].open("wb") as file:  # a rank's nodes may be many: none of them is kept
            file.writelines(trace_messages(rank_nodes(plan, place.get("pp", 0), rank_at, group_of)))
    paths.append(folder / f"{name}.json")
    members = {number: list(ranks) for (_, ranks), number in groups.items()}
    paths[-1].write_text(json.dumps(members, indent=1) + "\n", encoding="utf-8")
    return tuple(paths)


def trace_messages(nodes: Iterable[TraceNode]) -> Iterator[bytes]:
    """Yield the messages of a trace, its metadata and its nodes, each preceded by its length."""
    for message in chain((text_field(1, VERSION),), map(_node, nodes)):
        yield varint(len(message)) + message


def _node(node: TraceNode) -> bytes:
    """Return a node as the schema numbers its fields."""
    data = number_field(1, node.id) + text_field(2, node.name) + number_field(3, node.type)
    if node.needs:
        data += message_field(5, b"".join(map(varint, node.needs)))
    if node.type == COMPUTE:
        data += number_field(7, max(1, round(node.duration_s * 1e6)))
    return data + _attributes(tuple(node.attributes.items()))


@lru_cache(maxsize=4096)  # micro-batches repeat the same collectives
def _attributes(items: tuple[tuple[str, Attribute], ...]) -> bytes:
    """Return the attributes of a node as fields."""
    data = b""
    for name, value in items:
        if isinstance(value, str):
            encoded = text_field(_STRING, value)
        else:
            field = _BOOL if isinstance(value, bool) else _INT32 if name in _SHORT else _INT64
            encoded = number_field(field, int(value))
        data += message_field(10, text_field(1, name) + encoded)
    return data
