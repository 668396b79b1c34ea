"""Report of training runs: epochs, samples per second, stalls by phase, energy, accuracy, throttling, page cache."""

import json
import math
from collections.abc import Iterator

from nearpeak.core.edge.bench_answer import BenchAnswer, BenchRow
from nearpeak.reports.brief_text import brief, whole_percent
from nearpeak.reports.document import Block, Cell, Details, Document, Table, Text, columns
from nearpeak.units import counted

_COMPUTE = ("forward", "backward", "optimizer")
_SHOWN = 14
"""Cells that a terminal shows."""


def to_json(answer: BenchAnswer) -> str:
    """Return the runs as one JSON line."""
    return json.dumps(answer.record(), allow_nan=False)


def document_of(answer: BenchAnswer) -> Document:
    """Return the runs as a document; phases, page cache and machine are folded."""
    runs = sum(len(row.logs) for row in answer.rows)
    blocks: list[Block] = [_epochs(answer), *_targets(answer), *_failures(answer)]
    blocks.append(Details("Phases, page cache, energy, machine (--why)", tuple(_why(answer))))
    return Document(
        title=f"Training runs: {counted(len(answer.rows), 'cell')}, {counted(runs, 'run')}", subject=answer.source,
        lead=_verdict(answer), blocks=blocks, kicker="Training benchmark",
        figures=[
            (row.logs[0].cell.model, f"{row.samples_per_s:,.4g} /s", f"{row.label}, {brief(row.epoch_s, 's')} an epoch")
            for row in sorted(_done(answer), key=lambda row: -row.samples_per_s)[:4]
        ],
    )  # fmt: skip


def _done(answer: BenchAnswer) -> list[BenchRow]:
    return [row for row in answer.rows if row.logs]


def _verdict(answer: BenchAnswer) -> str:
    """Return the fastest cell of each model, and which stalls most."""
    done = _done(answer)
    if not done:
        left = f"{counted(answer.planned_count, 'run')} left to do" if answer.planned_count else "every run has failed"
        return f"No results: {left}."
    best: dict[str, BenchRow] = {}
    for row in sorted(done, key=lambda row: row.epoch_s / row.logs[0].cell.item_count):
        best.setdefault(row.logs[0].cell.model, row)
    words = [
        f"{model} {row.samples_per_s:,.4g} samples/s ({brief(row.epoch_s, 's')} an epoch, "
        f"{counted(row.logs[0].cell.worker_count, 'worker')}, {row.logs[0].cell.cache})"
        for model, row in sorted(best.items())
    ]
    worst = max(done, key=lambda row: row.share_ratio("start", "wait", "stop"))
    stall = whole_percent(worst.share_ratio("start", "wait", "stop"))
    left = f" {counted(answer.planned_count, 'run')} left to do." if answer.planned_count else ""
    return f"{'; '.join(words)}. Longest stall: {stall} of {worst.label}.{left}"


def _epochs(answer: BenchAnswer) -> Table:
    rows = []
    for row in answer.rows:
        if not row.logs:
            continue
        throttle = ", ".join(row.throttle)
        rows.append((
            row.label.removeprefix("train "), row.first_epoch_s, row.epoch_s, round(row.samples_per_s, 2),
            row.share_ratio("start", "wait", "stop"), row.share_ratio(*_COMPUTE), _energy(row),
            row.epochs[-1].quantities["accuracy"], row.spread_ratio, row.mode, throttle or "no",
        ))  # fmt: skip
    heads = columns(
        "~cell", "#first_s|first epoch", "#epoch_s|later", "#samples|samples/s", "#wait_ratio|stalled",
        "+#compute_ratio|compute", "energy|J/epoch", "+#accuracy_ratio|accuracy", "+#spread_ratio|spread", "+mode",
        "+throttled",
    )  # fmt: skip
    return Table(
        columns=heads, rows=rows, name="epochs", caption="Cells of the matrix, medians over repetitions",
        empty="no run has ended", brief_count=_SHOWN, has_filter=True,
    )  # fmt: skip


def _energy(row: BenchRow) -> str | Cell:
    """Return the energy of an epoch by domain with its error bound."""
    if not row.energies:
        return "not measured"
    parts = [f"{energy.domain} {energy.energy_j:.3g} ± {energy.error_j:.2g}" for energy in row.energies]
    return Cell(value=row.energies[0].energy_j, text=", ".join(parts))


def _targets(answer: BenchAnswer) -> Iterator[Block]:
    """Yield bound and prediction of the steps where a target was named."""
    rows, notes = [], dict[str, None]()
    for row in answer.rows:
        if row.step is None:
            continue
        step_s, bound_s = row.compute_step_s, row.step.bound_s
        ratio = None if bound_s is None or math.isnan(step_s) else step_s / bound_s
        rows.append(
            (row.label.removeprefix("train "), step_s, bound_s, ratio and round(ratio, 2), row.step.predicted_s)
        )
        notes |= {row.step.note: None} if row.step.note else {}
    if rows:
        heads = columns("~cell", "#step_s|step", "#bound_s|bound", "#times|measured / bound", "#predicted_s|predicted")
        yield Table(columns=heads, rows=rows, name="steps", caption="Forward, backward and optimizer of one batch")
        yield from (Text(note, "muted") for note in notes)


def _failures(answer: BenchAnswer) -> Iterator[Block]:
    rows = [(row.label.removeprefix("train "), row.mode, row.failure) for row in answer.rows if not row.logs]
    if rows:
        yield Table(columns=columns("~cell", "mode", "~reason"), rows=rows, name="failures", caption="Not run")


def _why(answer: BenchAnswer) -> Iterator[Block]:
    done = _done(answer)
    names = ("start", "wait", "h2d", *_COMPUTE, "stop")
    yield Table(
        columns=columns("~cell", *(f"#{name}_ratio|{name}" for name in names)), name="phases",
        rows=[(row.label.removeprefix("train "), *(row.share_ratio(name) for name in names)) for row in done],
        caption="Phases of later epochs; h2d is the copy to the device, start and stop those of workers",
    )  # fmt: skip
    pages = []
    for row in done:
        epoch = row.epochs[-1]
        before = epoch.resident_before_bytes / epoch.data_bytes if epoch.resident_before_bytes >= 0 else None
        after = epoch.resident_after_bytes / epoch.data_bytes if epoch.resident_after_bytes >= 0 else None
        read_bytes = epoch.read_bytes if epoch.read_bytes >= 0 else None
        pages.append((row.label.removeprefix("train "), epoch.data_bytes, before, after, read_bytes,
                      epoch.major_fault_count))  # fmt: skip
    heads = (
        "#data_bytes|data",
        "#before_ratio|resident before",
        "#after_ratio|after",
        "#read_bytes|read",
        "#faults_count|major faults",
    )
    yield Table(columns=columns("~cell", *heads), rows=pages, name="pages", caption="Page cache in the last epoch")
    for fact in ("mode", "storage", "l4t", "data", "cold", "energy", "sensors"):
        values = dict.fromkeys(log.facts[fact] for row in done for log in row.logs if fact in log.facts)
        if values:
            yield Text(f"{fact}: {'; '.join(values)}")
    machines = dict.fromkeys((log.environment.device, log.environment.digest) for row in done for log in row.logs)
    yield Text("machine: " + "; ".join(f"{device} (fingerprint {digest})" for device, digest in machines))
    yield Text(
        "Phases are marked in monotonic nanoseconds without waiting for a device; on CUDA by events that are read at "
        "the end of the epoch. Energy is never summed over domains, which may contain each other."
    )
