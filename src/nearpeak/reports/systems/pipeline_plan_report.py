"""Report of a pipeline: where a page's time goes, what models take on a board, padding, and what each stage hides."""

import json
from collections.abc import Iterator

from nearpeak.core.edge.stage_pipeline import PlannedPipeline, StageTime
from nearpeak.reports.brief_text import brief, figure_of_three, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns
from nearpeak.units import show, signed_percent

_ASSUMED = (
    "Time is of one thread on this machine, the median over passes of a page; parts named by nearpeak.stage are within "
    "the stage above them. 'page without' is the page if the stage took no time (Amdahl). On a board models are "
    "predicted call by call, submitted as a graph; functions are not, as nothing relates this host to the board's. By "
    "a calibration page a model's time follows the bytes of its inputs, a function's the bytes that go in and out."
)

BUSY_RATIO = 0.9
"""Share of a stage's time on a core below which the report says so."""


def to_json(planned: PlannedPipeline) -> str:
    """Return the answer as one JSON line, which calibrates other pages."""
    return json.dumps(planned.record(), allow_nan=False)


def document_of(planned: PlannedPipeline) -> Document:
    """Return the answer as a document."""
    blocks: list[Block] = [_stages(planned), *_padding(planned), *_board(planned), *_expected(planned)]
    blocks.append(Details("Percentiles, bytes, what each stage hides, and assumptions (--why)", tuple(_why(planned))))
    return Document(
        title=f"{planned.name}: {planned.page}", lead=_verdict(planned), blocks=blocks, kicker="Pipeline",
        is_lead_first=True, subject=f"{planned.round_count} pass{'es' if planned.round_count > 1 else ''}",
    )  # fmt: skip


def _verdict(planned: PlannedPipeline) -> str:
    """Return the answer in two sentences."""
    whole = [stage for stage in planned.stages if not stage.outer_count]
    largest = max(whole, key=lambda stage: stage.time_s, default=None)
    rest = 1 - planned.model_s / planned.wall_s
    text = f"{brief(planned.wall_s, 's')} a page; {whole_percent(rest)} of it outside the models"
    if largest is not None:
        text += f"; most in {largest.name} ({whole_percent(largest.time_s / planned.wall_s)})"
    text += f". Stages explain {100 * planned.coverage_ratio:.1f} % of the time."
    busy = sum(stage.cpu_s for stage in whole) / max(sum(stage.time_s for stage in whole), 1e-12)
    taken = f" Their thread had a core for {whole_percent(busy)} of it: other work, or threads of models."
    return text + (taken if busy < BUSY_RATIO else "")


def _stages(planned: PlannedPipeline) -> Table:
    rows = []
    for stage in planned.stages:
        board = () if not planned.target else (_or_dash(stage.board_s), _or_dash(stage.bound_s))
        name = "  " * stage.outer_count + stage.name.rpartition("/")[2]
        rows.append((
            name, "model" if stage.is_model else "", stage.call_count,
            stage.time_s, stage.time_s / planned.wall_s, stage.time_s / planned.wall_s, *board,
        ))  # fmt: skip
    stem = planned.target.partition(":")[0]
    heads = ("stage", "kind", "#call_count|calls", "#time_s|time", "#share_ratio|share", "share_bar|of the page",
             *((f"#board_s|{stem}", "#bound_s|bound") if planned.target else ()))  # fmt: skip
    return Table(columns=columns(*heads), rows=rows, name="stages", caption="Where the page goes")


def _or_dash(value: float | None) -> Cell:
    return Cell(value=value, text="–" if value is None else brief(value, "s"))


def _padding(planned: PlannedPipeline) -> Iterator[Block]:
    """Yield how much of each batch is padding, and what sorting by width would leave."""
    for row in planned.paddings:
        if row.padded_column_count:
            now, least = 1 - row.column_count / row.padded_column_count, 1 - row.column_count / row.sorted_column_count
            text = f"{row.stage}: {whole_percent(now)} of the pixels of {row.item_count} items are padding"
            saved = row.padded_column_count - row.sorted_column_count
            gain = (f'; buckets = "sorted" leaves {whole_percent(least)}, {saved:,} columns fewer ({row.batch} a batch)'
                    if saved else "; no batches of this size have less")  # fmt: skip
            yield Text(text + gain + ".")


def _board(planned: PlannedPipeline) -> Iterator[Block]:
    """Yield what the models of a page take on the board, and the rate that they allow."""
    times = [stage.board_s for stage in planned.stages if stage.board_s is not None]
    if planned.target and times:
        bound = sum(stage.bound_s or 0.0 for stage in planned.stages)
        yield Text(
            f"On {planned.target} the models take {brief(sum(times), 's')} a page (bound {brief(bound, 's')}): at most "
            f"{figure_of_three(1 / sum(times))} pages/s, if functions run beside them. Functions are not predicted "
            "there."
        )


def _expected(planned: PlannedPipeline) -> Iterator[Block]:
    """Yield measured beside expected times."""
    if planned.calibration:
        rows = [(stage.name, stage.time_s, stage.expected_s, _difference(stage))
                for stage in planned.stages if not stage.outer_count]  # fmt: skip
        heads = columns("stage", "#time_s|measured", "#expected_s|expected", "#difference")
        yield Table(columns=heads, rows=rows, name="expected", caption=f"By the calibration page {planned.calibration}")
        if planned.expected_s is not None:
            yield Text(f"Page: {brief(planned.wall_s, 's')} measured, {brief(planned.expected_s, 's')} expected.")


def _difference(stage: StageTime) -> str:
    return "–" if stage.expected_s is None or not stage.time_s else signed_percent(stage.expected_s / stage.time_s - 1)


def _why(planned: PlannedPipeline) -> Iterator[Block]:
    rows = [
        (stage.name, stage.p50_s, stage.p95_s, stage.own_s, show(stage.in_bytes, "B"), show(stage.out_bytes, "B"),
         _or_dash(None if stage.outer_count else planned.wall_s - stage.time_s))
        for stage in planned.stages
    ]  # fmt: skip
    heads = columns("stage", "#p50_s|p50 of a call", "#p95_s|p95", "#own_s|own", "#bytes in", "#bytes out",
                    "#without_s|page without")  # fmt: skip
    yield Table(columns=heads, rows=rows, name="details", caption="Calls, bytes, and the page without each stage")
    model_s = planned.model_s
    slower = max(model_s, planned.wall_s - model_s)
    yield Text(
        f"If models and functions of successive pages ran side by side: at most {figure_of_three(1 / slower)} "
        f"pages/s, now {figure_of_three(1 / planned.wall_s)}."
    )
    for row in planned.paddings:
        plan = ", ".join(f"{count} × {width}" for count, width in row.rows)
        yield Text(f"Batches of {row.stage} with the least padding, items × width: {plan or 'none'}.")
    if planned.node_count:
        yield Text(
            f"{planned.node_count:,} nodes of models are on the clock of the stages, within "
            f"{brief(planned.clock_error_s, 's')} (--perfetto writes both)."
        )
    yield Text(_ASSUMED)
