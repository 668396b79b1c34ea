"""Device clocks under Linux devfreq, such as GPU and memory controller of Jetson boards, and the GPU's load."""

from collections.abc import Iterator
from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sysfs_files import FileSource, NumberFile, by_number


def source(root: Path) -> FileSource:
    """Return one channel per scaled clock, and the load of an integrated GPU."""
    return FileSource("devfreq", 100.0, list(_files(root)), "the kernel scales no device's clock here")


def _files(root: Path) -> Iterator[tuple[Channel, NumberFile]]:
    for device in by_number(list((root / "sys/class/devfreq").glob("*"))):
        if (device / "cur_freq").exists():
            yield (
                Channel(
                    name=f"{device.name}.clock", unit="Hz", kind="instantaneous", resolution=1.0,
                    meaning="clock that the kernel has set",
                ),
                NumberFile(device / "cur_freq"),
            )  # fmt: skip
    for load in sorted({*root.glob("sys/devices/gpu.0/load"), *root.glob("sys/devices/platform/gpu.0/load")}):
        yield (
            Channel(
                name="gpu.load", unit="ratio", kind="mean", resolution=1e-3,
                meaning="share of busy time over a short window of the driver",
            ),
            NumberFile(load, 1e-3),
        )  # fmt: skip


SOURCE = source
