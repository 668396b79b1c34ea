"""Trace branch of `nearpeak analyze`: the report, its files, and the comparison of two traces."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.result_files import refuse_results
from nearpeak.errors import INCONCLUSIVE_CODE, SLOWER_CODE, SpecError
from nearpeak.units import parse

if TYPE_CHECKING:
    from nearpeak.core.work.target import Target
    from nearpeak.core.work.workload import Workload
    from nearpeak.reports.document import Document

_CODES = {"regression": SLOWER_CODE, "inconclusive": INCONCLUSIVE_CODE, "not comparable": INCONCLUSIVE_CODE}
"""Exit codes of verdicts; 0 of all others."""


def is_trace(path: str) -> bool:
    """Say whether a word of the command line names a trace file."""
    file = Path(path)
    if not file.is_file():
        return False
    from nearpeak.api.trace_analysis import is_trace as known  # which imports every reader
    from nearpeak.traces.formats import format_of

    with file.open("rb") as opened:
        head = opened.read(16)
    if head[:2] == b"\x1f\x8b" or head.startswith(b"SQLite format 3") or not head:
        if not known(file):
            refuse_results(file)
        format_of(file)  # nothing else comes packed, as a database or empty: it says what is wrong
    return known(file)


def report_on(
    path: str, targets: "list[Target]", model: "Workload | None", against: Path | None, files: dict[Path | None, str],
    ranks: list[Path], exports: dict[str, Path | None], unprofiled: str | None, *, json: bool, why: bool = False,
) -> int:  # fmt: skip
    """Print the report of a trace, write the files, or compare with another trace; returns the exit code.

    Args:
        targets: of the trace, and of the one that it is compared with where that ran on another.
        exports: where the trace itself is written, by format.
        unprofiled: time of a step without the profiler, with its unit.
        why: whether to print what the answer rests on.
    """
    from nearpeak.api.trace_analysis import analyze_trace
    from nearpeak.reports.trace import steps_report as formats
    from nearpeak.reports.trace.steps_headline import brief_of

    plain_s = None if unprofiled is None else parse(unprofiled, "s")
    if len(targets) > (1 if against is None else 2):
        raise SpecError(f"--target: {len(targets)} devices; a trace ran on one, --against takes a second")
    wanted = {name: file for name, file in exports.items() if file is not None}
    if against is not None:
        files_given = {name: True for file, name in files.items() if file is not None}
        _refuse_for_two({**files_given, **wanted, "rank": ranks, "model": model, "unprofiled": unprofiled})
        return _compare(path, against, targets, json=json, why=why)
    with shared.progress(f"reading {Path(path).name}"):
        device = targets[0] if targets else None
        report = analyze_trace(Path(path), device, model, ranks=ranks, files=wanted, unprofiled_step_s=plain_s)
    document = formats.document_of(report)
    for file, name in files.items():
        if file is not None:
            shared.write_whole(file, formats.to_json(report) if name == "json" else _page(document, name))
    if json:
        sys.stdout.write(formats.to_json(report))
    else:
        shared.print_document(document if why else brief_of(report, document), why=why)
    return 0


def _page(document: "Document", form: str) -> str:
    """Return a document as HTML or Markdown; what writes pages is loaded for those alone."""
    if form == "html":
        from nearpeak.reports.document.html import to_html

        return to_html(document)
    from nearpeak.reports.document.markdown import to_markdown

    return to_markdown(document)


def _refuse_for_two(options: Mapping[str, object]) -> None:
    """Refuse options of the report of one trace where two are compared as they were recorded."""
    names = ["--save" if name == "json" else f"--{name}" for name, value in options.items() if value]
    if names:
        raise SpecError(f"{', '.join(names)}: of the report of one trace; leave out with --against")


def _compare(path: str, against: Path, targets: "list[Target]", *, json: bool, why: bool) -> int:
    """Compare with another trace, device by device; returns the exit code of the worst verdict."""
    from nearpeak.api.trace_analysis import compare_traces
    from nearpeak.core.traces.trace_difference import worst_of
    from nearpeak.reports.trace import steps_difference as difference

    if not is_trace(str(against)):
        raise SpecError(f"--against {against}: is no trace; a trace is compared with a trace")
    with shared.progress(f"reading {against.name} and {Path(path).name}"):
        results = compare_traces(against, Path(path), targets)
    if json:
        sys.stdout.write(difference.devices_to_json(results))
    else:
        shared.print_document(difference.document_of_devices(results), why=why)
    return _CODES.get(worst_of(results).verdict, 0)
