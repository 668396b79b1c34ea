"""Command `nearpeak train-bench`: a matrix of training runs, planned, run to the end once, and reported."""

import os
import sys
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.plans.loader_command import counts_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE, revision_of
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.edge.training_matrix import TrainingCell

_HTML = typer.Option(None, "--html", help="Write a page.")


def plan(
    models: str = typer.Option("lenet5,resnet18,mobilenetv3", "--models", help="Models; by default all."),
    batch: str = typer.Option("16", "--batch", help="Items of a batch; several by commas."),
    workers: str = typer.Option("0,1,2,4", "--workers", help="Worker processes of the loader; several by commas."),
    cache: str = typer.Option("cold,warm", "--cache", help="Page cache before each epoch: cold, warm."),
    modes: str = typer.Option("here", "--modes", help="Power modes of the board by name; 'here' is the present one."),
    repeats: int = typer.Option(5, "--repeats", min=1, help="Blocks, each in a random order of its own."),
    epochs: int = typer.Option(3, "--epochs", min=1, help="Epochs of a run."),
    items: str = typer.Option("", "--items", help="Items of a data set, e.g. lenet5=4096,mobilenetv3=200."),
    device: str = typer.Option("cpu", "--device", help="cpu or cuda."),
    threads: int = typer.Option(1, "--threads", min=1, help="Threads of the trainer."),
    prefetch: int = typer.Option(2, "--prefetch", min=1, help="Batches that each worker loads ahead."),
    norm: str = typer.Option("batch", "--norm", help="Normalisation of resnet18: batch or group."),
    pair: str = typer.Option("", "--pair", help="Run A B B A over a field of two values: worker_count, batch, cache."),
    seed: int = typer.Option(0, "--seed", min=0, help="Of data, weights and orders."),
    telemetry: float = typer.Option(10.0, "--telemetry-hz", help="Readings of sensors per second; 0 for none."),
    out: Path = typer.Option(..., "--out", help="File of the plan (.toml)."),
    json: bool = shared.JSON,
    text: bool = shared.TEXT,
) -> None:  # fmt: skip
    """Write a plan of training runs: every combination of models, batches, workers, caches and modes.

    Models are built in, data sets are made on this machine from the seed. The file may be edited.
    """
    from nearpeak.core.edge.training_matrix import TrainingMatrix
    from nearpeak.exchange.training_plan_file import plan_text

    as_json = shared.as_json(json=json, text=text)
    shared.check_writable(out)
    matrix = TrainingMatrix(
        models=_words_of(models), batch=counts_of(batch, "--batch", 1), worker_count=counts_of(workers, "--workers"),
        caches=_words_of(cache), modes=_words_of(modes), repeat_count=repeats, epoch_count=epochs,
        item_count=_items_of(items), seed=seed, device=device, thread_count=threads, prefetch_count=prefetch, norm=norm,
        pair=pair, telemetry_hz=telemetry,
    )  # fmt: skip
    count = sum(1 for _ in matrix.cells())
    shared.write_whole(out, plan_text(matrix))
    if as_json:
        sys.stdout.write(dumps({"plan": str(out), "run_count": count}) + "\n")
    else:
        sys.stdout.write(f"{count} runs; next: nearpeak train-bench run {out} --store perf.db\n")


def run(
    file: Path = typer.Argument(metavar="PLAN", help="Plan of 'nearpeak train-bench plan'."),
    store: str | None = STORE,
    folder: Path | None = typer.Option(None, "--folder", help="Journal and results; by default PLAN with .runs."),
    data: Path | None = typer.Option(None, "--data", help="Data sets; by default the user's cache folder."),
    budget: str = typer.Option("", "--budget", help="Begin no run after this time, e.g. 2h."),
    device: str = typer.Option("", "--device", help="cpu or cuda instead of what the plan says."),
    campaign: str = typer.Option("", "--campaign", help="Name of this pass; another name runs all of the plan again."),
    repository: Path | None = typer.Option(None, "--repository", help="Git repository that is measured."),
    commit: str | None = typer.Option(None, "--commit", help="Commit that was measured, by default its HEAD."),
    branch: str = typer.Option("main", "--branch", help="Branch whose history the results belong to."),
    modes: bool = typer.Option(
        False, "--allow-mode-changes", help="Let the plan set power modes of the board; nothing does otherwise."
    ),
    json: bool = shared.JSON,
) -> None:  # fmt: skip
    """Run what a plan has left to run; what is stopped or killed goes on where it was, each cell counted once.

    A cell that fails three times is left out, with its reason. Without --store results stay in the folder alone; a
    store also gets what earlier calls have left there.
    """
    from dataclasses import replace

    from nearpeak.api.edge.training_bench import run_bench
    from nearpeak.base.folders import cache_folder
    from nearpeak.exchange.training_plan_file import read_plan
    from nearpeak.reports.systems import training_bench_report as report
    from nearpeak.store.store_check import ENVIRONMENT, place_of

    matrix = read_plan(file)
    matrix = replace(matrix, device=device) if device else matrix
    place = place_of(store) if store or os.environ.get(ENVIRONMENT) else None
    answer = run_bench(
        matrix, folder or file.with_suffix(".runs"), data or cache_folder() / "train-bench", store=place,
        campaign=campaign, revision=revision_of(repository, commit), branch=branch, changes_modes=modes,
        budget_s=shared.seconds_of(budget, "--budget") if budget else float("inf"),
        report_cell=_tell,
    )  # fmt: skip
    shared.tell(lambda: report.document_of(answer), lambda: report.to_json(answer), json=json)


def report(
    store: str | None = STORE,
    target: str = typer.Option(
        "", "--target", "-t", help="Device whose bound and prediction of a step stand beside, e.g. cpu."
    ),
    html: Path | None = _HTML,
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:  # fmt: skip
    """Show the training runs of a store: epochs, stalls by phase, energy with its bound, page cache, what failed."""
    from nearpeak.api.edge.training_bench import stored_bench
    from nearpeak.reports.systems import training_bench_report as words
    from nearpeak.store.store_check import place_of

    shared.check_writable(html)
    answer = stored_bench(place_of(store), target)
    shared.write_page(html, words.document_of(answer))
    shared.tell(lambda: words.document_of(answer), lambda: words.to_json(answer), json=json, why=why)


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = shared.group_of("Train small vision models over a matrix of loaders, caches and power modes.")
    for command in (plan, run, report):
        group.command()(command)
    app.add_typer(group, name="train-bench")


def _tell(cell: "TrainingCell") -> None:
    words = f"{cell.label}, repetition {cell.round + 1}, {cell.epoch_count} epochs of {cell.item_count} items\n"
    sys.stderr.write(words)


def _words_of(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


def _items_of(text: str) -> dict[str, int]:
    """Return the items of each model that `--items` states.

    >>> _items_of("lenet5=4096,mobilenetv3=200")
    {'lenet5': 4096, 'mobilenetv3': 200}
    """
    counts = dict[str, int]()
    for word in filter(None, text.split(",")):
        name, _, count = word.strip().partition("=")
        if name in counts or not count.isdecimal() or not 1 <= int(count) <= 10**7:
            raise SpecError(f"--items {word!r}: is not MODEL=NUMBER of 1 to 10000000, or given twice")
        counts[name] = int(count)
    return counts
