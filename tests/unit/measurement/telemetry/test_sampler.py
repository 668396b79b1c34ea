"""The sampler's own process: aligned in time, ended with its parent, honest about what it missed."""

import gc
import math
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.unit.measurement.telemetry.trees import CORES, RAPL, write

from nearpeak.core.runs.energy import energies_of
from nearpeak.errors import MeasureError, SpecError, UnknownNameError
from nearpeak.measurement.telemetry import reading_records, sampler_process
from nearpeak.measurement.telemetry.sampler_client import Sampler

COUNTER = "sys/class/powercap/intel-rapl:0/energy_uj"


def alive(pid):
    """Whether a process runs; one that ended and was not asked for does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone_within(pid, seconds):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_readings_around_a_window_lie_in_order_on_this_process_s_clock(tmp_path):
    with Sampler(100, ["rapl", "cpu_clock"], str(write(tmp_path, {**RAPL, **CORES}))) as sampler:
        time.sleep(0.1)
        begin = time.monotonic_ns()
        time.sleep(0.3)
        end = time.monotonic_ns()
        found = sampler.window(begin, end)
    for stream in found.streams:
        stamps = [t for pair in zip(stream.before_ns, stream.after_ns, strict=True) for t in pair]
        assert stamps == sorted(stamps)
        assert stamps[0] <= begin < end <= stamps[-1]
    assert 5 <= found.tick_count <= 31
    assert found.tick_count + found.missed_count in (29, 30, 31)
    assert abs(found.wall_ns - time.time_ns()) < 20e9
    assert 0 < found.cpu_s < 0.3


def test_energy_of_a_growing_counter_is_that_of_the_window(tmp_path):
    file = write(tmp_path, RAPL) / COUNTER
    with Sampler(100, ["rapl"], str(tmp_path)) as sampler, file.open("r+", buffering=1) as counter:
        time.sleep(0.2)
        begin = time.monotonic_ns()
        for joules in (4, 11):
            time.sleep(0.2)
            counter.seek(0)
            counter.write(f"{joules}000000\n")
            counter.flush()
        time.sleep(0.2)
        end = time.monotonic_ns()
        found = {one.domain: one for one in energies_of(sampler.window(begin, end))}
    assert found["package-0"].energy_j == pytest.approx(10.0)  # from 1 J to 11 J, whenever it was seen to grow
    assert found["package-0"].covered_s == pytest.approx((end - begin) / 1e9)
    assert found["package-0"].sample_count == 2
    assert found["package-0/dram"].energy_j == 0


def test_a_slow_source_is_read_less_often_than_a_fast_one(tmp_path):
    pytest.importorskip("psutil")
    with Sampler(100, ["host"]) as sampler:
        begin = time.monotonic_ns()
        time.sleep(0.5)
        found = sampler.window(begin, time.monotonic_ns())
    (stream,) = found.streams
    assert 2 <= sum(begin <= t <= found.end_ns for t in stream.before_ns) <= 6


def test_closing_it_ends_the_process_and_keeps_what_was_read(tmp_path):
    sampler = Sampler(50, ["rapl"], str(write(tmp_path, RAPL)))
    begin = time.monotonic_ns()
    time.sleep(0.2)
    end = time.monotonic_ns()
    with sampler:
        sampler.stop()
        assert not alive(sampler.pid)
        found = sampler.window(begin, end)
    assert found.tick_count >= 2


def test_it_ends_when_its_parent_is_killed(tmp_path):
    script = (
        "import sys, time; from nearpeak.measurement.telemetry.sampler_client import Sampler; s = Sampler(20, ['host'])"
    )
    script += "; print(s.pid, flush=True); time.sleep(60)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as parent:
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
    assert gone_within(pid, 5)


def test_a_sampler_that_is_killed_says_so_and_the_window_keeps_what_came_before(tmp_path):
    with Sampler(100, ["rapl"], str(write(tmp_path, RAPL))) as sampler:
        begin = time.monotonic_ns()
        time.sleep(0.3)
        os.kill(sampler.pid, signal.SIGKILL)
        time.sleep(0.2)
        found = sampler.window(begin, time.monotonic_ns())
    assert "ended early, with exit code -9" in found.note
    assert found.streams[0].before_ns


def test_rounds_that_are_left_out_are_counted(tmp_path):
    with Sampler(100, ["rapl"], str(write(tmp_path, RAPL))) as sampler:
        begin = time.monotonic_ns()
        time.sleep(0.1)
        os.kill(sampler.pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(sampler.pid, signal.SIGCONT)
        time.sleep(0.2)
        found = sampler.window(begin, time.monotonic_ns())
    assert found.missed_count >= 20
    assert found.latest_s >= 0.25
    assert found.late_count >= 1


@pytest.mark.parametrize("rate_hz", [0.0, -1.0, 5000.0, math.nan])
def test_a_rate_out_of_range_is_refused(rate_hz):
    with pytest.raises(SpecError, match=r"give 0\.1 to 1000"):
        Sampler(rate_hz)


def test_an_unknown_source_is_refused_before_a_process_starts():
    with pytest.raises(UnknownNameError, match="telemetry source"):
        Sampler(10, ["nvlm"])


def test_a_sampler_that_does_not_start_says_why(monkeypatch, tmp_path):
    (tmp_path / "nearpeak").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "nearpeak" / "__init__.py").write_text("raise RuntimeError('broken installation')")
    gc.collect()  # what other tests left open is none of this one's
    before = os.listdir("/dev/fd")
    with pytest.raises(MeasureError, match=r"the sampler did not start: .*broken installation"):
        Sampler(10)
    gc.collect()
    assert len(os.listdir("/dev/fd")) <= len(before)


def test_a_record_that_is_still_being_written_waits(tmp_path):
    data = reading_records.header({"sources": []}) + reading_records.records(
        [(0, 1, 2, [1.5, math.nan])], [(1, 2, 3, 4)]
    )
    path = tmp_path / "records"
    path.write_bytes(data[:-3])
    with path.open("rb+") as file:
        records = reading_records.Records(file.fileno())
        first = list(records.new())
        assert [kind for kind, _ in first] == [reading_records.HEADER, reading_records.READING]
        assert first[1][1][:3] == (0, 1, 2)
        with path.open("ab") as more:
            more.write(data[-3:])
        assert list(records.new()) == [(reading_records.TICK, (1, 2, 3, 4))]


FAKE = """
import sys, time
from tests.unit.measurement.telemetry.trees import FIELDS, fake_nvml

def long():
    end_s = time.thread_time() + 0.01
    while time.thread_time() < end_s:
        pass
    return time.monotonic_ns()

sys.modules[__name__] = fake_nvml(fields={**FIELDS, (83, 0): (3, "ullVal", long)})
"""


def test_a_counter_that_is_read_seldom_is_asked_where_a_window_ends(tmp_path, monkeypatch):
    (tmp_path / "pynvml.py").write_text(FAKE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Sampler(100, ["nvml_energy"]) as sampler:
        time.sleep(0.1)
        ends_ns = []
        for _ in range(2):
            begin_ns = time.monotonic_ns()
            time.sleep(0.1)
            end_ns = time.monotonic_ns()
            found = sampler.window(begin_ns, end_ns)
            ends_ns.append(time.monotonic_ns() - end_ns)
            assert found.streams[0].before_ns[-1] >= end_ns
    assert max(ends_ns) < 1e9  # of its own it is read every two seconds


def test_a_source_that_is_read_seldom_is_due_as_long_after_it_was_asked(monkeypatch):
    class Slow:
        name, most_hz, channels, times_s = "slow", 100.0, (), []

        def read(self):
            self.times_s.append(time.monotonic())
            return ()

    asked = iter([True, False, False, False, None])
    monkeypatch.setattr(sampler_process, "HANDED_S", 0.005)
    monkeypatch.setattr(sampler_process, "_heard", lambda wait_s: time.sleep(max(0.0, wait_s)) or next(asked))
    monkeypatch.setattr(sampler_process, "_write", lambda file, data: None)
    sampler_process._sample([Slow()], 1000.0, -1, os.getppid())
    first, wanted, *later = Slow.times_s
    assert wanted - first < 0.5
    assert later
    assert later[0] - wanted > 0.007  # one after the time of its rate, and not after that of HANDED_S
