"""Folders of killed processes are removed by the next one; those of living ones stay."""

import os
import signal
import subprocess
import sys
import time

from nearpeak.measurement.machine.scratch_folders import scratch_folder

HOLDS = "import time\nfrom nearpeak.measurement.machine.scratch_folders import scratch_folder as made\n" + (
    "with made() as folder:\n (folder / 'x.bin').write_text('x')\n print(folder, flush=True)\n time.sleep(60)"
)


def test_folders_of_killed_processes_go_and_those_of_living_ones_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-c", HOLDS]
    programs = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=own) for _ in range(2)]
    try:
        killed, living = (tmp_path / program.stdout.readline().strip() for program in programs)
        programs[0].send_signal(signal.SIGKILL)
        programs[0].wait()
        with scratch_folder():
            assert killed.exists(), "made just now: its maker may not have locked it yet"
        long_ago = time.time() - 1000
        for folder in (killed, living):
            os.utime(folder / ".held", (long_ago, long_ago))
        with scratch_folder() as folder:
            assert sorted(tmp_path.iterdir()) == sorted((folder, living))
        assert list(tmp_path.iterdir()) == [living]
    finally:
        for program in programs:
            program.kill()
            program.wait()
            program.stdout.close()
