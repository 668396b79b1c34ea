"""Report of a data loader: epochs by number of workers, causes per batch, page cache, remedies with their formulas."""

import json
from collections.abc import Iterator

from nearpeak.core.edge.loader_answer import LoaderAnswer
from nearpeak.reports.brief_text import brief, whole_percent
from nearpeak.reports.document import Block, Details, Document, Table, Text, columns
from nearpeak.units import counted, show

_SHOWN = 5
"""Remedies that are shown before the rest is folded."""


def to_json(answer: LoaderAnswer) -> str:
    """Return the answer as one JSON line."""
    return json.dumps(answer.record(), allow_nan=False)


def document_of(answer: LoaderAnswer) -> Document:
    """Return the answer as a document; parts of a batch, formulas and where numbers come from are folded."""
    case = answer.case
    return Document(
        title=f"Loader: {case.file_count:,} files of {_bytes(case.file_bytes)}, batches of {case.batch}",
        subject=f"compute {brief(case.compute_s, 's')} a batch, preparation {brief(case.prep_s, 's')} an item, storage "
        f"{show(case.read_bytes_per_s, 'B/s')}, {_bytes(case.ram_bytes)} for the page cache "
        f"({whole_percent(case.cache_ratio)} of {_bytes(case.data_bytes)}: {whole_percent(answer.hit_ratio)} hits)",
        lead=_verdict(answer), blocks=tuple(_blocks(answer)), kicker="Data loader", is_lead_first=True,
        figures=_figures(answer),
    )  # fmt: skip


def _verdict(answer: LoaderAnswer) -> str:
    """Return epoch time, stall, its cause, and from which number of workers compute limits."""
    best = answer.best.later
    stall = f"{whole_percent(best.stall_ratio)} of it stalled"
    head = f"{brief(best.epoch_s, 's')} an epoch with {counted(best.worker_count, 'worker')}, {stall}"
    if answer.enough_worker_count is not None:
        tail = f"compute limits from {counted(answer.enough_worker_count, 'worker')}"
    else:
        tail = f"{answer.why_not} limits with any number of workers"
    gain = ""
    if answer.remedies:
        remedy = answer.remedies[0]
        gain = f"; most is gained by {remedy.name}: {brief(remedy.epoch_s, 's')}"
    return f"{head}; {tail}{gain}."


def _figures(answer: LoaderAnswer) -> list[tuple[str, str, str]]:
    best = answer.best
    return [
        ("epoch", brief(best.later.epoch_s, "s"), f"{counted(best.later.worker_count, 'worker')}, after the first"),
        ("first epoch", brief(best.first.epoch_s, "s"), "nothing in memory"),
        ("stalled", whole_percent(best.later.stall_ratio), best.later.limiter),
        ("page cache hits", whole_percent(answer.hit_ratio), f"{answer.case.replacement}, {answer.case.order} order"),
    ]


def _blocks(answer: LoaderAnswer) -> Iterator[Block]:
    rows = [
        (row.later.worker_count, row.first.epoch_s, row.later.epoch_s, row.later.stall_ratio, row.later.limiter,
         row.enough_ram_bytes)
        for row in answer.rows
    ]  # fmt: skip
    yield Table(
        columns=columns("#workers", "#first_s|first epoch", "#later_s|later epochs", "#stall_ratio|stalled",
                        "limiter|limited by", "#enough_bytes|RAM that frees it"),
        rows=rows, name="workers", caption="Epochs; RAM from which storage no longer lengthens a later one",
    )  # fmt: skip
    gains = [(remedy.name, remedy.epoch_s, remedy.gain_s, remedy.formula) for remedy in answer.remedies]
    yield Table(
        columns=columns("remedy", "#epoch_s|epoch", "#gain_s|gain", "+formula"), rows=gains, name="remedies",
        caption=f"What each change alone gains with {counted(answer.best.later.worker_count, 'worker')}",
        empty="nothing gains 1 %: compute limits", brief_count=_SHOWN,
    )  # fmt: skip
    if answer.replays:
        yield Table(
            columns=columns("#workers", "#epoch_s|epoch", "#stall_s|stalled", "#held_s|head of line"), name="replay",
            rows=[
                (replay.worker_count, replay.epoch_s, replay.stall_s, replay.head_of_line_s)
                for replay in answer.replays
            ],
            caption="Replay of recorded times: head of line is waiting while a later batch is ready",
        )  # fmt: skip
    yield Details("Causes per batch, formulas, provenance (--why)", tuple(_why(answer)))


def _why(answer: LoaderAnswer) -> Iterator[Block]:
    rows = [
        (f"{row.later.worker_count} {name}", epoch.batch_s, epoch.compute_s, epoch.copy_s, epoch.prep_s,
         epoch.storage_s, epoch.start_s)
        for row in answer.rows for name, epoch in (("first", row.first), ("later", row.later))
    ]  # fmt: skip
    yield Table(
        columns=columns("workers", "#batch_s|batch", "#compute_s|compute", "#copy_s|copy", "#prep_s|preparation",
                        "#storage_s|storage", "#start_s|start, once"),
        rows=rows, name="batches", caption="Time between two batches by cause, first and later epochs",
    )  # fmt: skip
    case = answer.case
    yield Text(
        "Queue: without workers n (t_f + t_c); with w workers t_f + n max(t_c, t_f / w, batch · bytes · misses / R), "
        "the last wave of w batches counted exactly. Preparation is what would remain with all files in memory."
    )
    if case.core_count:
        yield Text(
            f"{counted(case.core_count, 'core')}: a batch also takes at least the work of "
            f"{'preparation and compute' if case.is_compute_on_cores else 'preparation'} over them."
        )
    yield Text(
        f"Page cache: c = {case.cache_ratio:.3f} of the data set; hits "
        + {"minio": "c, as what is in stays in.", "same": "0 below c = 1: each file goes just before its turn."}.get(
            case.replacement if case.replacement == "minio" else case.order,
            f"c + (1 − c) ln(1 − c) = {answer.hit_ratio:.4f} for a new random order in each epoch; Linux keeps two "
            "lists and lies between that and c.",
        )
    )
    yield Text("Memory of workers, pinned buffers and the model is not left for the page cache: state what remains.")
    yield from (Text(note) for note in answer.notes)


def _bytes(size_bytes: float) -> str:
    return show(float(f"{size_bytes:.3g}"), "B")
