"""Training benchmark: runs of a plan into the store, and what a store holds of them."""

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from nearpeak.base.host_system import cpu_name
from nearpeak.core.edge.bench_answer import BenchAnswer, BenchRow, StepTarget
from nearpeak.core.edge.training_matrix import CellLog, TrainingCell, TrainingMatrix
from nearpeak.core.history.stored_run import Device, Revision, Series
from nearpeak.errors import MeasureError, NearpeakError, NotFoundError
from nearpeak.measurement.training.cell_process import Execute, executed_apart
from nearpeak.measurement.training.matrix_run import code_version, run_matrix
from nearpeak.measurement.training.run_journal import RunJournal
from nearpeak.store import Store, open_store
from nearpeak.store.training_records import EPOCH, TESTBED, failed_record, log_of_record, training_record

_SHOWN_RUNS = 200
"""Newest runs of a series that a report reads."""


def run_bench(
    plan: TrainingMatrix, folder: Path, data: Path, *, store: str | None = None, campaign: str = "",
    revision: Revision | None = None, branch: str = "main", budget_s: float = float("inf"),
    changes_modes: bool = False, execute: Execute | None = None,
    report_cell: Callable[[TrainingCell], None] | None = None,
) -> BenchAnswer:  # fmt: skip
    """Run what a plan has left to run, put each result into the store once, and return all of it.

    A run of the store is one cell, so that a plan that was stopped leaves nothing out that has ended. Its identity is
    that of the cell: what is in the store already stays as it is.

    Args:
        folder: of journal and results; a plan that runs there already is refused.
        data: folder of data sets.
        campaign: name of this pass over the plan; another name runs all of it again.
        execute: runs a cell; by default a process of its own.

    Raises:
        MeasureError: another process runs the plan, or there is no CUDA device for it.
        StoreError: the store cannot be written.
    """
    version = "\n".join(filter(None, (code_version(), campaign, revision.sha if revision else "")))
    until_s, done, left = time.monotonic() + budget_s, list[CellLog](), 0
    failures = list[tuple[TrainingCell, str]]()
    if execute is None and plan.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise MeasureError("train-bench: there is no CUDA device here; --device cpu trains on the processor")
    with ExitStack() as stack:
        opened = stack.enter_context(open_store(store, create=True)) if store else None
        journal = stack.enter_context(RunJournal(folder))
        data.mkdir(parents=True, exist_ok=True)
        steps = run_matrix(
            plan.cells(), journal, execute or executed_apart(data), version=version, until_s=until_s,
            changes_modes=changes_modes, report_cell=report_cell,
        )  # fmt: skip
        for cell, state, reason, log in steps:
            if log is not None:
                done.append(log)
                if opened is not None:
                    opened.ingest(training_record(log, revision, branch))
            elif state in ("quarantined", "refused"):
                failures.append((cell, reason))
                if opened is not None and state == "quarantined":
                    device = Device(name=cpu_name() if cell.device == "cpu" else cell.device)
                    opened.ingest(failed_record(cell, cell.key(version), reason, device, revision))
            else:
                left += 1
    return BenchAnswer(rows=bench_rows(done, failures), source=str(folder), planned_count=left)


def bench_rows(logs: Iterable[CellLog], failures: Iterable[tuple[TrainingCell, str]] = ()) -> tuple[BenchRow, ...]:
    """Return runs as rows: repetitions of one case in one power mode together, failed cases last."""
    together: dict[tuple[str, str, str], list[CellLog]] = {}
    for log in logs:
        setting = str(sorted(log.cell.case().items()))
        together.setdefault((log.cell.label, log.facts.get("mode", ""), setting), []).append(log)
    rows = [BenchRow(label=key[0], mode=key[1], logs=tuple(group)) for key, group in sorted(together.items())]
    failed = {(cell.label, cell.mode): reason for cell, reason in failures}
    return (*rows, *(BenchRow(label=key[0], mode=key[1], logs=(), failure=why) for key, why in sorted(failed.items())))


def stored_bench(store: str, target: str = "") -> BenchAnswer:
    """Return the training runs of the store at a place, see `bench_of_store`."""
    with open_store(store) as opened:
        return bench_of_store(opened, target)


def bench_of_store(
    store: Store, target: str = "", *, cell_count: int = 1_000_000, run_count: int = _SHOWN_RUNS
) -> BenchAnswer:
    """Return the training runs of an open store, the newest commit or time last.

    Args:
        target: device whose bound and prediction of the step stand beside the times; none where it is empty.
        cell_count: newest series that are read at most.
        run_count: newest runs of a series that are read at most.

    Raises:
        NotFoundError: it holds none.
    """
    logs, failures = list[CellLog](), list[BenchRow]()
    series = [item for item in store.series(metric=EPOCH.name) if item.testbed.name.startswith(TESTBED)]
    if not series:
        raise NotFoundError(
            f"{store.name}: holds no training runs; 'nearpeak train-bench run PLAN --store' puts them there"
        )
    for item in series[-cell_count:]:
        stored = _stored_logs(store, item, run_count)
        logs += stored
        if not stored:
            failures.append(BenchRow(label=item.label, mode="", logs=(), failure="every run has failed"))
    rows = (*bench_rows(logs), *failures)
    if target:
        rows = tuple(replace(row, step=step_target(row.logs[0].cell, target)) if row.logs else row for row in rows)
    return BenchAnswer(rows=rows, source=store.name)


def _stored_logs(store: Store, series: Series, run_count: int) -> list[CellLog]:
    history = store.history(series.id)
    logs = (
        log_of_record(store.records(int(run), series.id, int(launch)), series.label)
        for run, launch in zip(history.run_ids[-run_count:], history.launches[-run_count:], strict=True)
    )
    return [log for log in logs if log is not None]


def step_target(cell: TrainingCell, target: str) -> StepTarget:
    """Return the bound of a cell's training step on a target; what is not known has its reason."""
    import torch

    from nearpeak.api.achievable_time import predict
    from nearpeak.api.questions import bound, capture
    from nearpeak.measurement.training.small_models import build_model
    from nearpeak.measurement.training.training_data import KINDS

    kind = KINDS[cell.model]
    model = build_model(cell.model, kind.class_count, norm=cell.norm)
    images = torch.empty(cell.batch, kind.channel_count, kind.width, kind.width)
    try:
        workload = capture(model, inputs=(images,), step="train")
        bound_s = bound(workload, target).time_s
    except NearpeakError as error:
        return StepTarget(bound_s=None, predicted_s=None, note=str(error))
    try:
        return StepTarget(bound_s=bound_s, predicted_s=predict(workload, target).time_s)
    except NearpeakError as error:
        return StepTarget(bound_s=bound_s, predicted_s=None, note=str(error))
