"""What a measurement says of a device that contradicts itself, slows down or hides work: devices by script, no GPU."""

import itertools
import weakref
from types import SimpleNamespace

import pytest

import nearpeak
from nearpeak.core.runs.measurement import Environment, Outcome, Timing
from nearpeak.core.runs.runner_protocols import Activity, Prepared, Reading, RunnerAbilities
from nearpeak.exchange.measurement_lines import environment_record, measurement_of, measurement_record
from nearpeak.measurement.machine.cuda_device import MOST_QUEUED, SPIN_CYCLES, EventTimer
from nearpeak.measurement.timed_runner import TimedRunner
from nearpeak.measurement.timing.clocks import HostDefaults
from nearpeak.measurement.timing.sampler import batch_of, sample
from nearpeak.measurement.timing.turn_server import _turn

CASE = nearpeak.case("softmax", rows=8, columns=16, dtype="fp32")
TIMING = Timing(budget_s=0.001, least_count=20, validate=False, cache="hot")
USUAL = {"time_s": 1e-3, "cpu_s": 0.0, "host_s": 1.1e-3}


class ScriptedTimer(HostDefaults):
    name, mode, resolution_s, clock_policy = "script", "device", 1e-9, staticmethod(lambda: "free")
    records_activity = True

    def __init__(self, changes, probes_s=(1e-5, 1e-5), seen=None, late_floor_s=0.0):
        self.late_floor_s, self.changes, self.probes_s, self.seen, self.count = (
            late_floor_s,
            changes,
            list(probes_s),
            seen,
            0,
        )

    def read(self, run, call_count):
        self.count += 1
        found = {**USUAL, **self.changes(self.count)}
        return Reading(**{k: v * call_count if k in USUAL else v for k, v in found.items()}, result=run())

    def flush(self):
        raise AssertionError("a hot run needs none")

    def clock_probe_s(self):
        return self.probes_s.pop(0)

    def activity(self, run):
        return self.seen


def measured(changes=lambda count: {}, **timer):
    script = ScriptedTimer(changes, **timer)
    ready = Prepared(runs=(lambda: None,), outputs=dict)
    backend = SimpleNamespace(
        name="script", target="gpu", abilities=RunnerAbilities(devices=("cuda",)), refusal=lambda case: "",
        prepare=lambda case, inputs: ready, timer=lambda: script, environment=lambda: Environment(device="script"),
    )  # fmt: skip
    return TimedRunner(backend, TIMING).measure(CASE)


def test_steady_times_converge_and_keep_what_the_device_recorded():
    found = measured(seen=Activity(busy_s=0.9e-3, kernels=("softmax_kernel", "copy")))
    assert (found.outcome, found.algorithm, found.activity_s) == (Outcome.CONVERGED, "softmax_kernel, copy", 0.9e-3)
    environment = environment_record(found.environment)
    again = measurement_of(measurement_record(found, "k"), {environment["digest"]: found.environment}, "line")
    assert again == found


@pytest.mark.parametrize(("changes", "timer", "outcome", "note"), [
    (lambda count: {"host_s": 0.5e-3}, {}, Outcome.SUSPECT_FAST, "longer than the host's"),
    (lambda count: {"late_s": 2e-3}, {}, Outcome.SUSPECT_FAST, "work on another stream"),
    (lambda count: {}, {"seen": Activity(busy_s=5e-3, kernels=())}, Outcome.SUSPECT_FAST, "busy for 0.005 s"),
    (lambda count: {"cycles_s": 1e-4 * (1 + count % 2)}, {}, Outcome.THROTTLED, "clock was low in 50%"),
    (lambda count: {}, {"probes_s": (1e-5, 2e-5)}, Outcome.THROTTLED, "the clock fell to 50%"),
])  # fmt: skip
def test_a_device_that_contradicts_itself_or_slows_down_is_named_and_keeps_its_samples(changes, timer, outcome, note):
    found = measured(changes, **timer)
    assert found.outcome is outcome
    assert note in found.note
    assert len(found.samples_s) >= TIMING.least_count


@pytest.mark.parametrize(("time_s", "note"), [(0.0, "took no time"), (1e-18, "tells no less than 1e-09 s")])
def test_what_is_no_time_is_said_and_gives_no_samples(time_s, note):
    found = measured(lambda count: {"time_s": time_s})
    assert (found.outcome, found.samples_s, found.has_times) == (Outcome.SUSPECT_FAST, (), False)
    assert note in found.note


@pytest.mark.parametrize("changes", [
    lambda count: {"late_s": 2e-5},  # synchronising takes some itself
    lambda count: {"late_s": 2e-3 if count % 5 == 0 else 0.0},  # now and then, another process
    lambda count: {"cycles_s": 1e-4 * (2 if count % 5 == 0 else 1)},
    lambda count: {"late_s": 1e-4, "host_s": 1.3e-3},
])  # fmt: skip
def test_what_happens_on_every_device_now_and_then_is_no_suspicion(changes):
    assert measured(changes, late_floor_s=3e-5).outcome is Outcome.CONVERGED


class ScriptedHost(ScriptedTimer):
    mode = "host"


def sampled(prepared):
    sample(prepared, ScriptedTimer(lambda count: {}), TIMING, last=True)


def batched(prepared):
    batch_of(ScriptedHost(lambda count: {"time_s": 2e-4}), itertools.cycle(prepared.runs), TIMING)


def turned(prepared):
    _turn(itertools.cycle(prepared.runs), prepared, ScriptedHost(lambda count: {}), TIMING, 1, None)


@pytest.mark.parametrize("take", [sampled, batched, turned])
def test_results_of_many_calls_are_not_held_together(take):
    alive, most = weakref.WeakSet(), []

    class Result:
        pass

    def run():
        most.append(len(alive))
        made = Result()
        alive.add(made)
        return made

    take(Prepared(runs=(run,), outputs=lambda _: {}))
    assert len(most) > TIMING.least_count
    assert max(most) <= 3


def test_calls_of_a_host_that_has_just_begun_do_not_say_how_many_make_a_batch():
    slow_at_first = ScriptedHost(lambda count: {"time_s": 1e-3 if count < 6 else 1e-5})
    assert batch_of(slow_at_first, itertools.repeat(lambda: None), TIMING) == 10


class FakeCuda:
    """A device whose clock is the sum of what was put on its stream; `side_s` runs beside it."""

    def __init__(self, cycle_s, side_s=0.0):
        self.now_s, self.cycle_s, self.side_s, self.log = 0.0, cycle_s, side_s, []

    def Event(self, enable_timing):  # noqa: N802  # as PyTorch calls it
        event = SimpleNamespace(at_s=0.0)
        event.record = lambda: setattr(event, "at_s", self.now_s)
        event.synchronize = lambda: self.log.append("end")
        event.elapsed_time = lambda other: (other.at_s - event.at_s) * 1e3
        return event

    def get_device_properties(self, device):
        return SimpleNamespace(L2_cache_size=1 << 20)

    def synchronize(self):
        self.log.append("all")

    def _sleep(self, cycles):
        self.now_s += cycles * self.cycle_s

    def run(self):
        self.now_s += 3e-6


def timer_on(cuda):
    torch = SimpleNamespace(cuda=cuda, version=SimpleNamespace(hip=None), empty=lambda *a, **k: None)
    return EventTimer(torch, cold=False)


def test_events_leave_out_the_spin_and_the_spin_says_the_clock():
    cuda = FakeCuda(cycle_s=1e-9)
    found = timer_on(cuda).read(cuda.run, 4)
    assert found.time_s == pytest.approx(12e-6)
    assert found.cycles_s == pytest.approx(SPIN_CYCLES * 1e-9)
    assert cuda.log == ["all", "end", "all"]  # the recorded stream first, so that what is left is another's


def test_a_batch_is_no_longer_than_what_is_queued_while_the_device_spins():
    timer = timer_on(FakeCuda(cycle_s=1e-9))
    timer._launch_s = 2e-5
    assert timer.most_calls() == 166  # 10 million cycles of 0.5 ns, and half as long again to be sure

    class Queue(ScriptedTimer):
        def most_calls(self):
            return 40

        def read(self, run, call_count):
            assert call_count <= 40
            return super().read(run, call_count)

    brief = Queue(lambda count: {"time_s": 1e-9, "host_s": 1e-9})
    assert batch_of(brief, itertools.repeat(lambda: None), TIMING) == 40
    timer._launch_s = 1e-9
    assert timer.most_calls() == MOST_QUEUED


def test_a_slower_clock_has_a_longer_probe_and_no_profiler_no_activity():
    fast, slow = (timer_on(FakeCuda(cycle_s=one)) for one in (1e-9, 2e-9))
    assert slow.clock_probe_s() == pytest.approx(2 * fast.clock_probe_s())
    assert fast.activity(lambda: None) is None


class FakeProfiler:
    """Stands for torch.profiler: its events are what the test says."""

    ProfilerActivity = SimpleNamespace(CUDA="cuda")

    def __init__(self, *events):
        self.seen = [
            SimpleNamespace(name=name, device_type=kind, time_range=SimpleNamespace(start=start, end=end))
            for name, kind, start, end in events
        ]

    def profile(self, activities):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def events(self):
        return self.seen


def test_the_device_s_own_records_count_each_moment_once_and_leave_out_the_host():
    timer = timer_on(FakeCuda(cycle_s=1e-9))
    call = (("side", "DeviceType.CUDA", 12.0, 20.0), ("main", "DeviceType.CUDA", 10.0, 15.0),
            ("main", "DeviceType.CUDA", 30.0, 31.0))  # fmt: skip
    later = [(name, kind, start + at, end + at) for at in (100.0, 200.0) for name, kind, start, end in call]
    slow_first = [(name, kind, start, end + (0.5 if end == 31.0 else 0.0)) for name, kind, start, end in call]
    timer._torch.profiler = FakeProfiler(("aten::softmax", "DeviceType.CPU", 0.0, 290.0), *slow_first, *later)
    found = timer.activity(lambda: None)
    assert found.busy_s == pytest.approx(11e-6)
    assert set(found.kernels) == {"main", "side"}


def test_inputs_that_lie_in_the_cache_are_not_held_against_the_bandwidth_of_memory():
    from nearpeak.api.measured_analysis import _checked_against_bound, known_target, least_s
    from nearpeak.core.runs.measurement import Measurement, Method

    device = known_target("h200_sxm")
    case = nearpeak.case("reduce", outputs=1, reduced=2**22, dtype="fp32", function="sum")  # 16 MiB of a cache of 50 MB

    def taken(cache, time_s):
        method = Method(timer="t", mode="device", cache=cache, flush="none", process="fresh", thread_count=1,
                        clock_policy="free")  # fmt: skip
        return Measurement(case=case, target="h200_sxm", runner="r", samples_s=(time_s,), method=method)

    floor_s = least_s(taken("cold", 1.0), device)
    assert floor_s == nearpeak.bound(case, "h200_sxm").time_s
    assert _checked_against_bound(taken("cold", 0.8 * floor_s), device).outcome is Outcome.BELOW_BOUND
    assert _checked_against_bound(taken("hot", 0.8 * floor_s), device).outcome is Outcome.BUDGET
