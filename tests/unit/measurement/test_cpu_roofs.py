"""Roofs of this CPU: a device file that loads, and that keeps the best ever reached."""

import tomllib

import pytest

from nearpeak.measurement.machine import roofs
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
