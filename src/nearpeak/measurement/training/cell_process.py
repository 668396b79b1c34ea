"""Child process of one training run: a request as JSON on standard input, its log as JSON on standard output."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nearpeak.base.isolation.process_limits import limit
from nearpeak.core.edge.training_matrix import CellLog, TrainingCell
from nearpeak.core.records.record_codec import Codec
from nearpeak.errors import MeasureError, NearpeakError, error_type
from nearpeak.measurement.isolated_measurement import thread_variables

CODEC = Codec(pairs_as_objects=True)
"""Codec of cells and their logs."""
LIMIT_S = 3600.0
"""Longest run of one cell."""
Execute = Callable[[TrainingCell, str], CellLog]
"""Runs a cell, given its key."""


def executed_apart(data: Path, limit_s: float = LIMIT_S) -> Execute:
    """Return the function that runs a cell in a process of its own, which ends with this one."""

    def execute(cell: TrainingCell, key: str) -> CellLog:
        request = json.dumps({"cell": CODEC.plain(cell), "key": key, "data": str(data)})
        words = [sys.executable, "-P", "-m", "nearpeak.measurement.training.cell_process"]
        path = os.pathsep.join(filter(None, sys.path))
        variables = {**os.environ, **thread_variables(cell.thread_count), "PYTHONPATH": path}
        try:
            done = subprocess.run(
                words,
                input=request,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                env=variables,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MeasureError(f"{cell.label}: did not end within {limit_s:g} s") from None
        lines = done.stdout.splitlines()
        if done.returncode or not lines:
            last = done.stderr.strip().splitlines()[-1:] or ["it printed nothing"]
            raise MeasureError(f"{cell.label}: its process ended with code {done.returncode}: {last[0]}")
        answer: dict[str, Any] = json.loads(lines[-1])
        if "error" in answer:
            raise error_type(answer["error"], MeasureError)(answer["message"])
        log: CellLog = CODEC.value(answer, CellLog, cell.label)
        return log

    return execute


def main() -> None:
    """Read the request, train, and answer."""
    limit(None)
    request = json.loads(sys.stdin.readline())
    from nearpeak.measurement.training.training_run import run_cell

    cell: TrainingCell = CODEC.value(request["cell"], TrainingCell, "request")
    try:
        answer = CODEC.plain(run_cell(cell, Path(request["data"]), key=request["key"]))
    except NearpeakError as error:
        answer = {"error": type(error).__name__, "message": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
