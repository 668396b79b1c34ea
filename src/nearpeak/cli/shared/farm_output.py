"""Output of `nearpeak farm status`, `results` and `budget`."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nearpeak.base.input_files import text_of_file
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.farm_engine import opened_store
from nearpeak.cli.shared.options import seconds_of
from nearpeak.cli.shared.table_files import check_table
from nearpeak.cli.team.store import STORE
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.store import Store


def status(
    store: str | None = STORE,
    jobs: bool = typer.Option(False, "--jobs", help="List jobs, the newest first."),
    state: str = typer.Option("", "--state", help="--jobs: those in this state."),
    limit: int = typer.Option(50, "--limit", min=1, max=1_000_000, help="--jobs: at most so many."),
    job: str = typer.Option("", "--job", help="Show one job, with its attempts and its result."),
    comparison: str = typer.Option("", "--comparison", help="Show the verdict of a comparison over its rounds."),
    json: bool = shared.JSON,
) -> None:
    """Show devices and leases, hosts, and the queue; or jobs, one job, a comparison.

    A job is named by its identity, or by the letters that begin only its own, as 'status --jobs' shows them.
    """
    from nearpeak.farm import farm_status as queue
    from nearpeak.farm.jobs import STATES
    from nearpeak.reports.history import farm as text
    from nearpeak.store.store_check import place_of

    if state and state not in STATES:
        raise SpecError(f"--state {state!r}: is not known; there are {', '.join(STATES)}")
    if sum(map(bool, (job, comparison, jobs or state))) > 1:
        raise SpecError("farm status: shows jobs, one job or a comparison; give one of --jobs, --job and --comparison")
    opened = opened_store(place_of(store), create=False)
    if job:
        record = queue.job(opened, job)
        shared.tell(lambda: text.job_document(record), lambda: jsonlib.dumps(record), json=json)
    elif comparison:
        _show_comparison(opened, comparison, json=json)
    elif jobs or state:
        _list(opened, state, limit, json=json)
    else:
        overview = queue.overview(opened)
        shared.tell(lambda: text.overview_document(overview), lambda: jsonlib.dumps(overview), json=json)


def _list(opened: "Store", state: str, limit: int, *, json: bool) -> None:
    from nearpeak.farm import farm_status as queue
    from nearpeak.reports.history.farm import jobs_document

    rows = queue.jobs(opened, state=state, limit=limit)
    if not json:
        shared.print_document(jobs_document(rows, queue.job_count(opened, state=state)))
        return
    for row in rows:
        sys.stdout.write(f"{jsonlib.dumps(row)}\n")


def _show_comparison(opened: "Store", comparison: str, *, json: bool) -> None:
    from nearpeak.farm.comparison_rounds import launches_of, verdict
    from nearpeak.units import counted

    comparison_verdict, rounds = verdict(opened, comparison), launches_of(opened, comparison)
    record = {
        "comparison": comparison,
        "rounds": len(rounds),
        "judgement": asdict(comparison_verdict) if comparison_verdict else None,
    }
    text = f"comparison {comparison}: {counted(len(rounds), 'whole round')}"
    if comparison_verdict is not None:
        judgement = comparison_verdict.judgement
        interval = f"{judgement.low_ratio:.4f} to {judgement.high_ratio:.4f}"
        text += f"\n{judgement.verdict}: {judgement.time_ratio:.4f} ({interval})"
    say(record, text, json=json)


def results(
    store: str | None = STORE,
    kind: str = typer.Option("", "--kind", help="Only those of this kind: measure, predict, simulate, capture, …."),
    of: Path | None = typer.Option(
        None, "--of", help="Only the jobs that 'farm submit --json' printed, in their order."
    ),
    out: Path | None = typer.Option(None, "--out", help="Table to write (.csv, .jsonl, .parquet), a row for each job."),
) -> None:
    """Print the accepted results, one line of JSON per job with its request; or write them as a table.

    Those of jobs that failed are among them, with their reason; jobs that have no result yet are counted on standard
    error.
    """
    from nearpeak.farm.job_results import results as job_results
    from nearpeak.farm.job_results import row_of
    from nearpeak.farm.kinds import KINDS
    from nearpeak.frontends.files.case_tables import rows_to_columns, write_columns
    from nearpeak.store.store_check import place_of

    if kind:
        KINDS[kind]
    check_table(out)
    uids = None if of is None else _uids(of)
    rows = job_results(opened_store(place_of(store), create=False), kind=kind, uids=uids)
    if out is not None:
        write_columns(out, rows_to_columns([row_of(result) for result in rows]))
        sys.stderr.write(f"wrote {out}: {len(rows)} results\n")
    else:
        for result in rows:
            sys.stdout.write(f"{jsonlib.dumps(result)}\n")
    if uids is not None and len(rows) < len(uids):
        sys.stderr.write(f"{len(uids) - len(rows)} of {len(uids)} jobs have no result yet, or are of another kind\n")


def _uids(file: Path) -> list[str]:
    """Return the identities of jobs in what `nearpeak farm submit --json` printed, once or several times."""
    uids_read: list[str] = []
    for number, line in enumerate(text_of_file(file).splitlines(), 1):
        try:
            uids = jsonlib.loads(line)["uids"]
        except (ValueError, TypeError, KeyError, RecursionError):
            raise SpecError(f"{file}:{number}: is not what 'nearpeak farm submit --json' prints") from None
        if not isinstance(uids, list) or not all(isinstance(uid, str) for uid in uids):
            raise SpecError(f"{file}:{number}: 'uids' is not a list of strings")
        uids_read += uids
    return list(dict.fromkeys(uids_read))


def budget(
    trigger: str = typer.Argument("", help="nightly, pr, manual, …; without it, all budgets are shown."),
    time_: str = typer.Argument("", metavar="TIME", help="Device time a day, e.g. '7200 s' or '2 h', or none."),
    store: str | None = STORE,
    json: bool = shared.JSON,
) -> None:
    """Set how much device time a trigger may ask for in a day, or show what there is of that.

    What is over it is refused with the number.
    """
    from nearpeak.farm.job_queue import budgets, set_budget
    from nearpeak.reports.history.farm import budget_lines
    from nearpeak.store.store_check import place_of

    if bool(trigger) != bool(time_):
        raise SpecError("farm budget: sets the time a day of a trigger, or shows all; e.g. farm budget pr '2 h'")
    day_s = None if time_ in ("", "none") else seconds_of(time_, "TIME")
    opened = opened_store(place_of(store), create=bool(trigger) and day_s is not None)
    if trigger:
        set_budget(opened, trigger, day_s)
    by_trigger = budgets(opened)
    days, asked_s = ({name: pair[number] for name, pair in by_trigger.items()} for number in (0, 1))
    lines = budget_lines(days, asked_s) or ["no budgets: each trigger may ask for as much as it likes"]
    say({"budgets": days, "asked_s": asked_s}, "\n".join(lines), json=json)


def say(record: Any, text: str, *, json: bool) -> None:
    """Print a record: JSON for programs, text for people."""
    sys.stdout.write(f"{jsonlib.dumps(record) if json else text}\n")
    sys.stdout.flush()
