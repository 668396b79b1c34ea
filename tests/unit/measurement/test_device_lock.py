"""The lock of a device: files that another user put there neither hang nor mislead whoever wants to measure."""

import errno
import os

import pytest
from tests.other_user import as_other_user, open_to_all

from nearpeak.base.file_lock import wait_for_lock
from nearpeak.core.runs.measurement import Environment
from nearpeak.errors import SpecError, UnfitError
from nearpeak.farm.host_lock import held
from nearpeak.farm.jobs import Device
from nearpeak.measurement.machine.device_lock import device_lock, opened
from nearpeak.measurement.machine.scratch_folders import scratch_folder
from nearpeak.measurement.result_file import held_file
from nearpeak.measurement.training.run_journal import RunJournal


def test_a_pipe_or_a_folder_of_its_name_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("pipe", "folder", "link"):
        with pytest.raises(UnfitError, match=name):
            opened(tmp_path / name)
    assert not (tmp_path / "elsewhere").exists()


def test_another_user_may_lock_a_device_and_change_nothing(tmp_path):
    open_to_all(tmp_path)
    path = tmp_path / "nearpeak-GPU-1.lock"
    os.close(opened(path))

    def other():
        file = opened(path)
        try:
            return os.write(file, b"x")
        finally:
            os.close(file)

    assert as_other_user(other) == "OSError"
    assert path.read_bytes() == b""


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_where_a_file_system_keeps_no_locks_that_is_said_and_nothing_is_overwritten(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    results = tmp_path / "results.jsonl"
    results.write_text("before")
    for hold in (
        lambda: device_lock(Environment(device="cpu")), lambda: held_file(results), lambda: RunJournal(tmp_path / "j"),
        lambda: held(Device(name="GPU-1", host="node"), 1.0),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=f"cannot be locked: {os.strerror(number)}; it must lie on a disk"), hold():
            pass
    assert results.read_text() == "before"
    with scratch_folder() as folder:
        assert folder.is_dir(), "its name is its own without a lock, too"


def test_who_waits_for_a_lock_gives_up_after_its_time_or_when_told(tmp_path):
    path = tmp_path / "lock"
    first, second = opened(path), os.open(path, os.O_RDWR)
    assert wait_for_lock(first, path, 1.0)
    assert not wait_for_lock(second, path, 0.05)
    assert not wait_for_lock(second, path, 60.0, is_stopped=lambda: True)
    os.close(first)
    assert wait_for_lock(second, path, 1.0)
    os.close(second)
