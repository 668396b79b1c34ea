"""Command `nearpeak suite build|show|diff`: test cases from workloads and rules, with their coverage."""

import json as jsonlib
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.capture_command import SIZES, takes_capture_options, workload_of
from nearpeak.cli.shared.options import seconds_of
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError
from nearpeak.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nearpeak.core.answers.suite import Suite, SuiteCase
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload
    from nearpeak.suites.run_results import RunOfSuite

SUITE = typer.Argument(help="Suite file, or the name of a built-in suite.")
SCORES = typer.Option(
    None, "--scores", help="Mutation scores (.jsonl: digest, killed, survived) for effective numbers."
)
RESULTS = typer.Option(
    None, "--results", help="Results of 'nearpeak measure SUITE --out': what ran and was right counts, with its times."
)

_NAMED = 5
"""Operators without a case that are named, those called most often."""


@takes_capture_options(*SIZES, "dtype")
def build(
    sources: list[str] = typer.Argument(
        None, metavar="SOURCE…", help="Sources as of 'nearpeak capture', suite files, names of built-in suites."
    ),
    name: str = typer.Option("suite", "--name", help="Name of the suite."),
    sweep: list[str] = typer.Option(
        [], "--sweep", help="Cases in words: 'op=gemm dtype=bf16 m=1:64:8 k=pow2(64,8192) n=near(128)'. Repeatable."
    ),
    where: list[str] = typer.Option(
        [], "--where", help="Constraint on every --sweep, e.g. 'm*k <= 2**26'. Repeatable."
    ),
    directed: bool = typer.Option(False, "--directed", help="Add directed cases of every operator that is called."),
    op: list[str] = typer.Option([], "--op", help="Add the directed cases of this operator. Repeatable."),
    ready: list[str] = typer.Option([], "--ready", help="Add a ready-made suite; 'list' names them. Repeatable."),
    cover: str | None = typer.Option(
        None, "--cover", help="Run only the cheapest cases that cover this share, as 99%."
    ),
    within: str | None = typer.Option(
        None, "--within", help="Run only what fits into this time of 'nearpeak measure', e.g. '600 s'."
    ),
    identity: str = typer.Option(
        "saturated", "--identity", help="Match that covers a call: exact, class or saturated."
    ),
    target: list[str] = shared.ONE_TARGET,
    out: Path | None = typer.Option(None, "--out", "-o", help="File to write; standard output without."),
    options: CaptureOptions = CaptureOptions(),
) -> None:
    """Build a suite: distinct cases with counts and reasons, from models, files, sweeps and rules.

    Options of capture hold for every source, and are refused where one has no use for them; for models that differ in
    them, save workloads first ('nearpeak capture … --out'). A model's code runs in a child process; nothing is
    downloaded. With --cover or --within, --target says whose bounds are the cost of a case, and cases that are not run
    stay in the file, as what coverage is a share of.
    """
    from nearpeak.api import suite_construction
    from nearpeak.suites.suite_names import ready_names, ready_suite

    if "list" in ready:
        sys.stdout.write("".join(f"{entry}\n" for entry in ready_names()))
        return
    shared.check_writable(out)
    budget_s = None if within is None else seconds_of(within, "--within")
    share = _share(cover) if cover is not None else None if within is None else 1.0
    device = _device(target, identity, chosen=share is not None)

    capture = _capturing(sources or [], options)
    built = suite_construction.suite(
        [*map(ready_suite, ready), *(sources or [])], name=name, sweeps=sweep, where=where, directed=directed,
        operators=op, capture=capture,
    )  # fmt: skip
    _write(built if share is None or device is None else _cheapest(built, device, share, identity, budget_s), out)


def show(
    suite: str = SUITE,
    target: list[str] = shared.ONE_TARGET,
    scores: Path | None = SCORES,
    results: Path | None = RESULTS,
    cases: bool = typer.Option(False, "--cases", help="List the cases with their reasons instead."),
    json: bool = shared.JSON,
) -> None:
    """Show the contents of a suite and its three coverage figures: use-case, directed, effective.

    Without --results the figures are those of the plan. Shares of time need a --target, whose bounds are the times, or
    --results, whose medians are. Effective numbers need --scores.
    """
    from nearpeak.api import suite_construction
    from nearpeak.suites.coverage_numbers import coverage_of
    from nearpeak.suites.mutation_scores import read_scores
    from nearpeak.suites.suite_names import read_suite

    suite_read, target = read_suite(suite), one_target(target)
    if cases:
        _list_cases(suite_read.cases, json=json)
        return
    times, words = (
        suite_construction.times_of([entry.case for entry in suite_read.cases], target[0]) if target else (None, "")
    )
    mutant_scores = None if scores is None else read_scores(shared.text_of(scores), scores.name)
    ran = None if results is None else _ran(suite_read, results)
    if ran is not None and times is None:
        times, words = dict(ran.time_s), f"medians of {results}"
    coverage = coverage_of(suite_read, time_s=times, scores=mutant_scores, passed=None if ran is None else ran.passed)
    if json:
        head = {
            "suite": suite_read.name,
            "plan": dict(suite_read.plan),
            "sources": [asdict(entry) for entry in suite_read.sources],
        }
        run = None if ran is None else {"passed": len(ran.passed), "unchecked": ran.unchecked_count,
                                        "excluded": [asdict(entry) for entry in ran.excluded]}  # fmt: skip
        sys.stdout.write(jsonlib.dumps({**head, "time": words, "run": run, "coverage": asdict(coverage)}) + "\n")
        return
    from nearpeak.cli.shared.suite_tables import print_suite

    print_suite(suite_read, coverage, ran)


def diff(
    old: str = SUITE,
    new: str = SUITE,
    json: bool = shared.JSON,
) -> None:
    """List the differences of two suites: cases, counts, sources."""
    from nearpeak.suites.suite_difference import difference
    from nearpeak.suites.suite_names import read_suite

    comparison = difference(read_suite(old), read_suite(new))
    rows: list[dict[str, Any]] = [
        {"change": change, **case.case.record(), "digest": case.case.digest, "calls": case.call_count}
        for change, cases in (("added", comparison.added), ("removed", comparison.removed)) for case in cases
    ]  # fmt: skip
    rows += [
        {"change": "changed", **case.case.record(), "digest": case.case.digest, "calls": case.call_count,
         "calls_before": before.call_count, "run": case.chosen, "run_before": before.chosen}
        for before, case in comparison.changed
    ]  # fmt: skip
    if json:
        sys.stdout.write("".join(jsonlib.dumps(row) + "\n" for row in rows))
        return
    from nearpeak.cli.shared.suite_tables import print_difference

    print_difference(comparison)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = shared.group_of("Build suites of test cases, show what they cover, compare them.")
    for command in (build, show, diff):
        group.command()(command)
    app.add_typer(group, name="suite")


def _capturing(sources: list[str], options: CaptureOptions) -> "Callable[[str], Workload]":
    """Return how sources are captured.

    Raises:
        SpecError: an option has no meaning for a source; known before anything is captured, which takes long.
    """
    from nearpeak.frontends.source_types import refuse_early
    from nearpeak.suites.suite_names import names_suite

    def capture(source: str) -> "Workload":
        with _remedied(len(sources)):
            return workload_of(source, options)

    with _remedied(len(sources)):
        for source in sources:
            if not names_suite(source):
                refuse_early(source, options)
    return capture


@contextmanager
def _remedied(source_count: int) -> "Iterator[None]":
    """Say where one of several sources has no use for an option how it comes into the suite all the same."""
    try:
        yield
    except SpecError as error:
        if source_count < 2 or not str(error).endswith("leave it out"):
            raise
        way = "save workloads first ('nearpeak capture … --out') and build from them"
        raise type(error)(f"{error}, or {way}") from None


def _device(names: list[str], identity: str, *, chosen: bool) -> "Target | None":
    """Return the one device whose bounds are the cost of a case, where cases are chosen by it."""
    from nearpeak.suites.case_identity import IDENTITIES

    if identity not in IDENTITIES:
        raise SpecError(f"--identity {identity!r}: is not one of {', '.join(IDENTITIES)}")
    if names and not chosen:
        raise SpecError("--target: says whose bounds --cover and --within count; add one of them")
    return shared.targets_of(one_target(names), [])[0] if chosen else None


def one_target(names: list[str]) -> list[str]:
    """Return the name of the only target, or `None`; several are refused."""
    if len(names) > 1:
        raise SpecError(f"--target: exactly one is needed here, got {' and '.join(names)}")
    return names


def _cheapest(selected: "Suite", device: "Target", share: float, identity: str, budget_s: float | None) -> "Suite":
    """Return the suite with the cheapest cases chosen, and say what they take."""
    from nearpeak.api import suite_construction

    plan = suite_construction.cheapest(selected, device, goal_ratio=share, identity=identity, budget_s=budget_s)
    selected = plan.suite
    use, run = ([case for case in cases if case.call_count] for cases in (selected.cases, selected.chosen))
    covering = f"{len(run)} of the {len(use)} that workloads call,\n  in {plan.called_ratio:.1%} of their time"
    what = covering if plan.use_s else "no workload calls any of them,\n  they meet obligations"
    sys.stderr.write(
        f"{len(selected.chosen)} of {len(selected.cases)} cases are run; {what}\n  ({selected.plan['time']})\n"
    )
    return selected


def _ran(suite: "Suite", path: Path) -> "RunOfSuite":
    """Return what the result file at `path` says of the suite's cases."""
    from nearpeak.measurement.result_file import read_results
    from nearpeak.suites.run_results import run_of

    if not path.is_file():
        raise SpecError(f"{path}: not found; 'nearpeak measure SUITE --out {path}' writes it")
    return run_of(suite, read_results(path))


def _write(suite: "Suite", out: Path | None) -> None:
    from nearpeak.suites.suite_file import save_text

    if out is None:
        sys.stdout.write(save_text(suite))
    else:
        path = shared.write_quietly(out, save_text(suite))
        sys.stderr.write(f"wrote {path}: {counted(len(suite.cases), 'case')}{_removed(suite)}\n")
    sys.stderr.write(_left_behind(suite))


def _removed(suite: "Suite") -> str:
    """Say how many points of sweeps constraints removed, and combinations of values that no point may have."""
    from nearpeak.frontends.files.sweep import COMBINATIONS, REMOVED

    counts = {True: 0, False: 0}
    for key, count in (item for source in suite.sources for item in source.origin.items()):
        counts[key.endswith(COMBINATIONS)] += int(count) if key.startswith(REMOVED) else 0
    ruled_out, points = counts[True], counts[False]
    sentences = [f"removed {counted(points, 'point')} of sweeps"] if points else []
    sentences += [f"ruled out {counted(ruled_out, 'combination')} of values"] if ruled_out else []
    return f"; constraints {', '.join(sentences)}" if sentences else ""


def _left_behind(suite: "Suite") -> str:
    """Say in one line what of its sources a suite has no case for, the operators called most often by name."""
    uncovered = Counter[str]()
    for source in suite.sources:
        uncovered.update(source.uncovered)
    sentences = []
    if uncovered:
        calls = f"{uncovered.total()} of {uncovered.total() + sum(source.call_count for source in suite.sources)} calls"
        names = ", ".join(f"{name} ({count})" for name, count in uncovered.most_common(_NAMED))
        more = f" and {len(uncovered) - _NAMED} more" if len(uncovered) > _NAMED else ""
        sentences = [f"{calls}, which no operator covers: {names}{more}"]
    unread = ((source.name, source.origin.get("unread", "").partition(":")[0]) for source in suite.sources)
    sentences += [f"{name}: {what}" for name, what in unread if what]
    return f"no case for {'; '.join(sentences)}; 'nearpeak suite show' lists all\n" if sentences else ""


def _list_cases(cases: tuple["SuiteCase", ...], *, json: bool) -> None:
    from nearpeak.cli.shared.suite_tables import print_cases
    from nearpeak.suites.suite_file import case_record

    if json:
        sys.stdout.write("".join(jsonlib.dumps(case_record(case)) + "\n" for case in cases))
    else:
        print_cases(cases)


def _share(text: str) -> float:
    """Return a share given in percent.

    >>> _share("99%")
    0.99
    """
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not text.endswith("%") or not 0 < value <= 1:
        raise SpecError(f"--cover {text!r}: is not a share from 0 to 100 percent, e.g. 99%")
    return value
