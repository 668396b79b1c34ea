"""Command `nearpeak store`: contents, import, export and integrity of the measurement store."""

import json as jsonlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.base.folders import text_of
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.push_option import PUSH, check_push, pushed
from nearpeak.errors import SpecError
from nearpeak.units import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nearpeak.core.history.stored_run import Pairs, Revision, RunRecord

STORE = typer.Option(
    None, "--store", help="File, or postgresql+psycopg://user@host/name; by default what NEARPEAK_STORE names."
)


_COMMIT = typer.Option(
    None, "--commit", help="Commit that was measured; by default what a file names, else HEAD of --repository."
)


def import_(
    files: list[Path] = typer.Argument(metavar="FILE…", help="Result files; plain or gzip."),
    store: str | None = STORE,
    form: str | None = typer.Option(None, "--format", help="Format; recognised by content by default."),
    repository: Path | None = typer.Option(None, "--repository", help="Folder of the measured git repository."),
    commit: str | None = _COMMIT,
    branch: str = typer.Option("main", "--branch", help="Branch whose history the results belong to."),
    device: str | None = typer.Option(None, "--device", help="Device, where the file does not name it."),
    host: str = typer.Option("", "--host", help="Name of the machine."),
    component: list[str] = typer.Option([], "--component", help="Software that took part: NAME=VERSION. Repeatable."),
    track: list[str] = typer.Option(
        [], "--track", help="Component whose version belongs to the identity of the series: NAME=VERSION. Repeatable."
    ),
    trigger: str = typer.Option("import", "--trigger", help="Trigger of the run: nightly, pr, manual, rerun, …."),
    again: bool = typer.Option(False, "--again", help="Import a file that is in the store already once more."),
    details: bool = typer.Option(False, "--details", help="List every field of a file that the store does not keep."),
    push: str | None = PUSH,
    json: bool = shared.JSON,
) -> None:
    """Import result files into the store, which is created if missing.

    All files are read before any is written: where one is refused, nothing of any is. Then all runs of a file are
    written, or none of them. A file that is in the store already changes nothing, whatever its name. What a format
    states that the store has no place for is counted, and listed with --details.
    """
    from nearpeak.core.history.stored_run import Device
    from nearpeak.store import open_store
    from nearpeak.store.git_commits import git_revision
    from nearpeak.store.importers import FileContext, file_bytes, file_digest, runs_of_file
    from nearpeak.store.store_check import place_of

    check_push(push)
    revision = revision_of(repository, commit)
    commit_of = None if repository is None or commit is not None else partial(git_revision, repository)
    stack, tracked = _pairs(component, "--component"), _pairs(track, "--track")
    place, read = place_of(store), []
    unit = None if device is None else Device(name=device, host=host)
    for file in files:
        data = file_bytes(file)
        defaults = FileContext(
            name=text_of(file.name), digest=file_digest(data), revision=revision, commit_of=commit_of, branch=branch,
            device=unit, host=host, stack=stack, track=tracked, trigger=trigger, written_ns=file.stat().st_mtime_ns,
            folder=file.parent,
        )  # fmt: skip
        read.append((file, runs_of_file(data, defaults, form)))
    with open_store(place, create=True) as opened:
        for file, records in read:
            for record, done in zip(records, opened.ingest_all(records, again=again), strict=True):
                row = {"file": str(file), "run": done.uid, "new": done.new, "measurements": len(record.samples)}
                text = jsonlib.dumps(row | {"lost": list(record.source.lost)})
                state = counted(len(record.samples), "measurement") if done.new else "is in the store already"
                sys.stdout.write(f"{text if json else f'{text_of(str(file))}: {state}'}\n")
                if done.new and record.source.lost:
                    sys.stderr.write(_not_kept(str(file), record.source.lost, details=details))
    pushed([record for _, records in read for record in records], push)


def _not_kept(file: str, lost: tuple[str, ...], *, details: bool) -> str:
    """Return the note on rows that could not be read, and on fields that the store has no column for."""
    from nearpeak.core.history.stored_run import ROW
    from nearpeak.reports.figure_text import shortened

    if details:
        return "".join([f"{file}: not stored:\n", *(f"  {line}\n" for line in lost)])
    rows = [line.removeprefix(ROW) for line in lost if line.startswith(ROW)]
    names = [line for line in lost if not line.startswith(ROW)]
    notes = [
        f"{file}: {counted(len(lines), noun)} {'is' if len(lines) == 1 else 'are'} {verb}, such as"
        f" {shortened(lines[0], width)}; --details lists them\n"
        for noun, verb, lines, width in (("row", "not imported", rows, 120), ("field", "not stored", names, 30))
        if lines
    ]
    return "".join(notes)


def info(store: str | None = STORE, json: bool = shared.JSON) -> None:
    """Show the contents of a store: schema, runs, series, measurements, size."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        figures = opened.info()
    if json:
        sys.stdout.write(f"{jsonlib.dumps(figures)}\n")
        return
    for name, value in figures.items():
        sys.stdout.write(f"{name.replace('_', ' '):<14} {value}\n")


def export(
    target: Path = typer.Argument(
        metavar="TARGET", help="Folder of tables, or the file of a text format, to write; it must not exist."
    ),
    store: str | None = STORE,
    form: str | None = typer.Option(
        None, "--format", help="Tables: parquet, or csv; Parquet where duckdb is installed. Text: bencher, openmetrics."
    ),
    run: list[int] = typer.Option(
        [], "--run", help="Text: this run, by its number; the newest by default. Repeatable."
    ),
    results: Path | None = typer.Option(None, "--results", help="Text: runs of this result file instead of a store."),
    device: str | None = typer.Option(None, "--device", help="--results: device, where the file does not name it."),
) -> None:
    """Write all tables, and every sample as a row, for analysis elsewhere, with a manifest of counts and checksums.

    With --format bencher or openmetrics, write the medians of a run with their intervals as one text file. --results
    takes any result file that 'nearpeak store import' reads, so that it converts one format into another.
    """
    from nearpeak.exchange.run_exports import EXPORTS

    if form is not None and form in EXPORTS:
        _export_text(target, form, _records(store, run, results, device))
        return
    if run or results is not None:
        raise SpecError(f"--run, --results: are for text formats; add --format {' or '.join(EXPORTS)}")
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of
    from nearpeak.store.table_export import export as write

    with open_store(place_of(store)) as opened:
        written = write(opened, target, form=form)
    samples, tables = written.rows_count["sample"], len(written.rows_count) - 1
    sys.stderr.write(f"wrote {samples} samples and {tables} tables, {written.size_bytes} bytes, to {written.folder}\n")


def _export_text(target: Path, form: str, records: "Sequence[RunRecord]") -> None:
    from nearpeak.exchange.run_exports import EXPORTS

    if target.exists():
        raise SpecError(f"{target}: exists; name a new file")
    shared.check_writable(target)
    shared.write_quietly(target, EXPORTS[form].text_of(records))
    sys.stderr.write(f"wrote {counted(sum(len(record.samples) for record in records), 'measurement')} to {target}\n")


def _records(store: str | None, run: list[int], results: Path | None, device: str | None) -> "Sequence[RunRecord]":
    """Return the runs of a result file, or those of a store by number, or its newest."""
    from nearpeak.core.history.stored_run import Device
    from nearpeak.store import open_store
    from nearpeak.store.importers import FileContext, file_bytes, file_digest, runs_of_file
    from nearpeak.store.run_replay import records_of
    from nearpeak.store.store_check import place_of

    if results is not None:
        if store is not None or run:
            raise SpecError("--results: stands in place of a store; leave out --store and --run")
        data = file_bytes(results)
        context = FileContext(
            name=results.name, digest=file_digest(data), folder=results.parent, written_ns=results.stat().st_mtime_ns,
            device=None if device is None else Device(name=device),
        )  # fmt: skip
        return runs_of_file(data, context)
    with open_store(place_of(store)) as opened:
        records = list(records_of(opened, run or [entry.id for entry in opened.runs(limit=1)]))
    if len(records) < max(1, len(run)):
        raise SpecError(f"{place_of(store)}: holds no such run; 'nearpeak store info' counts them")
    return records


def check(
    store: str | None = STORE,
    repository: Path | None = typer.Option(
        None, "--repository", help="Folder of a git repository: order all of its runs again by where commits stand now."
    ),
) -> None:
    """Look at every page, reference and sample; exit code 1 when something is wrong.

    Measurements whose samples are damaged are marked; 'nearpeak store salvage' copies what can still be read.
    """
    from nearpeak.store import open_store
    from nearpeak.store.maintenance import check as faults_of
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        if repository is not None:
            from nearpeak.store.git_commits import git_history
            from nearpeak.store.store_merge import replace_positions

            sys.stderr.write(f"{replace_positions(opened, git_history(repository))} commits stand elsewhere now\n")
        faults = list(faults_of(opened.engine, opened.name))
    sys.stdout.write("".join(f"{fault}\n" for fault in faults) or "nothing is wrong\n")
    raise typer.Exit(1 if faults else 0)


def upgrade(store: str | None = STORE) -> None:
    """Upgrade a store to the schema of this nearpeak; a backup copy is saved next to it first."""
    from nearpeak.store.maintenance import upgrade as upgraded
    from nearpeak.store.store_check import place_of

    before, after, copy = upgraded(place_of(store))
    sys.stderr.write(f"schema {before} → {after}; copy: {copy}\n" if before != after else f"schema {after} already\n")


def backup(
    target: Path = typer.Argument(help="File to write; it must not exist."),
    store: str | None = STORE,
) -> None:
    """Copy a consistent snapshot of a store file, also while other processes write to it."""
    from nearpeak.store.maintenance import backup as copied
    from nearpeak.store.store_check import place_of

    sys.stderr.write(f"wrote {copied(place_of(store), target)}\n")


def salvage(
    target: Path = typer.Argument(help="New store to write; it must not exist."),
    store: str | None = STORE,
) -> None:
    """Copy the readable part of a damaged store file into a new store; list the losses."""
    from nearpeak.store.maintenance import salvage as saved
    from nearpeak.store.store_check import place_of

    count, lost = saved(place_of(store), target)
    for words in lost:
        sys.stderr.write(f"lost: {words}\n")
    sys.stderr.write(f"{target}: {counted(count, 'run')} saved, {len(lost)} lost\n")
    raise typer.Exit(1 if lost else 0)


def merge(
    sources: list[str] = typer.Argument(metavar="STORE…", help="Stores whose runs are copied; they are not changed."),
    store: str | None = STORE,
) -> None:
    """Copy the runs of other stores, with their findings, into --store; runs in both must agree."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of
    from nearpeak.store.store_merge import merge as merged

    for place in sources:
        open_store(place).close()  # before a store is made
    with open_store(place_of(store), create=True) as target:
        for place in sources:
            with open_store(place) as source:
                sys.stderr.write(f"{source.name}: {merged(source, target)} new runs\n")


def push(
    address: str = typer.Argument(metavar="URL", help="Address of the dashboard; NEARPEAK_TOKEN holds its token."),
    store: str | None = STORE,
    runs: list[int] = typer.Option([], "--run", help="Only this run, by its number. Repeatable; all by default."),
) -> None:
    """Send the runs of a store to a dashboard; runs that it has already are skipped, so the command can be repeated."""
    from nearpeak.store import open_store
    from nearpeak.store.run_replay import records_of
    from nearpeak.store.store_check import place_of

    check_push(address)
    with open_store(place_of(store)) as opened:
        pushed(records_of(opened, runs or None), address)


def retain(
    archive: Path = typer.Argument(help="Folder for the archived samples; it must not exist."),
    store: str | None = STORE,
    days: float = typer.Option(90.0, "--days", min=0.0, help="Age of a run from which its samples may go."),
    apply: bool = typer.Option(False, "--apply", help="Archive and remove the samples; without it, only list them."),
) -> None:
    """Archive old samples and remove them once the archive has been verified; summaries stay forever.

    Samples within twenty commits of a change point, of open alerts and of baselines are kept.
    """
    from nearpeak.store import open_store
    from nearpeak.store.retention import plan
    from nearpeak.store.retention import retain as archived
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        retention = plan(opened, days)
        if apply:
            retention = archived(opened, retention, archive)
    words = "removed" if retention.archive else "could be removed (--apply does)"
    text = f"{len(retention.runs)} runs, {retention.sets_count} sets of samples, {retention.data_bytes} bytes {words}"
    sys.stdout.write(f"{text}; {retention.kept_count} old runs are kept\n")


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = shared.group_of("The history of measurements: import, export, check, upgrade, back up.")
    group.command("import")(import_)
    for command in (info, export, check, upgrade, backup, salvage, merge, push, retain):
        group.command()(command)
    app.add_typer(group, name="store")


def revision_of(repository: Path | None, commit: str | None) -> "Revision | None":
    """Return the commit that the options name, as the repository has it."""
    from nearpeak.store.git_commits import git_revision

    if repository is None and commit is not None:
        raise SpecError("--commit: needs --repository, which orders the commits")
    return None if repository is None else git_revision(repository, commit or "HEAD")


def _pairs(words: list[str], option: str) -> "Pairs":
    pairs: dict[str, str] = {}
    for word in words:
        name, sign, version = word.partition("=")
        if not sign or not name or name in pairs:
            raise SpecError(f"{option} {word!r}: is not NAME=VERSION, or is given twice; e.g. torch=2.9.0")
        pairs[name] = version
    return tuple(sorted(pairs.items()))
