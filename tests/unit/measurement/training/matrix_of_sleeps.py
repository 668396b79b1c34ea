"""A matrix whose cells only sleep, run in processes that a test kills."""

import contextlib
import os
import signal
import time

from nearpeak.api.edge.training_bench import run_bench
from nearpeak.core.edge.training_matrix import PHASES, CellLog, EpochLog, TrainingMatrix
from nearpeak.core.runs.measurement import Environment
from nearpeak.store import open_store

PLAN = TrainingMatrix(models=("lenet5",), worker_count=(0, 1, 2), repeat_count=2)
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


def killed_run(run, delay_s):
    """Fork a process that runs something, and kill it after a while; say whether it was killed before its end."""
    process = os.fork()
    if not process:
        try:
            run()
            os._exit(0)
        except BaseException:
            os._exit(1)
    time.sleep(delay_s)
    with contextlib.suppress(ProcessLookupError):  # not reaped yet: the number is still its own
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise AssertionError("the run ended with an error")
    return os.WIFSIGNALED(status)


def run_apart(folder, store):
    """Run the matrix into a store, as the command does."""
    return run_bench(PLAN, folder, folder, store=str(store), execute=execute)


def contents(place):
    """What a store holds of the runs, without the numbers that it gives them."""
    with open_store(place) as store:
        return sorted(
            (run.uid, series.metric.name, series.label, run.started_ns, tuple(store.samples(run.id, series.id)),
             str(store.records(run.id, series.id)))
            for series in store.series() for run in store.runs(set(store.history(series.id).run_ids.tolist()))
        )  # fmt: skip
