"""The same for every engine: what it is given runs, once, where it may; what it says is a hint, the store decides."""

import os
import stat
import sys
import time

import psutil
import pytest
from tests.unit.farm.conftest import program, queued
from tests.unit.farm.test_leases import results, states

from nearpeak.errors import MeasureError, SpecError
from nearpeak.farm import job_queue
from nearpeak.farm.device_registry import devices, register
from nearpeak.farm.dispatcher import Dispatcher, Settings
from nearpeak.farm.executors.local import Local
from nearpeak.farm.farm_status import is_idle
from nearpeak.farm.jobs import Device

ENGINES = ("local", "dask", "submitit", "slurm")


@pytest.fixture
def make_place(tmp_path):
    """What an engine does is the same on both databases; leases are tested on each."""
    return lambda: str(tmp_path / "store.db")


@pytest.fixture(params=ENGINES)
def engine(request, farm, names, tmp_path, monkeypatch):
    mine = [Device(name=name, host="node") for name in names]
    yield from globals()[f"_{request.param}"](farm, mine, tmp_path, monkeypatch)


def _local(farm, mine, tmp_path, monkeypatch):
    made = Local(farm.name, mine)
    yield made
    made.close()


def _dask(farm, mine, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed (extra farm)")
    from nearpeak.farm import dask_hosts as hosts
    from nearpeak.farm.executors.dask import Dask, join_as

    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    join_as(farm.name)
    safe = hosts.security_of(None, "127.0.0.1:0")
    with hosts.scheduler("127.0.0.1:0", safe) as scheduler, hosts.workers(scheduler.address, safe, mine):
        made = Dask(scheduler.address)
        until(lambda: len(made.devices()) == 2)
        yield made
        made.close()


def _submitit(farm, mine, tmp_path, monkeypatch, cluster="local"):
    pytest.importorskip("submitit", reason="submitit is not installed (extra farm)")
    from nearpeak.farm.executors.slurm import Slurm

    monkeypatch.setenv("NEARPEAK_STORE", farm.name)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    made = Slurm(farm.name, mine, tmp_path / "jobs", cluster=cluster, parameters={"partition": "gpu"})
    yield made
    made.close()


SBATCH = """#!/bin/sh
# Runs the script that Slurm would queue, with the variables that Slurm would set.
echo "$@" >> "$FAKE_SLURM/sbatch.log"
for last; do :; done
grep '^#SBATCH' "$last" >> "$FAKE_SLURM/sbatch.log"
number=$(ls "$FAKE_SLURM" | grep -c 'state$')
number=$((number + 1))
cp "$last" "$FAKE_SLURM/$number.script"  # as Slurm does: the file is gone when the job begins
last="$FAKE_SLURM/$number.script"
echo RUNNING > "$FAKE_SLURM/$number.state"
export SLURM_JOB_ID=$number SLURM_JOBID=$number SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0
export SLURM_JOB_NODELIST=node SLURM_NNODES=1 SLURM_JOB_NUM_NODES=1
( sh "$last" > "$FAKE_SLURM/$number.log" 2>&1; echo COMPLETED > "$FAKE_SLURM/$number.state" ) > /dev/null 2>&1 &
echo "Submitted batch job $number"
"""
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case "$1" in --output|--error|-o|-e) shift 2;; *) shift;; esac; done
exec "$@"
"""
SACCT = """#!/bin/sh
echo 'JobID|State|NodeList'
for file in "$FAKE_SLURM"/*.state; do
  number=$(basename "$file" .state); echo "$number|$(cat "$file")|node"
done
"""


def _slurm(farm, mine, tmp_path, monkeypatch):
    folder, state = tmp_path / "bin", tmp_path / "slurm"
    folder.mkdir()
    state.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT), ("scancel", "#!/bin/sh\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_SLURM", str(state))
    yield from _submitit(farm, mine, tmp_path, monkeypatch, cluster="slurm")
    log = (state / "sbatch.log").read_text()
    assert "nodelist=node" in log
    assert "partition=gpu" in log
    assert farm.name not in log


def until(condition, limit_s=60.0):
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "it took too long"
        time.sleep(0.05)


def test_an_engine_runs_each_batch_once_and_says_so(engine, farm, names):
    assert sorted(one.name for one in engine.devices()) == sorted(names)
    batches = queued(farm, *(program(f"print('{number + 1} ms')") for number in range(3)))
    settings = Settings(ttl_s=10.0, wait_s=20.0, poll_s=0.1)
    dispatcher = Dispatcher(farm, engine, settings)
    dispatcher.run(lambda: is_idle(farm))
    until(lambda: dispatcher.step() == 0)
    assert states(farm) == ["done"] * 3
    assert len(results(farm)) == 3
    assert sum(one.fencing_token for one in devices(farm)) == 3
    told = {"key": "again", "batch": batches[0], "pool": "device", "devices": names, "ttl_s": 5.0, "wait_s": 0.0,
            "priority": 6.0}  # fmt: skip
    handle = engine.submit(told)
    assert engine.submit(told) == handle
    changes = []
    until(lambda: changes.extend(engine.poll((handle,), 0.2)) or changes)
    assert [(one.handle, one.status) for one in changes] == [(handle, "over")]
    assert [one.status for one in engine.poll(("never",), 0.0)] == ["lost"]
    engine.cancel("never")
    assert len(results(farm)) == 3


def test_the_folder_of_jobs_is_nobody_elses(farm, names, tmp_path, monkeypatch):
    made = next(_submitit(farm, [Device(name=names[0])], tmp_path, monkeypatch))
    assert stat.S_IMODE((tmp_path / "jobs").stat().st_mode) == 0o700
    assert made.devices()


def test_a_folder_of_jobs_that_others_may_write_to_is_refused(farm, names, tmp_path):
    pytest.importorskip("submitit", reason="submitit is not installed (extra farm)")
    from nearpeak.farm.executors.slurm import Slurm

    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs").chmod(0o777)
    with pytest.raises(SpecError, match="jobs: other users may write to it"):
        Slurm(farm.name, [Device(name=names[0])], tmp_path / "jobs", cluster="local")


def test_without_slurm_the_engine_says_so(farm, tmp_path, monkeypatch):
    pytest.importorskip("submitit", reason="submitit is not installed (extra farm)")
    from nearpeak.farm.executors.slurm import Slurm

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="Slurm cannot be used here"):
        Slurm(farm.name, [], tmp_path / "jobs")


def test_the_local_engine_opens_no_port(farm, names):
    before = _ports()
    made = Local(farm.name, [Device(name=names[0])])
    queued(farm, program("1"))
    Dispatcher(farm, made, Settings(poll_s=0.05)).run(lambda: is_idle(farm))
    assert _ports() <= before
    made.close()


def _ports():
    return {one.laddr.port for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}


def test_a_noisy_device_serves_no_gate_and_a_batch_waits_for_its_model(farm, names):
    from nearpeak.farm.device_registry import set_noise

    register(farm, [Device(name=names[0], model="A"), Device(name=names[1], model="B")])
    set_noise(farm, names[0], 0.05)
    requests = [program("1", "gate", priority=2), program("2", "model", model="A"), program("3", "none", model="C")]
    queued(farm, *requests)
    sent = []

    class Recording(Local):
        def submit(self, errand):
            sent.append(errand["devices"])
            return str(errand["key"])

    made = Recording(farm.name, [Device(name=names[0], model="A"), Device(name=names[1], model="B")])
    Dispatcher(farm, made, Settings(noise_ratio=0.02, poll_s=0.0)).step()
    made.close()
    assert sent == [[names[1]], [names[0]]]
    assert [one.device for one in job_queue.waiting(farm)] == ["", "", ""]


class Unreachable:
    """An engine whose hosts cannot be reached, until it is asked with words that nobody understands."""

    name = "local"

    def __init__(self, *errors):
        self.errors = list(errors)

    def devices(self):
        raise self.errors.pop(0)


def test_a_dispatcher_tells_each_error_once_and_ends_at_one_that_does_not_go_by(farm, capsys):
    away = MeasureError("scheduler is away")
    dispatcher = Dispatcher(farm, Unreachable(away, away, OSError("no route"), SpecError("no")), Settings(poll_s=0.0))
    with pytest.raises(SpecError):
        dispatcher.run(lambda: False)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        f"farm: {one}; it is tried again" for one in ("MeasureError: scheduler is away", "OSError: no route")
    ]
