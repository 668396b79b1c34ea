"""Roofs of this CPU: a device file that loads, and that keeps the best ever reached."""

import subprocess
import sys
import tomllib

import pytest

from nearpeak.api import measured_analysis
from nearpeak.bounds.case_bound import case_bound
from nearpeak.errors import NotModelledError, UnfitError
from nearpeak.measurement.machine import other_load, roofs
from nearpeak.measurement.machine.library_products import integer_flop_per_s, runtime_flop_per_s
from nearpeak.measurement.machine.other_load import OtherLoad
from nearpeak.ops import case
from nearpeak.targets.device_file import parse_target

MEASURED = {"fp64": 5e10, "fp32": 1e11, "bf16": 2e11, "memory": 3e10, "launch": 1e-6}


def target(measured):
    return parse_target("cpu", tomllib.loads(roofs.cpu_target_text(measured)))


def test_the_device_file_of_this_cpu_states_what_was_measured():
    cpu = target(MEASURED)
    assert cpu.measured
    assert cpu.kind == "cpu"
    assert cpu.peaks["vector.fp32"].flop_per_s == pytest.approx(1e11)
    assert cpu.dram.bandwidth_bytes_per_s == pytest.approx(3e10)


def test_without_pytorch_there_is_no_bf16_roof():
    assert "tensor.bf16" not in target({k: v for k, v in MEASURED.items() if k != "bf16"}).peaks


def test_a_busy_machine_does_not_lower_a_known_roof():
    slower = {**MEASURED, "fp32": 5e10, "memory": 9e10, "launch": 5e-6}
    kept = roofs.best_roofs(slower, target(MEASURED))
    assert kept["fp32"] == pytest.approx(1e11)
    assert kept["memory"] == 9e10
    assert kept["launch"] == pytest.approx(1e-6)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """This machine with roofs as given, beside others that take as many of two cores as given."""
    monkeypatch.setenv("NEARPEAK_HOME", str(tmp_path))
    monkeypatch.setattr(measured_analysis, "roofs_file", lambda: tmp_path / "cpu.toml")
    known = []
    monkeypatch.setattr(measured_analysis, "known_target", lambda _: known[-1] if known else None)

    def measure(cores, busy=False, **figures):
        load = OtherLoad(cores_ratio=cores, core_count=2)
        monkeypatch.setattr(other_load, "load_between", lambda *_: load)
        monkeypatch.setattr(roofs, "cpu_roofs", lambda: iter({**MEASURED, **figures}.items()))
        path, rates = measured_analysis.measure_roofs(busy=busy)
        known.append(parse_target("cpu", tomllib.loads(path.read_text())))
        return rates

    return measure, known


def test_roofs_beside_other_work_are_kept_only_when_asked_for_and_marked(machine):
    measure, known = machine
    with pytest.raises(UnfitError, match=r"other processes took 1.6 of 2 cores .* nothing is saved"):
        measure(1.6)
    measure(1.6, busy=True, fp32=1e10)
    assert "peak.vector.fp32" in known[-1].unverified
    assert "took 1.6 of 2 cores" in known[-1].dram.source
    with pytest.raises(UnfitError):
        measure(1.6)
    measure(0.0)
    assert known[-1].unverified == ()
    assert measure(1.6, fp32=1e10)["fp32"] == pytest.approx(1e11)
    assert known[-1].unverified == ()


def test_a_process_of_ones_own_is_no_other_load():
    start = other_load.cpu_times()
    subprocess.run([sys.executable, "-c", "sum(range(4_000_000))"], check=True)
    end = other_load.cpu_times()
    assert end.own_s - start.own_s > 0.03
    assert end.busy_s >= start.busy_s


def test_roofs_of_another_machine_are_not_kept(monkeypatch):
    other = target(MEASURED)
    monkeypatch.setattr(roofs, "cpu_name", lambda: "another one")
    assert roofs.best_roofs({**MEASURED, "fp32": 1.0}, other)["fp32"] == 1.0


def test_measuring_gives_every_roof(monkeypatch):
    monkeypatch.setattr(roofs, "REPEAT_S", 0.001)
    monkeypatch.setattr(roofs, "PRODUCT_EXTENTS", (32,))
    monkeypatch.setattr(roofs, "STREAM_BYTES", 2**16)
    found = dict(roofs.cpu_roofs())
    assert {"fp32", "fp64", "memory", "launch"} <= set(found)
    assert all(value > 0 for value in found.values())


def test_integers_have_a_roof_of_their_own_which_bounds_their_products():
    cpu = target({**MEASURED, "int8": 6e11})
    assert cpu.peaks["tensor.int8"].flop_per_s == pytest.approx(6e11)
    product = case("gemm", m=512, n=512, k=512, dtype="int8")
    assert case_bound(product, cpu).terms_s["matrix"] == pytest.approx(2 * 512**3 / 6e11)
    assert roofs.best_roofs({**MEASURED, "int8": 1e11}, cpu)["int8"] == pytest.approx(6e11)


def test_without_a_roof_of_integers_their_products_have_no_bound_but_others_do():
    text = roofs.cpu_target_text(MEASURED)
    older = "\n".join(line for line in text.splitlines() if not line.startswith("unstated"))
    for cpu in (target(MEASURED), parse_target("cpu", tomllib.loads(older))):
        with pytest.raises(
            NotModelledError, match=r"cpu: no measurement states the rate of tensor.int8.*calibrate roofs"
        ):
            case_bound(case("gemm", m=8, n=8, k=8, dtype="int8"), cpu)
        assert case_bound(case("gemm", m=8, n=8, k=8, dtype="fp64"), cpu).time_s > 0


def test_the_rate_of_integers_is_that_of_the_faster_library():
    seconds = iter((2e-3, 1e-3, 4e-3, 8e-3))
    best = lambda _: next(seconds)  # noqa: E731
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    assert integer_flop_per_s((16, 32), torch, best) == pytest.approx(max(2 * 16**3 / 1e-3, 2 * 32**3 / 4e-3))
    assert integer_flop_per_s((16,), torch, lambda call: call() is None or 1.0) == 2 * 16**3
    assert runtime_flop_per_s((16,), lambda call: call() is None or 1.0) == 2 * 16**3
