"""The device report of a GPU that is only pretended: every line that a GPU would run, but for the kernels."""

import json
import subprocess

import pytest
from benchmarks.device import report, timer
from benchmarks.device.__main__ import save
from benchmarks.device.text import to_terminal

import nearpeak
from nearpeak.base.isolation import Ending
from nearpeak.core.runs.measurement import Outcome, Timing
from nearpeak.measurement import isolated_measurement, session
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.host_calls import from_host
from nearpeak.measurement.runners import runner_of

torch = pytest.importorskip("torch")
from .pretended_gpu import NAME, pretend  # noqa: E402

OPERATORS = ("gemm", "softmax", "topk")


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A GPU, with each case in this process, as what is pretended does not reach others."""
    tf32 = [(one, one.allow_tf32) for one in (torch.backends.cuda.matmul, torch.backends.cudnn)]
    mode = pretend(monkeypatch)
    monkeypatch.setattr(
        session,
        "measure_isolated",
        lambda case, runner, timing: isolated_measurement.take(case, runner, timing, "forked"),
    )
    monkeypatch.setattr(
        report, "call_isolated", lambda _, given, **__: Ending(verdict="result", value=timer.facts(**given))
    )
    monkeypatch.setattr(timer, "ON_DEVICE", 2**12)
    cuda_device.driver_facts.cache_clear()
    yield mode
    mode.__exit__(None, None, None)
    for one, value in tf32:
        one.allow_tf32 = value


def test_the_report_of_a_gpu_is_complete(tmp_path):
    found = report.device_report("torch_cuda", "small", OPERATORS, say=lambda _: None)
    sections = found["sections"]
    assert (found["target"], found["environment"]["device"], found["not_run"]) == ("h200_sxm", NAME, [])
    assert [row["status"] for row in sections["operators"]] == ["PASS"] * len(OPERATORS)
    assert sections["bounds"]["bounded_count"] == sections["bounds"]["timed_count"] > 5
    assert all(row["cases"] and not row["uncovered"] for row in sections["predictions"])
    assert (sections["timer"]["name"], len(sections["timer"]["spin_s"])) == ("cuda_events", 3)
    text = to_terminal(found)
    assert NAME in text
    assert "Known delays" in text
    assert json.loads(save(found, tmp_path / "figures", tmp_path)[0].read_text())["target"] == "h200_sxm"


def test_a_report_that_has_little_time_ends_in_it_and_says_what_it_left_out():
    found = report.device_report("torch_cuda", "small", OPERATORS, seconds=1.0, say=lambda _: None)
    assert found["took_s"] < 1.0 + report.LEAST_LIMIT_S
    assert found["not_run"]


@pytest.mark.parametrize("runner", ["torch_cuda", "cuda_graph"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("cache", ["cold", "hot"])
def test_a_case_goes_all_the_way(runner, phase, cache):
    case = nearpeak.case("softmax", phase, rows=64, columns=64, dtype="fp32")
    timing = Timing(cache=cache, validate=False, budget_s=0.02)
    found = runner_of(runner, timing).measure(case)
    assert found.outcome in (Outcome.CONVERGED, Outcome.BUDGET, Outcome.THROTTLED), found.note
    assert found.target == "h200_sxm"
    assert found.method.mode == ("graph" if runner == "cuda_graph" else "device")
    assert found.method.flush == ("read_sweep" if cache == "cold" else "none")
    assert (found.algorithm, found.activity_s) == (
        "graph" if runner == "cuda_graph" else "a_kernel",
        pytest.approx(1e-9),
    )
    assert "plan" in found.phases_s or runner != "cuda_graph"


def test_a_function_of_the_user_s_gets_tensors_on_the_gpu_and_is_checked():
    from nearpeak.measurement.runners.callable_cuda import CallableOnGpu
    from nearpeak.measurement.timed_runner import TimedRunner

    case = nearpeak.case("softmax", rows=8, columns=16, dtype="fp32")
    timing = Timing(cache="hot", budget_s=0.02)
    for scale, outcome in ((1.0, "PASS"), (1.01, "NUMERIC_FAIL")):
        backend = CallableOnGpu.of(lambda tensors, scale=scale, **_: torch.softmax(tensors["x"] * scale, -1), timing)
        found = TimedRunner(backend, timing, argument=backend.argument).measure(case)
        assert (found.validation.status, bool(found.samples_s)) == (outcome, outcome == "PASS")
        assert found.target == ("h200_sxm" if found.samples_s else found.target)


@pytest.mark.parametrize(("spoil", "status"), [
    (lambda x: x.zero_(), "MUTATED_INPUT"),
    (lambda x: x.as_strided((1,), (1,), x.storage_offset() + x.numel()).fill_(1.0), "OOB_WRITE"),
    (lambda x: x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(1.0), "OOB_WRITE"),
])  # fmt: skip
def test_what_a_kernel_writes_into_its_inputs_or_beside_them_on_the_gpu_is_seen(spoil, status):
    from nearpeak.validation import validate

    case = nearpeak.case("softmax", rows=8, columns=16, dtype="fp32")

    def kernel(tensors, **_):
        y = torch.softmax(tensors["x"], -1)
        if not tensors["x"].requires_grad:
            spoil(tensors["x"])
        return {"y": y}

    record = validate(case, from_host(kernel), seed=0)
    assert (record.status, record.failed[0]) == (status, "V2")


def test_a_call_that_cannot_be_captured_is_refused(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    case = nearpeak.case("softmax", rows=8, columns=16, dtype="fp32")
    monkeypatch.setattr(torch.cuda, "graph", refuse)
    found = runner_of("cuda_graph", Timing(cache="hot", validate=False)).measure(case)
    assert found.outcome is Outcome.UNSUPPORTED
    assert "capturing" in found.note


def test_a_copy_over_the_link_is_not_timed_as_one_within_the_device():
    from types import SimpleNamespace

    from nearpeak.ops import OPS

    x = SimpleNamespace(is_cuda=True, cpu=lambda: "on the host", clone=lambda: "on the device")
    assert OPS["transfer"].torch_call({"x": x}, direction="d2h") == {"y": "on the host"}
    with pytest.raises(NotImplementedError, match="lies on the device already"):
        OPS["transfer"].torch_call({"x": x}, direction="h2d")


def test_inputs_take_turns_until_they_exceed_the_last_cache_twice():
    case = nearpeak.case("softmax", rows=64, columns=64, dtype="fp32")  # 32 KiB of a cache of 1 MiB
    timers = [runner_of("torch_cuda", Timing(cache=cache)).backend.timer() for cache in ("cold", "hot")]
    assert [one.set_count(case) for one in timers] == [64, 1]


def test_a_batch_is_preceded_by_a_spin_as_long_as_its_launches():
    clock = cuda_device.EventTimer(torch, cold=False)
    clock.read(lambda: None, 1)
    clock._launch_s = 2e-5
    assert clock._spin_cycles(1) == cuda_device.SPIN_CYCLES
    assert clock._spin_cycles(100) == int(1.5 * 100 * 2e-5 * 2e9)
    assert clock._spin_cycles(10**6) == cuda_device.MOST_SPIN_CYCLES
    probes = [clock.read(lambda: None, 0).cycles_s, clock.read(lambda: None, 1000).cycles_s]
    assert probes[0] == pytest.approx(probes[1], rel=0.5)  # of the same clock, however long the spin


@pytest.fixture
def driver(monkeypatch):
    """A driver's program that knows some fields, refuses questions with others, and hides what it has not."""
    known = {"driver_version": "580.159.03", "power.limit": "700.00", "clocks.applications.graphics": "[N/A]"}
    asked = []

    def run(words, **_):
        fields = words[1].partition("=")[2].split(",")
        asked.append((words[-1], len(fields)))
        code = 0 if set(fields) <= set(known) and words[-1] == "--id=GPU-0123-4567" else 6
        return subprocess.CompletedProcess(words, code, ", ".join(known.get(one, "?") for one in fields) + "\n", "")

    monkeypatch.setattr("shutil.which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(subprocess, "run", run)
    return asked


def test_a_driver_that_does_not_know_a_field_says_the_others(driver):
    said = cuda_device.driver_facts(cuda_device.device_id(torch))
    assert said == {"driver_version": "580.159.03", "power.limit": "700.00"}
    assert cuda_device.clock_policy(torch) == "unknown"
    assert driver[0] == ("--id=GPU-0123-4567", len(cuda_device._FACTS))


def test_a_driver_that_does_not_answer_costs_facts_and_no_case(driver, monkeypatch):
    def hang(words, **_):
        raise subprocess.TimeoutExpired(words, 20)

    monkeypatch.setattr(subprocess, "run", hang)
    assert cuda_device.driver_facts(cuda_device.device_id(torch)) == {}


def test_a_warmed_process_asks_for_no_gpu_as_its_children_could_then_use_none(monkeypatch):
    from nearpeak.measurement.timing.warm_up import warm_up

    def refuse(*_, **__):
        raise AssertionError("CUDA is initialised before the fork")

    for name in ("is_available", "device_count", "init", "get_device_properties", "get_device_name", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, refuse)
    warm_up()


def test_a_report_of_a_model_shows_times_of_this_gpu_beside_its_bounds():
    from nearpeak.api.measured_analysis import measured
    from nearpeak.core.work.workload import Call, Workload
    from nearpeak.errors import SpecError

    case = nearpeak.case("softmax", rows=64, columns=64, dtype="fp32")
    whole = Workload(name="one", step="forward", calls=(Call(case=case, operator="softmax", phase="forward"),))
    found = measured(nearpeak.analyze(whole, ["h200_sxm", "t4"]), "torch_cuda", budget_s=0.02)
    times = {one.target: one.times[0].measured_s for one in found.targets}
    assert times["t4"] is None
    assert times["h200_sxm"] > 0
    with pytest.raises(SpecError, match="add --target h200_sxm"):
        measured(nearpeak.analyze(whole, "t4"), "torch_cuda")
