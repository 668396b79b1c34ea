"""The part of `nearpeak analyze` that reads traces: report, files, comparison of two."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.cli import _shared as shared
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.finding_report import TraceReport
    from nearpeak.core.target import Target
    from nearpeak.core.workload import Workload


def is_trace(path: str) -> bool:
    """Say whether a word of the command line names a trace file."""
    from nearpeak.executed.analysing import is_trace as known

    return Path(path).is_file() and known(Path(path))


def report_on(
    path: str, targets: "list[Target]", model: "Workload | None", against: Path | None, files: dict[Path | None,
    str], *,
    json: bool, ranks: list[Path], exports: dict[str, Path | None],
) -> int:  # fmt: skip
    """Print what was found in a trace, write the files, or compare with another trace; returns the exit code.

    Args:
        targets: of the trace, and of the one that it is compared with where that ran on another.
        exports: where the trace itself is written, by format.
    """
    from nearpeak.executed.analysing import analyze_trace
    from nearpeak.report import executed as formats

    wanted = {name: file for name, file in exports.items() if file is not None}
    with shared.progress(f"reading {path}"):
        report = analyze_trace(Path(path), targets[0] if targets else None, model, ranks=ranks, files=wanted)
    if against is not None:
        return _compared(report, against, targets[-1] if targets else None, json=json)
    writers = {"html": formats.to_html, "markdown": formats.to_markdown, "json": formats.to_json}
    for file, name in files.items():
        if file is not None:
            shared.write_whole(file, writers[name](report))
    if json:
        sys.stdout.write(formats.to_json(report))
    else:
        width = shutil.get_terminal_size().columns
        sys.stdout.write(formats.to_terminal(report, colour=shared.coloured(), width=width))
    return 0


def _compared(report: "TraceReport", against: Path, target: "Target | None", *, json: bool) -> int:
    from nearpeak.analyze.executions import compare
    from nearpeak.executed.analysing import analyze_trace
    from nearpeak.report.executed import difference

    if not is_trace(str(against)):
        raise SpecError(f"--against {against}: is no trace; a trace is compared with a trace")
    found = compare(analyze_trace(against, target), report)
    if json:
        sys.stdout.write(difference.to_json(found))
    else:
        width = shutil.get_terminal_size().columns
        sys.stdout.write(difference.to_terminal(found, colour=shared.coloured(), width=width))
    return {"regression": 10, "inconclusive": 11, "not comparable": 11}.get(found.verdict, 0)
