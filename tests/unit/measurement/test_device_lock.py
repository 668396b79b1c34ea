"""The lock of a device: files that another user put there neither hang nor mislead whoever wants to measure."""

import os

import pytest
from tests.other_user import as_other_user, open_to_all

from nearpeak.errors import UnfitError
from nearpeak.measurement.machine.device_lock import opened


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
