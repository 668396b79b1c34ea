"""Resumable run of a matrix of training cells; each ends done, quarantined, refused (power mode) or planned."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from nearpeak.base.canonical_json import digest
from nearpeak.base.host_system import versions
from nearpeak.core.edge.training_matrix import HERE, CellLog, TrainingCell
from nearpeak.errors import NearpeakError
from nearpeak.measurement.training.board_state import change_mode, present_mode
from nearpeak.measurement.training.cell_process import CODEC, Execute
from nearpeak.measurement.training.run_journal import RunJournal

Step = tuple[TrainingCell, str, str, CellLog | None]
"""A cell, its state, why it is no result, and its log."""


def code_version() -> str:
    """Return what stands for the code that trains and logs: the version of nearpeak and its own sources."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return digest([versions("nearpeak"), [path.read_text(encoding="utf-8") for path in sources]])[:16]


def run_matrix(
    cells: Iterable[TrainingCell], journal: RunJournal, execute: Execute, *, version: str,
    until_s: float = float("inf"), changes_modes: bool = False,
    report_cell: Callable[[TrainingCell], None] | None = None,
) -> Iterator[Step]:  # fmt: skip
    """Run what is not done yet, and yield each cell as it then stands; those that were done before first as they come.

    Args:
        version: of the code, part of each cell's identity.
        changes_modes: whether the power mode of the board may be set; else cells of other modes are `refused`, which is
            no failure.
        until_s: moment of `time.monotonic` after which no cell is begun; the others are yielded as `planned`.
        report_cell: is called before a cell is run.
    """
    for cell in cells:
        key, mode = cell.key(version), present_mode()
        if cell.mode not in (HERE, mode) and not changes_modes and journal.state(key) != "done":
            words = f"the board is in mode {mode or 'unknown'}; --allow-mode-changes lets the plan set {cell.mode}"
            yield cell, "refused", words, None
            continue
        while journal.state(key) not in ("done", "quarantined") and time.monotonic() < until_s:
            if report_cell is not None:
                report_cell(cell)
            journal.begin(key)
            try:
                if cell.mode not in (HERE, present_mode()):
                    change_mode(cell.mode)
                log = execute(cell, key)
            except NearpeakError as error:
                journal.fail(key, str(error))
            else:
                journal.finish(key, json.dumps(CODEC.plain(log), allow_nan=False).encode())
        state, cell_log = journal.state(key), None
        if state == "done":
            cell_log = CODEC.value(json.loads(journal.result(key)), CellLog, cell.label)
        yield cell, state if state in ("done", "quarantined") else "planned", journal.reason(key), cell_log
