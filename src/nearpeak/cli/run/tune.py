"""Command `nearpeak tune`: the fastest correct configuration of a kernel among all legal ones."""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.run.measure import CACHE_HOT, LIMIT, MEMORY, NO_CHECK, THREADS, timing_of, warn_of_threads
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.options import seconds_of
from nearpeak.errors import INCONCLUSIVE_CODE, SpecError
from nearpeak.units import parse_share

if TYPE_CHECKING:
    from nearpeak.api.configuration_search import Keeper, TuningPlan, TuningProgress
    from nearpeak.core.runs.measurement import Timing
    from nearpeak.core.tuning.study import Contest, Study, Trial
    from nearpeak.core.work.case import Case

_SPACE = typer.Argument(
    None, metavar="SPACE", help="TOML file of a space, T1 JSON, or a Python file with Triton's Config calls."
)
_CASE = typer.Option(
    "", "--case", help="Case in words instead of the file's: 'softmax rows=4096 columns=4096 dtype=fp32'."
)
_RUNNER = typer.Option(
    "", "--runner", help="Runner with its function instead of the file's: triton:kernels.py:softmax."
)
_DEFAULT = typer.Option("", "--default", help="Configuration in use today, e.g. block=64,stages=2: the one to beat.")
_SEARCH = typer.Option("auto", "--search", help="model, tpe, nsga2 (a genetic search), random; auto chooses.")
_BUDGET = typer.Option(
    "", "--budget", help="Evaluations (100 by default; --replay: 1,000 a seed), or a time, e.g. '20 min'."
)
_EVALUATIONS, _REPLAYED = "100", "1000"
"""Budgets without --budget."""
_STUDY = typer.Option(None, "--study", help="Journal (.jsonl) of the study: the same command goes on where it stopped.")
_WITHIN = typer.Option(
    "5%", "--within", help="Distance to the achievable time, or --replay: to the optimum, to stop at."
)
_FINALISTS = typer.Option(3, "--finalists", min=0, max=20, help="Best of the search that meet the default in pairs.")
_PAIRS = typer.Option("60 s", "--pairs", help="Time of each of those comparisons.")
_TOLERANCE = typer.Option("2%", "--tolerance", help="Difference up to which two configurations count as the same.")
_LEAST_GAIN = typer.Option(
    "", "--least-gain", help="Stop when all that is left is expected to improve the best by less, e.g. 1%."
)
_STORE = typer.Option(
    None, "--store", help="Keep a finished study in this store, created if missing: history, gate and regressions."
)
_REPOSITORY = typer.Option(None, "--repository", help="--store: git repository of the kernel.")
_BRANCH = typer.Option("main", "--branch", help="--store: branch whose history the study belongs to.")
_REPLAY = typer.Option(None, "--replay", help="Recorded space (T4, kernel_tuner cache): how good is the search itself?")
_SEEDS = typer.Option(20, "--seeds", min=1, max=1000, help="--replay: runs with different seeds.")
_HTML = typer.Option(None, "--html", help="Write a page with the course of the search.")

EXAMPLE = """
Example of space.toml (every key: docs/guide/tuning.md):

function = "kernel.py:softmax"   # of the file below, beside this one
runner = "callable"              # or triton, callable_cuda, ...
case = "softmax rows=256 columns=1024 dtype=fp32"
constraints = ["block <= rows"]

[parameters]
block = [16, 64, 256]

[default]                        # in use today: the one to beat
block = 16

Its kernel.py:

import torch

def softmax(tensors, block, **arguments):
    parts = tensors["x"].split(block)
    return {"y": torch.cat([part.softmax(-1) for part in parts])}
"""
"""End of the help: a space and its kernel to start with."""


def tune(
    space: Path | None = _SPACE,
    case: str = _CASE,
    runner: str = _RUNNER,
    default: str = _DEFAULT,
    search: str = _SEARCH,
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the search."),
    budget: str = _BUDGET,
    study: Path | None = _STUDY,
    within: str = _WITHIN,
    finalists: int = _FINALISTS,
    pairs: str = _PAIRS,
    tolerance: str = _TOLERANCE,
    least_gain: str = _LEAST_GAIN,
    replay: Path | None = _REPLAY,
    seeds: int = _SEEDS,
    store: str | None = _STORE,
    repository: Path | None = _REPOSITORY,
    branch: str = _BRANCH,
    limit: str = LIMIT,
    cache: str = CACHE_HOT,
    threads: int = THREADS,
    memory: str = MEMORY,
    no_check: bool = NO_CHECK,
    html: Path | None = _HTML,
    why: bool = shared.WHY,
    json: bool = shared.JSON,
) -> None:
    """Search a space of configurations for the fastest that computes right results.

    Every configuration is validated before it is timed, in a process of its own; one that its bound excludes does not
    run, and one that is slow is stopped after a call. The best meet the configuration in use in interleaved pairs of
    fresh processes, so that luck does not win: there may be no winner. Exit code 11 when none is proved faster, or
    none has a result.
    """
    shared.check_writable(html)
    margin = parse_share(within, "--within")
    gain_ratio = parse_share(least_gain, "--least-gain") if least_gain else 0.0
    if replay is not None and space is None:
        if store is not None:
            raise SpecError("--store: saves studies; --replay runs nothing that could be saved")
        _replayed(replay, search, seeds, (margin, gain_ratio), budget, html, why=why, json=json)
        return
    if space is None or replay is not None:
        raise SpecError("tune: needs the file of a space, e.g. space.toml, or --replay with a recorded one, not both")
    from nearpeak.api.configuration_search import TuningPlan

    count, spent_s = budget_of(budget or _EVALUATIONS)
    warn_of_threads(threads)
    plan = TuningPlan(
        search=search, seed=seed, trial_count=count, spent_s=spent_s, within_ratio=margin, finalist_count=finalists,
        least_gain_ratio=gain_ratio,
        tolerance_ratio=parse_share(tolerance, "--tolerance"), pair_budget_s=seconds_of(pairs, "--pairs"),
        timing=timing_of("300 ms", limit, cache, threads, memory, check=not no_check),
    )  # fmt: skip
    subject = {"case": case, "runner": runner, "default": default}
    _search(space, plan, subject, study, _keeper(store, repository, branch), html, why=why, json=json)


def _search(
    space: Path, plan: "TuningPlan", subject: Mapping[str, str], study: Path | None, keep: "Keeper | None",
    html: Path | None, *, why: bool, json: bool,
) -> None:  # fmt: skip
    """Search a space and print the study; exit code 11 when none is proved faster, or none has a result.

    Args:
        subject: case, runner and default configuration as they are written, each empty where it is not.
    """
    from nearpeak.api.case_words import case_of
    from nearpeak.api.configuration_search import tune as tuned
    from nearpeak.reports.tuning import study_report as report

    case = case_of(subject["case"].split(), "--case") if subject["case"].strip() else None
    with _shown(plan) as progress:
        answer = tuned(
            space, plan, case=case, runner=subject["runner"], default=subject["default"], journal=study,
            progress=progress, keep=keep,
        )  # fmt: skip
    shared.write_page(html, document := report.document_of(answer))
    shared.tell(lambda: document, lambda: report.to_json(answer), json=json, why=why)
    if not answer.front if answer.objectives else answer.winner is None and plan.finalist_count:
        raise typer.Exit(INCONCLUSIVE_CODE)


def budget_of(text: str) -> tuple[int, float]:
    """Return evaluations and seconds of `--budget`.

    >>> budget_of("200 evaluations"), budget_of("20 min")
    ((200, inf), (1000000, 1200.0))
    """
    match = re.fullmatch(r"\s*(\d{1,6})\s*(evaluations?)?\s*", text)
    if match is None:
        return 1_000_000, seconds_of(text, "--budget")
    if not int(match[1]):
        raise SpecError(f"--budget {text!r}: must be at least one evaluation")
    return int(match[1]), inf


def _replayed(
    path: Path, search: str, seeds: int, shares: tuple[float, float], budget: str, html: Path | None, *, why: bool,
    json: bool,
) -> None:  # fmt: skip
    """Print how a search does on a recorded space.

    Args:
        shares: distance to the optimum, and expected gain of the rest, at which a run stops.
    """
    from nearpeak.api.configuration_search import random_counts, replay_search
    from nearpeak.reports.tuning import replay_report as report

    count, limit_s = budget_of(budget or _REPLAYED)
    if limit_s < inf:
        raise SpecError(f"--budget {budget!r}: --replay counts evaluations; give their number, e.g. 400")
    with shared.progress_bar("replaying", seeds) as advance:
        answer = replay_search(
            path, search, seeds, within_ratio=shares[0], least_gain_ratio=shares[1], most_count=count,
            progress=lambda run: advance(run.seed + 1, f"seed {run.seed}: {run.run_count} evaluations"),
        )  # fmt: skip
    oracle = random_counts(answer)
    document = report.document_of(answer, *oracle)
    shared.write_page(html, document)
    shared.tell(lambda: document, lambda: report.to_json(answer, *oracle), json=json, why=why)


@contextmanager
def _shown(plan: "TuningPlan") -> "Iterator[TuningProgress]":
    """Show on a terminal how many configurations have run, the best time, and the finals; on a pipe a line a stage."""
    from nearpeak.api.configuration_search import TuningProgress
    from nearpeak.core.tuning.space import settings_text
    from nearpeak.reports.brief_text import brief

    if not sys.stderr.isatty():

        def line(words: str) -> None:
            sys.stderr.write(f"{words}\n")
            sys.stderr.flush()

        yield TuningProgress(
            stage=line,
            contest=lambda row: line(
                f"finals: {settings_text(row.challenger)}"
                + (f" against {settings_text(row.champion)}" if row.champion else "")
                + f": {row.verdict}{f'; {row.note}' if row.note else ''}"
            ),
        )
        return
    with shared.progress_bar("tuning", plan.trial_count if plan.spent_s == inf else None) as advance:

        def trial(row: "Trial", best_s: float) -> None:
            words = f"best {brief(best_s, 's')}, " if best_s < inf else ""
            advance(row.position, f"{words}last {row.outcome}")

        def contest(row: "Contest") -> None:
            advance(plan.trial_count, f"pairs: {row.verdict}")

        yield TuningProgress(trial=trial, contest=contest)


def _keeper(store: str | None, repository: Path | None, branch: str) -> "Keeper | None":
    """Return what keeps a finished study in the store; what cannot be is refused before anything runs."""
    if store is None:
        if repository is not None:
            raise SpecError("--repository: says which commit --store keeps the study under; add --store")
        return None
    from nearpeak.api.study_history import keep_study
    from nearpeak.cli.team.store import revision_of
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    place, revision = place_of(store), revision_of(repository, None)
    open_store(place, create=True).close()

    def keep(study: "Study", case: "Case", timing: "Timing") -> None:
        with open_store(place) as opened:
            is_new = keep_study(study, case, timing, opened, revision=revision, branch=branch)
        words = {True: "1 new run", False: "holds this study already", None: "no configuration leads; nothing to keep"}
        sys.stderr.write(f"{store}: {words[is_new]}\n")

    return keep
