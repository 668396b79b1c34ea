"""Report of the device figures that a target time requires, as text and JSON."""

import json

from nearpeak.core.answers.provision import Provision
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.reports.document import Block, Cell, Document, Heading, Table, Text, columns
from nearpeak.reports.figure_text import times
from nearpeak.units import show


def to_json(provision: Provision) -> str:
    """Return the provision as one JSON line."""
    record = RECORDS.plain(provision)
    for need, row in zip(provision.needs, record["needs"], strict=True):
        row["factor_ratio"] = need.factor_ratio
    return json.dumps({**record, "reached": provision.reached})


def document_of(provision: Provision) -> Document:
    """Return the provision as a document."""
    verdict = ": what any device needs at least"
    if provision.target is not None and provision.bound_s is not None:
        reached = "not beyond its bound" if provision.reached else "out of reach"
        verdict = f" on {provision.target}: {reached}, {show(provision.bound_s, 's')} by {provision.limiter or ''}"
    blocks: list[Block] = [f"within {show(provision.within_s, 's')}{verdict}", _needs(provision)]
    if any(need.status == "model" for need in provision.needs):
        blocks.append(Text("model: necessary only if no other unit takes over; the rest is proved", "muted"))
    if len(provision.frontier) > 1:
        rows = [(point.storage_bytes, point.dram_bytes, point.dram_bytes_per_s) for point in provision.frontier]
        heads = columns("#storage_bytes|storage", "#dram_bytes|traffic", "#dram_bytes_per_s|bandwidth")
        blocks += [Heading("Storage on chip against memory bandwidth"), Table(columns=heads, rows=rows)]
    if provision.target is not None:
        storage = provision.least_storage_bytes
        least = "no storage on chip is enough" if storage is None else f"at least {show(storage, 'B')} on chip"
        blocks.append(f"{least} for the memory bandwidth of {provision.target}")
    if provision.uncovered:
        blocks.append(f"without a rule, so that more is needed: {', '.join(provision.uncovered)}")
    return Document(title=provision.subject, blocks=blocks, kicker="Provision")


def _needs(provision: Provision) -> Table:
    beside = provision.target is not None
    rows = []
    for need in provision.needs:
        factor = need.factor_ratio
        here = "not stated" if need.here is None else show(need.here, need.unit)
        kind = "strong bad" if factor is not None and factor > 1 else ""
        text = "–" if factor is None else times(factor)
        more = (here, Cell(value=factor, text=text, kind=kind)) if beside else ()
        rows.append((need.resource, show(need.least, need.unit), *more, need.status))
    heads = ("#here", "#factor") if beside else ()
    return Table(columns=columns("resource", "#at least", *heads, "status|"), rows=rows)
