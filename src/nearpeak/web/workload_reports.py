"""Workload reports, built from cases of the store or read from its folder of reports."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from nearpeak.base.input_files import text_of_file
from nearpeak.core.history.stored_run import Series
from nearpeak.core.work.case import Case
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NearpeakError, NotFoundError
from nearpeak.history.stored_devices import case_of_series, target_of_device

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
MOST_CASES, MOST_TARGETS = 400, 8


def plain_files(folder: Path | None, *endings: str) -> tuple[Path, ...]:
    """Return the files of a folder whose names end so, the newest first; only plain files with plain names."""
    files = list[tuple[int, str, Path]]()
    for file in folder.iterdir() if folder is not None and folder.is_dir() else ():
        with suppress(OSError):  # one that is taken away meanwhile
            state = file.stat(follow_symlinks=False)
            if file.suffix in endings and _NAME.fullmatch(file.name) and S_ISREG(state.st_mode):
                files.append((-state.st_mtime_ns, file.name, file))
    return tuple(file for _, _, file in sorted(files))


def report_names(folder: Path | None) -> tuple[str, ...]:
    """Return the names of the reports of a folder."""
    return tuple(sorted(file.name for file in plain_files(folder, ".html")))


def report_text(folder: Path | None, name: str) -> str:
    """Return a report of the folder.

    Raises:
        NotFoundError: no report has that name.
    """
    if folder is None or name not in report_names(folder):
        raise NotFoundError(f"report {name[:80]}: is not in the folder of reports")
    return text_of_file(folder / name, errors="replace")


def workload_report(name: str, series: Sequence[Series]) -> str:
    """Return the report of the cases of some series on the devices that measured them.

    Raises:
        NotFoundError: none of them is a case of an operator, or no device is described.
    """
    from nearpeak.api.questions import analyze
    from nearpeak.reports import render

    cases, targets = cases_of(series), targets_of(series)
    if not cases or not targets:
        raise NotFoundError(f"workload {name}: has no case of an operator on a device that is described")
    calls = tuple(Call(case=case, operator=case.op, phase=case.phase) for case in cases)
    workload = Workload(name=name, step="sweep", calls=calls)
    return render(analyze(workload, list(targets)), "html")


def cases_of(series: Sequence[Series], most: int = MOST_CASES) -> tuple[Case, ...]:
    """Return the cases of operators among some series, each once, and at most so many."""
    cases: dict[str, Case] = {}
    for item in series:
        if item.case not in cases and len(cases) < most:
            try:
                cases[item.case] = case_of_series(item)
            except NearpeakError:
                continue
    return tuple(cases.values())


def targets_of(series: Sequence[Series]) -> tuple[str, ...]:
    """Return the device files of the devices of some series."""
    targets = (target_of_device(name) for name in sorted({item.device for item in series}))
    return tuple(dict.fromkeys(item.name for item in targets if item is not None))[:MOST_TARGETS]
