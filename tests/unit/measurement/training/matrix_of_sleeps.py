"""Runs a matrix whose cells only sleep, in a process that a test kills."""

import sys
import time
from pathlib import Path

from nearpeak.core.edge.training_bench import PHASES, CellLog, EpochLog, TrainingMatrix
from nearpeak.core.runs.measurement import Environment
from nearpeak.measurement.training.matrix_run import run_matrix
from nearpeak.measurement.training.run_journal import RunJournal

PLAN = TrainingMatrix(models=("lenet5",), worker_counts=(0, 1, 2), repeat_count=2)
NAMES = (*(f"{name}_ns" for name in PHASES), "read_ns", "prep_ns", "worker", "item_bytes")


def log_of(cell, key, epoch_s=(1.0, 0.5, 0.5)):
    """The log of a cell that depends on nothing but the cell: an interrupted table equals an uninterrupted one."""
    epochs = tuple(
        EpochLog(
            begin_ns=round(number * 1e9), end_ns=round((number + value_s) * 1e9), start_ns=0, stop_ns=0,
            channels={name: (round(value_s * 2e8),) for name in NAMES}, data_bytes=1000, resident_before_bytes=0,
            resident_after_bytes=1000, major_fault_count=0, read_bytes=1000,
            quantities={"loss": 1.0 / (1 + number), "accuracy": 0.5},
        )
        for number, value_s in enumerate(epoch_s)
    )  # fmt: skip
    return CellLog(
        cell=cell, key=key, environment=Environment(device="a processor"), facts={"mode": "here"},
        begun_wall_ns=1_700_000_000_000_000_000 + int(key[:8], 16), epochs=epochs,
    )  # fmt: skip


def execute(cell, key):
    time.sleep(0.004)
    return log_of(cell, key)


if __name__ == "__main__":
    with RunJournal(Path(sys.argv[1])) as journal:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        for _ in run_matrix(PLAN.cells(), journal, execute, version="1"):
            pass
