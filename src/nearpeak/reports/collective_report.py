"""Report of the time of a collective between the nodes of a cluster, as text and JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nearpeak.core.systems.collective_time import CallTime, CollectiveTime
from nearpeak.core.systems.fabric import Cluster, Fabric
from nearpeak.core.work.case import Case
from nearpeak.core.work.workload import Workload
from nearpeak.reports import brief_text as text
from nearpeak.reports import figure_text as words
from nearpeak.reports.document import WHY, Details, Document, Table, columns

_WORDS: Mapping[str, str] = {
    "inside": "the collective inside one node",
    "start": "starting it: the smallest message inside a node, or the library's start",
    "hops": "messages from node to node, and from rank to rank of further nodes, one after the other",
    "wire": "bytes over the links of the slowest tier, at the share of their rate that libraries reach",
    "wait": "waiting for the last rank",
    "bound": "what is missing from the time that nothing can beat",
}
"""Meanings of the parts."""


class CollectiveRow(NamedTuple):
    """Equal collectives of a captured step."""

    dim: str
    """Mesh dimension; empty where the capture names none."""
    kind: str
    """Collective."""
    rank_count: int
    """Ranks of the group."""
    elements_count: int
    """Elements of the whole message."""
    dtype: str
    """Their format."""
    call_count: int
    """Calls in the step."""
    found: CollectiveTime
    """Time of one."""

    def to_json(self, cluster: Cluster) -> str:
        """Return the row as one JSON line."""
        result = self.found
        return json.dumps(
            {
                "target": cluster.target, "fabric": cluster.fabric.name, "dim": self.dim, "kind": self.kind,
                "ranks": self.rank_count, "elements": self.elements_count, "dtype": self.dtype,
                "call_count": self.call_count, "tier": result.tier, "limiter": result.limiter,
                "predicted_s": result.time_s, "low_s": result.low_s, "high_s": result.high_s, "bound_s": result.bound_s,
            }
        )  # fmt: skip


def collective_rows(workload: Workload, times: Sequence[CallTime]) -> list[CollectiveRow]:
    """Return the collectives of a captured step, equal ones as one row, largest total first."""
    rows: dict[CollectiveRow, CollectiveRow] = {}
    for each in times:
        call = workload.calls[each.call]
        record: dict[str, Any] = call.case.record() if call.case else {}
        row = CollectiveRow(
            dim=each.dim, kind=str(record["kind"]), rank_count=int(record["ranks"]),
            elements_count=int(record["elements"]), dtype=str(record["dtype"]), call_count=call.call_count,
            found=each.found,
        )  # fmt: skip
        key = row._replace(call_count=0)
        known_count = rows[key].call_count if key in rows else 0
        rows[key] = row._replace(call_count=known_count + call.call_count)
    return sorted(rows.values(), key=lambda row: -row.call_count * row.found.time_s)


def rows_document(name: str, cluster: Cluster, rows: Sequence[CollectiveRow]) -> Document:
    """Return the collectives of a captured step as a document."""
    total_s = sum(row.call_count * row.found.time_s for row in rows)
    table = [
        (row.dim or "–", row.kind, row.rank_count, row.elements_count, row.dtype, row.found.tier, row.call_count,
         row.found.time_s, text.ends(row.found.low_s, row.found.high_s, row.found.time_s, "s"))
        for row in rows
    ]  # fmt: skip
    return Document(
        title=name, subject=f"collectives of one rank on {cluster.device_count}x{cluster.target}", kicker="Prediction",
        lead=f"{text.brief(total_s, 's')} of collectives on {cluster.fabric.name}, where nothing hides them.",
        blocks=[
            Table(
                columns=columns(
                    "dim", "kind", "#ranks", "#elements", "dtype", "tier", "#calls", "#time_s", "interval"
                ),
                rows=table, indent_count=2,
            )
        ],
    )  # fmt: skip


def to_json(case: Case, target: str, fabric: Fabric, result: CollectiveTime) -> str:
    """Return the time as one JSON line, with the source of each part."""
    return json.dumps(
        {
            "case": case.record(), "digest": case.digest, "target": target, "fabric": fabric.name,
            "predicted_s": result.time_s, "low_s": result.low_s, "high_s": result.high_s, "bound_s": result.bound_s,
            "tier": result.tier, "limiter": result.limiter, "protocol": result.algorithm,
            "waterfall_s": {part.name: part.time_s for part in result.parts},
            "provenance": {part.name: part.ground for part in result.parts},
            "tiers": [
                {"name": tier.name, "device_count": tier.device_count, "source": tier.source} for tier in fabric.tiers
            ],
        }
    )  # fmt: skip


def document_of(label: str, target: str, fabric: Fabric, result: CollectiveTime) -> Document:
    """Return the time as a document: the answer, its parts, and folded what each rests on."""
    ends = text.ends(result.low_s, result.high_s, result.time_s, "s")
    across = f"across {result.tier}" if result.tier else "one rank"
    lead = (
        f"{text.brief(result.time_s, 's')} ({ends}), {across}, limited by {result.limiter or 'nothing'}; "
        f"limit {text.brief(result.bound_s, 's')}, which nothing beats."
    )
    rows = [(part.name, part.time_s, words.percent(part.time_s / result.time_s)) for part in result.parts]
    provenance = [f"{part.name}: {_WORDS[part.name]}; {part.ground}" for part in result.parts]
    protocol = f"fastest protocol between nodes: {result.algorithm}" if result.algorithm else ""
    return Document(
        title=label, subject=f"on {target} ({fabric.name}: {fabric.title})", lead=lead, kicker="Prediction",
        blocks=[
            Table(columns=columns("part|", "#time_s|", "#share|"), rows=rows, indent_count=2),
            protocol,
            Details(WHY, (*provenance, *(f"{tier.name}: {tier.source}" for tier in fabric.tiers))),
        ],
    )  # fmt: skip
