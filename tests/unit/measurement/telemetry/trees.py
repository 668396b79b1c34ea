"""Trees of small files as Linux shows sensors, and an NVML that answers from a table."""

import types


def write(root, files):
    """Write each file of {path: text} below root; a path that ends in `!` cannot be read."""
    for path, text in files.items():
        file = root / path.rstrip("!")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        if path.endswith("!"):
            file.chmod(0)
    return root


RAPL = {
    "sys/class/powercap/intel-rapl:0/name": "package-0",
    "sys/class/powercap/intel-rapl:0/energy_uj": "1000000",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
    "sys/class/powercap/intel-rapl:0:0/name": "dram",
    "sys/class/powercap/intel-rapl:0:0/energy_uj": "500000",
    "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj": "65712999613",
}
ORIN = {  # JetPack 5 and later: millivolts and milliamperes, shunts in micro-ohms
    "sys/class/hwmon/hwmon1/name": "ina3221",
    "sys/class/hwmon/hwmon1/in1_label": "VDD_GPU_SOC",
    "sys/class/hwmon/hwmon1/in1_input": "19000",
    "sys/class/hwmon/hwmon1/curr1_input": "500",
    "sys/class/hwmon/hwmon1/shunt1_resistor": "2000",
    "sys/class/hwmon/hwmon1/in2_label": "VDD_CPU_CV",
    "sys/class/hwmon/hwmon1/in2_input": "19008",
    "sys/class/hwmon/hwmon1/curr2_input": "250",
}
XAVIER = {  # JetPack 4: milliwatts
    "sys/bus/i2c/drivers/ina3221x/1-0040/iio:device0/rail_name_0": "VDD_IN",
    "sys/bus/i2c/drivers/ina3221x/1-0040/iio:device0/in_power0_input": "5971",
}
THOR = {  # INA238: microwatts
    "sys/class/hwmon/hwmon2/name": "ina238",
    "sys/class/hwmon/hwmon2/power1_input": "25000000",
    "sys/class/hwmon/hwmon2/in1_label": "VIN",
}
BOARD = {
    "sys/class/hwmon/hwmon0/name": "nvme",
    "sys/class/hwmon/hwmon0/temp1_label": "Composite",
    "sys/class/hwmon/hwmon0/temp1_input": "41850",
    "sys/class/hwmon/hwmon3/name": "amdgpu",
    "sys/class/hwmon/hwmon3/power1_average": "35000000",
    "sys/class/hwmon/hwmon3/power1_average_interval": "1000",
    "sys/class/hwmon/hwmon3/energy1_input": "7000000",
    "sys/class/hwmon/hwmon3/freq1_input": "500000000",
    "sys/class/thermal/thermal_zone0/type": "x86_pkg_temp",
    "sys/class/thermal/thermal_zone0/temp": "55000",
    "sys/class/devfreq/17000000.gpu/cur_freq": "918000000",
    "sys/devices/platform/gpu.0/load": "873",
}
CORES = {
    **{f"sys/devices/system/cpu/cpu{n}/cpufreq/scaling_cur_freq": str(2_000_000 + n) for n in range(12)},
    **{f"sys/devices/system/cpu/cpu{n}/thermal_throttle/package_throttle_count": "7" for n in range(12)},
}


WORDS = {3: "Not Supported", 9: "Driver Not Loaded", 15: "GPU is lost"}


class NvmlError(Exception):
    """What the library raises: a code with its words."""

    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return WORDS.get(self.value, "Unknown Error")


HOST = {
    "proc/stat": "cpu  200 50 100 9000 30 100 50 25 0 0",
    "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB\nSwapTotal: 80 kB\nSwapFree: 30 kB",
    "proc/diskstats": "8 0 sda 1 0 7 0 1 0 9 0\n8 1 sda1 1 0 5 0 1 0 5 0",
    "sys/block/sda/size": "1",
}  # fmt: skip


def fake_nvml(answers=None, fields=None, count=1):
    """An NVML: `answers` by function, `fields` by (constant, scope) as (type, member, value) or an error code."""
    nvml = types.ModuleType("pynvml")
    nvml.NVMLError, nvml.shut_down = NvmlError, []
    kinds = ("DOUBLE", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG", "SIGNED_LONG_LONG", "SIGNED_INT")
    for number, kind in enumerate(kinds):
        setattr(nvml, f"NVML_VALUE_TYPE_{kind}", number)
    nvml.NVML_FI_DEV_MEMORY_TEMP, nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION = 82, 83
    nvml.NVML_FI_DEV_POWER_AVERAGE, nvml.NVML_FI_DEV_POWER_INSTANT = 185, 186
    nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM, nvml.NVML_TEMPERATURE_GPU = 1, 2, 0
    fields = FIELDS if fields is None else fields

    def field_values(handle, wanted):
        found = []
        for field in wanted:
            answer = fields.get(field, 3)
            code, kind, member, value = (answer, 0, "dVal", 0.0) if isinstance(answer, int) else (0, *answer)
            read = value() if callable(value) else value
            found.append(
                types.SimpleNamespace(nvmlReturn=code, valueType=kind, value=types.SimpleNamespace(**{member: read}))
            )
        return found

    nvml.nvmlInit, nvml.nvmlShutdown = lambda: None, lambda: nvml.shut_down.append(1)
    nvml.nvmlDeviceGetCount, nvml.nvmlDeviceGetHandleByIndex = lambda: count, lambda index: index
    nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName = lambda handle: f"GPU-{handle}", lambda handle: b"Fake"
    nvml.nvmlDeviceGetFieldValues = field_values
    for name, answer in {**CALLS, **(answers or {})}.items():
        setattr(nvml, name, _call(answer))
    return nvml


def _call(answer):
    def call(*_):
        if isinstance(answer, NvmlError):
            raise answer
        return answer

    return call


FIELDS = {
    (186, 0): (1, "uiVal", 431_250), (185, 0): (1, "uiVal", 402_000), (83, 0): (3, "ullVal", 7_500_000_123),
    (82, 0): (1, "uiVal", 61),
}  # fmt: skip
CALLS = {
    "nvmlDeviceGetClockInfo": 1980, "nvmlDeviceGetCurrentClocksEventReasons": 0x4 | 0x20,
    "nvmlDeviceGetPowerUsage": 410_000, "nvmlDeviceGetTemperature": 54,
    "nvmlDeviceGetUtilizationRates": types.SimpleNamespace(gpu=97, memory=43),
    "nvmlDeviceGetMemoryInfo": types.SimpleNamespace(used=2**30), "nvmlDeviceGetEnforcedPowerLimit": 700_000,
}  # fmt: skip
