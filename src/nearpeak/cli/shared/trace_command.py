"""Trace branch of `nearpeak analyze`: the report, its files, and the comparison of two traces."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.result_files import refuse_results
from nearpeak.errors import SpecError
from nearpeak.units import parse

if TYPE_CHECKING:
    from nearpeak.core.traces.finding_report import TraceReport
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload


def is_trace(path: str) -> bool:
    """Say whether a word of the command line names a trace file."""
    from nearpeak.api.trace_analysis import is_trace as known
    from nearpeak.traces.formats import format_of

    file = Path(path)
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        head = opened.read(16)
    if head[:2] == b"\x1f\x8b" or head.startswith(b"SQLite format 3") or not head:
        if not known(file):
            refuse_results(file)
        format_of(file)  # nothing else comes packed, as a database or empty: it says what is wrong
    return known(file)


def report_on(
    path: str, targets: "list[Target]", model: "Workload | None", against: Path | None, files: dict[Path | None, str],
    ranks: list[Path], exports: dict[str, Path | None], unprofiled: str | None, *, json: bool,
) -> int:  # fmt: skip
    """Print the report of a trace, write the files, or compare with another trace; returns the exit code.

    Args:
        targets: of the trace, and of the one that it is compared with where that ran on another.
        exports: where the trace itself is written, by format.
        unprofiled: time of a step without the profiler, with its unit.
    """
    from nearpeak.api.trace_analysis import analyze_trace
    from nearpeak.reports import trace_report as formats
    from nearpeak.reports.document.html import to_html
    from nearpeak.reports.document.markdown import to_markdown

    if against is not None and any(file is not None for file in files):
        raise SpecError("--html, --markdown, --save: write the report of one trace; leave them out with --against")
    plain_s = None if unprofiled is None else parse(unprofiled, "s")
    if against is not None and plain_s is not None:
        raise SpecError("--unprofiled: two recorded traces are compared as they are; leave it out with --against")
    if len(targets) > (1 if against is None else 2):
        raise SpecError(f"--target: {len(targets)} devices; a trace ran on one, --against takes a second")
    wanted = {name: file for name, file in exports.items() if file is not None}
    with shared.progress(f"reading {Path(path).name}"):
        device = targets[0] if targets else None
        report = analyze_trace(Path(path), device, model, ranks=ranks, files=wanted, unprofiled_step_s=plain_s)
    if against is not None:
        return _compared(report, against, targets, json=json)
    document = formats.document_of(report)
    writers: dict[str, Callable[[], str]] = {
        "html": lambda: to_html(document), "markdown": lambda: to_markdown(document),
        "json": lambda: formats.to_json(report),
    }  # fmt: skip
    for file, name in files.items():
        if file is not None:
            shared.write_whole(file, writers[name]())
    if json:
        sys.stdout.write(formats.to_json(report))
    else:
        shared.print_document(document)
    return 0


def _compared(report: "TraceReport", against: Path, targets: "list[Target]", *, json: bool) -> int:
    """Compare with another trace, on the second target; without one on the device that it names, or else the first."""
    from nearpeak.api.trace_analysis import analyze_trace
    from nearpeak.reports import trace_difference_report as difference
    from nearpeak.traces.executed.execution_comparison import compare

    if not is_trace(str(against)):
        raise SpecError(f"--against {against}: is no trace; a trace is compared with a trace")
    other = analyze_trace(against, targets[1] if len(targets) > 1 else None)
    if targets and not other.executed.target:
        other = analyze_trace(against, targets[0])
    trace_difference = compare(other, report)
    if json:
        sys.stdout.write(difference.to_json(trace_difference))
    else:
        shared.print_document(difference.document_of(trace_difference))
    return {"regression": 10, "inconclusive": 11, "not comparable": 11}.get(trace_difference.verdict, 0)
