"""A bisection on the farm: its rounds are jobs, all on one device, and it finds the change."""

import sys
import threading

import pytest
from tests.unit.farm.test_executions import _attempt_rows
from tests.unit.farm.test_leases import states

from nearpeak.bisection.commit_search import searched
from nearpeak.bisection.noisy_search import BisectAxis
from nearpeak.errors import MeasureError
from nearpeak.farm import bisection_jobs, job_queue
from nearpeak.farm.bisection_jobs import FarmWorkshop
from nearpeak.farm.dispatcher import Dispatcher, Settings
from nearpeak.farm.executors.local import Local
from nearpeak.farm.jobs import Device


@pytest.fixture
def make_place(tmp_path):
    return lambda: str(tmp_path / "store.db")


@pytest.fixture
def running(farm, names):
    """A farm of two devices that runs until the test is over."""
    local, over = Local(farm.name, [Device(name=name) for name in names]), threading.Event()
    dispatcher = Dispatcher(farm, local, Settings(poll_s=0.05))
    thread = threading.Thread(target=dispatcher.run, args=(over.is_set,))
    thread.start()
    yield farm
    over.set()
    thread.join()
    local.close()


def test_the_version_that_made_a_command_slower_is_found(running, tmp_path):
    code = "import sys; print('12 ms' if int(sys.argv[1]) >= 3 else '10 ms')"
    workshop = FarmWorkshop(running, tmp_path, f'{sys.executable} -c "{code}" {{part}}', limit_s=20.0)
    axis = BisectAxis(name="part", versions=("1", "2", "3", "4"))
    found = searched([axis], workshop, margin_ratio=0.01, most_steps=10)
    assert found.ends.judgement.verdict == "regression"
    assert [(one.axis, one.before, one.after) for one in found.found.culprits] == [("part", "2", "3")]
    assert len({one.device for one in _attempt_rows(running)}) == 1


@pytest.mark.parametrize("ends_by", [MeasureError, KeyboardInterrupt])
def test_a_round_that_nobody_runs_or_waits_for_is_cancelled(farm, tmp_path, monkeypatch, ends_by):
    monkeypatch.setattr(bisection_jobs, "SILENT_S", 0.1)

    def interrupted(_):
        raise KeyboardInterrupt

    if ends_by is KeyboardInterrupt:
        monkeypatch.setattr(bisection_jobs.time, "sleep", interrupted)
    with pytest.raises(ends_by):
        FarmWorkshop(farm, tmp_path, "true").round({"part": "1"}, {"part": "2"})
    assert states(farm) == ["cancelled"]


def test_what_cannot_be_run_is_passed_by_and_a_budget_is_an_error(running, tmp_path):
    workshop = FarmWorkshop(running, tmp_path, "exit {part}", limit_s=20.0)
    assert workshop.round({"part": "1"}, {"part": "2"}) is None
    job_queue.set_budget(running, "bisect", 1e-3)
    with pytest.raises(MeasureError, match="budget of trigger 'bisect'"):
        workshop.round({"part": "1"}, {"part": "2"})
