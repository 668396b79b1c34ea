"""Each source on generated trees and libraries: units by driver, what is unknown with its reason, never 0."""

import math
import sys
import time
import types
from pathlib import Path

import pytest
from tests.unit.measurement.telemetry.trees import (
    BOARD,
    CORES,
    FIELDS,
    HOST,
    ORIN,
    RAPL,
    THOR,
    XAVIER,
    NvmlError,
    fake_nvml,
    write,
)

from nearpeak.core.runs.telemetry import KINDS
from nearpeak.errors import UnknownNameError
from nearpeak.measurement.telemetry.sources import SOURCES, Unavailable, known, opened


def read(name, root):
    """Values by channel of a source on a tree."""
    source = SOURCES[name](root)
    try:
        return {channel.name: value for channel, value in zip(source.channels, source.read(), strict=True)}
    finally:
        source.close()


def channel(name, root, wanted):
    return next(one for one in SOURCES[name](root).channels if one.name == wanted)


def test_rapl_counts_joules_of_packages_and_their_parts(tmp_path):
    write(tmp_path, RAPL)
    assert read("rapl", tmp_path) == {"package-0.energy": 1.0, "package-0/dram.energy": 0.5}
    package = channel("rapl", tmp_path, "package-0.energy")
    assert (package.unit, package.kind, package.domain) == ("J", "counter", "package-0")
    assert package.rollover == pytest.approx(262143.32885)


def test_a_counter_that_only_root_may_read_says_so(tmp_path, monkeypatch):
    import os

    def refuse(path, *arguments, opened=os.open):
        if str(path).endswith("intel-rapl:0/energy_uj"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments)

    write(tmp_path, RAPL)
    monkeypatch.setattr(os, "open", refuse)
    assert "permission denied: energy_uj" in channel("rapl", tmp_path, "package-0.energy").status
    values = read("rapl", tmp_path)
    assert math.isnan(values["package-0.energy"])
    assert values["package-0/dram.energy"] == 0.5


def test_rails_take_their_unit_from_the_driver_never_from_the_magnitude(tmp_path):
    write(tmp_path, {**ORIN, **XAVIER, **THOR})
    assert read("rails", tmp_path) == pytest.approx(
        {"VDD_GPU_SOC.power": 9.5, "VDD_CPU_CV.power": 4.752, "VIN.power": 25.0, "VDD_IN.power": 5.971}
    )


def test_the_step_of_a_rail_follows_from_both_converters(tmp_path):
    write(tmp_path, ORIN)
    # 0.5 A x 8 mV + 19 V x 40 uV / 2 mOhm = 0.004 W + 0.38 W
    assert channel("rails", tmp_path, "VDD_GPU_SOC.power").resolution == pytest.approx(0.384)
    assert channel("rails", tmp_path, "VDD_CPU_CV.power").resolution is None  # its shunt is not stated


def test_boards_show_temperatures_power_energy_and_clocks_in_base_units(tmp_path):
    write(tmp_path, {**BOARD, **ORIN})
    hwmon = read("hwmon", tmp_path)
    assert hwmon["hwmon0.nvme.Composite.temperature"] == pytest.approx(41.85)
    assert hwmon["hwmon3.amdgpu.power1.power_mean"] == pytest.approx(35.0)
    assert hwmon["hwmon3.amdgpu.energy1.energy"] == pytest.approx(7.0)
    assert hwmon["hwmon3.amdgpu.freq1.clock"] == 5e8
    assert not [name for name in hwmon if "ina3221" in name]  # a rail is not counted twice
    assert channel("hwmon", tmp_path, "hwmon3.amdgpu.power1.power_mean").window_s == 1.0
    assert read("thermal", tmp_path) == {"zone0.x86_pkg_temp.temperature": 55.0}
    assert read("devfreq", tmp_path) == {"17000000.gpu.clock": 918e6, "gpu.load": pytest.approx(0.873)}


def test_of_many_cores_four_spread_evenly_are_read(tmp_path):
    found = read("cpu_clock", write(tmp_path, CORES))
    assert list(found) == ["cpu0.clock", "cpu3.clock", "cpu6.clock", "cpu9.clock", "cpu.throttle_count"]
    assert found["cpu3.clock"] == 2_000_003_000


def test_a_zone_without_a_value_at_the_start_is_taken_up_when_it_gives_one(tmp_path):
    zone = write(tmp_path, BOARD) / "sys/class/thermal/thermal_zone0/temp"
    zone.write_text("")
    source = SOURCES["thermal"](tmp_path)
    assert [channel.status for channel in source.channels] == [""]
    assert math.isnan(source.read()[0])
    zone.write_text("47500")
    assert source.read() == [47.5]


def test_a_sensor_that_falls_silent_is_unknown_not_zero(tmp_path):
    source = SOURCES["thermal"](write(tmp_path, BOARD))
    (tmp_path / "sys/class/thermal/thermal_zone0/temp").write_text("")
    assert math.isnan(source.read()[0])


def test_rails_of_one_label_are_kept_apart(tmp_path):
    label = "sys/class/hwmon/hwmon1/in2_label"
    write(tmp_path, {**ORIN, label: ORIN["sys/class/hwmon/hwmon1/in1_label"]})
    assert read("rails", tmp_path) == pytest.approx({"VDD_GPU_SOC.power": 9.5, "VDD_GPU_SOC.2.power": 4.752})
    assert channel("rails", tmp_path, "VDD_GPU_SOC.2.power").domain == "VDD_GPU_SOC.2"


@pytest.mark.parametrize("name", ["rapl", "rails", "hwmon", "thermal", "devfreq", "cpu_clock", "host", "tegrastats"])
def test_a_machine_without_the_sensor_says_why(name, tmp_path):
    with pytest.raises(Unavailable, match=r"\w+ \w+"):
        SOURCES[name](tmp_path)


def test_this_machine_is_read_by_psutil():
    pytest.importorskip("psutil")
    found = read("host", Path("/"))
    assert found["cpu.busy"] > 0
    assert found["memory.used"] > 2**20


def test_files_of_linux_are_read_below_any_root_and_without_psutil(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    write(tmp_path, HOST)
    assert read("host", tmp_path) == {
        "cpu.busy": pytest.approx(5.25), "cpu.stolen": pytest.approx(0.25), "memory.used": 600 * 1024,
        "memory.swapped": 50 * 1024, "disk.read": 512.0 * 7, "disk.written": 512.0 * 9,
    }  # fmt: skip
    (tmp_path / "proc/stat").unlink()
    with pytest.raises(Unavailable, match="has no proc/stat and proc/meminfo, and psutil reads the running system"):
        SOURCES["host"](tmp_path)


def nvml(monkeypatch, **answers):
    fake = fake_nvml(**answers)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_nvml_gives_watts_joules_hertz_and_reasons(monkeypatch, tmp_path):
    nvml(monkeypatch)
    found = read("nvml_power", tmp_path)
    assert found["gpu0.power"] == pytest.approx(431.25)
    assert found["gpu0.power_mean"] == pytest.approx(402.0)
    assert read("nvml_energy", tmp_path) == {"gpu0.energy": pytest.approx(7_500_000.123)}
    assert found["gpu0.sm_clock"] == 1.98e9
    assert math.isnan(found["gpu0.module.power"])
    reasons = channel("nvml_power", tmp_path, "gpu0.throttle")
    assert reasons.decoded(found["gpu0.throttle"]) == ("software power cap", "software thermal slowdown")
    state = read("nvml_state", tmp_path)
    assert state == {
        "gpu0.memory.temperature": 61.0, "gpu0.temperature": 54.0, "gpu0.busy": 0.97, "gpu0.memory.busy": 0.43,
        "gpu0.memory.used": 2.0**30, "gpu0.power_limit": 700.0, "gpu0.memory_clock": 1.98e9,
    }  # fmt: skip


def test_what_nvml_does_not_support_has_its_words_and_no_value(monkeypatch, tmp_path):
    nvml(monkeypatch, answers={"nvmlDeviceGetTemperature": NvmlError(3)}, fields={})
    assert channel("nvml_energy", tmp_path, "gpu0.energy").status == "NVML: Not Supported"
    assert math.isnan(read("nvml_power", tmp_path)["gpu0.power"])
    assert channel("nvml_state", tmp_path, "gpu0.temperature").status == "NVML: Not Supported"
    assert read("nvml_state", tmp_path)["gpu0.busy"] == 0.97


def test_an_energy_counter_that_takes_long_to_read_is_read_seldom(monkeypatch, tmp_path):
    def long():
        end_s = time.thread_time() + 0.002
        while time.thread_time() < end_s:
            pass
        return 1

    nvml(monkeypatch, fields={**FIELDS, (83, 0): (3, "ullVal", long)})
    assert 0.5 <= SOURCES["nvml_energy"](tmp_path).most_hz <= 1.0
    nvml(monkeypatch, fields={**FIELDS, (83, 0): (3, "ullVal", lambda: 1)})
    assert SOURCES["nvml_energy"](tmp_path).most_hz == 10.0


def test_an_older_nvml_names_the_reasons_otherwise(monkeypatch, tmp_path):
    fake = nvml(monkeypatch)
    del fake.nvmlDeviceGetCurrentClocksEventReasons, fake.NVML_FI_DEV_POWER_INSTANT
    fake.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x1
    found = read("nvml_power", tmp_path)
    assert channel("nvml_power", tmp_path, "gpu0.throttle").decoded(found["gpu0.throttle"]) == ("idle",)
    assert "NVML_FI_DEV_POWER_INSTANT" in channel("nvml_power", tmp_path, "gpu0.power").status
    del fake.nvmlDeviceGetCurrentClocksThrottleReasons
    assert "has not" in channel("nvml_power", tmp_path, "gpu0.throttle").status


def test_a_gpu_that_is_lost_meanwhile_is_unknown_from_then_on(monkeypatch, tmp_path):
    fake = nvml(monkeypatch)
    source = SOURCES["nvml_power"](tmp_path)

    def lost(*_):
        raise NvmlError(15)

    fake.nvmlDeviceGetFieldValues = fake.nvmlDeviceGetClockInfo = lost
    assert all(math.isnan(value) for value in source.read()[:4])
    source.close()
    assert fake.shut_down == [1]


def test_a_machine_without_driver_says_so(monkeypatch, tmp_path):
    def absent():
        raise NvmlError(9)

    nvml(monkeypatch).nvmlInit = absent
    assert opened(["nvml_power"], str(tmp_path)) == ([], [("nvml_power", "NVML does not start: Driver Not Loaded")])


def test_amd_gpus_answer_in_their_units_and_say_what_they_lack(monkeypatch, tmp_path):
    smi = types.ModuleType("amdsmi")
    smi.AmdSmiException = type("AmdSmiException", (Exception,), {})
    smi.AmdSmiClkType = types.SimpleNamespace(GFX=0, MEM=1)
    smi.AmdSmiTemperatureType, smi.AmdSmiTemperatureMetric = (
        types.SimpleNamespace(HOTSPOT=1),
        types.SimpleNamespace(CURRENT=0),
    )
    smi.amdsmi_init = smi.amdsmi_shut_down = lambda: None
    smi.amdsmi_get_processor_handles = lambda: ["a"]
    smi.amdsmi_get_power_info = lambda handle: {"current_socket_power": 512, "average_socket_power": "N/A"}
    smi.amdsmi_get_energy_count = lambda handle: {"energy_accumulator": 10**9, "counter_resolution": 15.3}
    smi.amdsmi_get_clock_info = lambda handle, kind: {"clk": 2100}
    smi.amdsmi_get_temp_metric = lambda *_: 71
    smi.amdsmi_get_violation_status = lambda handle: {"active_ppt_pwr": True, "active_hbm_thrm": "N/A"}
    smi.amdsmi_get_gpu_activity = lambda handle: {"gfx_activity": 50}
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    found = read("amdsmi", tmp_path)
    assert found["gpu0.power"] == 512
    assert found["gpu0.energy"] == pytest.approx(15300.0)
    assert (found["gpu0.clock"], found["gpu0.temperature"], found["gpu0.busy"]) == (2.1e9, 71.0, 0.5)
    assert found["gpu0.throttle"] == 2.0
    assert ("power limit", 2) in channel("amdsmi", tmp_path, "gpu0.throttle").bits
    assert math.isnan(found["gpu0.power_mean"])
    assert "N/A" in channel("amdsmi", tmp_path, "gpu0.power_mean").status


def test_tegrastats_is_stamped_line_by_line(monkeypatch, tmp_path):
    program = (
        write(
            tmp_path,
            {
                "bin/tegrastats": (
                    "#!/bin/sh\nwhile true; do echo 'RAM 2/4MB CPU [5%@700] VDD_IN 5971mW/5971mW'; sleep 0.05; done"
                )
            },
        )
        / "bin"
    )
    (program / "tegrastats").chmod(0o755)
    monkeypatch.setenv("PATH", str(program), prepend=":")
    source = SOURCES["tegrastats"](Path("/"))
    try:
        import time

        deadline = time.monotonic() + 10
        while math.isnan(
            (found := dict(zip([c.name for c in source.channels], source.read(), strict=True)))["VDD_IN.power"]
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert found["VDD_IN.power"] == 5.971
    finally:
        source.close()


def test_every_channel_declares_what_it_means(monkeypatch, tmp_path):
    nvml(monkeypatch)
    write(tmp_path, {**RAPL, **ORIN, **XAVIER, **BOARD, **CORES})
    found, _ = opened(known(()), str(tmp_path))
    assert {one.name for one in found} >= {"rapl", "rails", "hwmon", "thermal", "devfreq", "cpu_clock", "nvml_power"}
    for one in (channel for source in found for channel in source.channels):
        assert one.kind in KINDS
        assert one.unit
        assert one.meaning
        assert (one.kind == "flags") == bool(one.bits)
    names = [channel.name for source in found for channel in source.channels]
    assert len(names) == len(set(names))


def test_an_unknown_source_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match="rapl"):
        known(["rappl"])
