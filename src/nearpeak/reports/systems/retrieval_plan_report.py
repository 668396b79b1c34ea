"""Report of a planned retrieval service: the cheapest one, its latencies, other indexes, and the recall curve."""

import json
from collections.abc import Iterator

from nearpeak.core.systems.retrieval_answer import PlannedRetrieval, RetrievalOption
from nearpeak.reports.brief_text import brief, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns
from nearpeak.units import counted, show


def to_json(planned: PlannedRetrieval) -> str:
    """Return the plan as one JSON line."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedRetrieval) -> Document:
    """Return the plan as a document."""
    blocks: list[Block] = [_services(planned), _stages(planned)]
    blocks.append(Details("Batches, recall curve and assumptions (--why)", tuple(_why(planned))))
    ranked = f", {planned.candidate_count:,} ranked by {planned.ranker}" if planned.ranker else ""
    return Document(
        title=f"{planned.found_count:,} nearest of {planned.vector_count:,} × {planned.width_count} "
        f"{planned.number_format} on {planned.target}{ranked}",
        lead=_verdict(planned), blocks=blocks, kicker="Retrieval plan",
    )  # fmt: skip


def _shape(option: RetrievalOption) -> str:
    shards = option.setting.shard_count
    words = f"{option.replica_count} × {shards} shards" if shards > 1 else counted(option.replica_count, "replica")
    return words + (f" + {counted(option.ranker_count, 'ranker')}" if option.ranker_count else "")


def _verdict(planned: PlannedRetrieval) -> str:
    """Return the answer in one sentence."""
    best = planned.best
    usd = planned.usd_per_million_queries(best)
    cost = "" if usd is None else f", ${usd:,.2f} per M queries"
    stage = max(best.load_ratio, key=lambda name: best.load_ratio[name])
    return (
        f"{counted(best.device_count, 'device')}: {best.setting.words}, {_shape(best)}, window "
        f"{brief(best.setting.window_s, 's')}; {planned.rate_per_s:,.6g} queries/s at p99 "
        f"{brief(best.latency_s['p99'], 's')} of {brief(planned.limit_s, 's')}, recall "
        f"{best.setting.point.recall_ratio:.3f}{cost}; the {stage} is at "
        f"{whole_percent(best.load_ratio[stage])} of its capacity."
    )


def _services(planned: PlannedRetrieval) -> Table:
    rows = []
    for option in (planned.best, *planned.others):
        recall = option.setting.point.recall_ratio
        cost = planned.usd_per_million_queries(option)
        rows.append((
            option.setting.words, _shape(option), Cell(value=option.device_count, text=f"{option.device_count}"),
            Cell(value=recall, text=f"{recall:.3f}"), option.latency_s["p50"], option.latency_s["p99"],
            Cell(value=cost, text="–" if cost is None else f"{cost:,.2f}"),
        ))  # fmt: skip
    heads = ("~index", "~service", "#devices", "#recall", "#p50_s|p50", "#p99_s|p99", "#usd|$ per M")
    return Table(columns=columns(*heads), rows=rows, name="services", caption="Services, cheapest first", brief_count=5)


def _stages(planned: PlannedRetrieval) -> Table:
    best = planned.best
    rows = [(name, best.stage_s[name], best.load_ratio[name]) for name in best.stage_s]
    return Table(
        columns=columns("stage", "#p99_s|p99", "#load_ratio|of capacity"), rows=rows, name="stages",
        caption="Stages of the cheapest, waiting included",
    )  # fmt: skip


def _why(planned: PlannedRetrieval) -> Iterator[Block]:
    """Yield what the plan rests on."""
    rows = [
        (Cell(value=size, text=f"{size}"), time_s, planned.rank_s.get(size))
        for size, time_s in planned.batch_s.items()
    ]  # fmt: skip
    heads = ("#queries", "#index_s|index", "#rank_s|ranker")
    yield Table(columns=columns(*heads), rows=rows, name="batches", caption="Time of a batch")
    points = [
        (point.index, Cell(value=point.list_ratio, text=f"{point.list_ratio:g} √N" if point.list_ratio else "–"),
         point.probe_ratio, point.scanned_ratio, Cell(value=point.recall_ratio, text=f"{point.recall_ratio:.3f}"))
        for point in planned.curve
    ]  # fmt: skip
    heads_of_curve = columns("index", "#lists", "#probe_ratio|probed", "#scanned_ratio|compared", "#recall")
    yield Table(
        columns=heads_of_curve, rows=points, name="recall", caption=f"Recall, measured on {planned.curve_source}"
    )  # fmt: skip
    yield Text(
        f"90 % interval of the index's time: {100 * (planned.low_ratio - 1):+.0f} to "
        f"{100 * (planned.high_ratio - 1):+.0f} %. A mean batch holds {planned.best.batch_count:.3g} queries; limits: "
        f"p99 {show(planned.limit_s, 's')}."
    )
    yield Text(
        "Queries arrive at random (Poisson). Recall is that of at most 10 nearest vectors, carried over to all "
        "vectors at equal shares of lists. Each shard sees every query, and the slowest counts. A batch of "
        "the index adds the host's time of submitting each search (6 to 16 µs); a ranker's step is submitted as its "
        "source does, eager if by PyTorch. Merging, copies to and from the host, and the network are not counted. "
        "Graph indexes (HNSW) are not offered: their reads wait for one another, and no document states that latency."
    )
