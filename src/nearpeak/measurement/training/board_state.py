"""State of the board that a training run finds: power mode, JetPack, storage; modes change only when asked to."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from nearpeak.base.host_system import read_text
from nearpeak.errors import MeasureError, SpecError

_MODE = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
"""Line of a mode in /etc/nvpmodel.conf, as the header of that file documents it."""
_STATUS, _MODES = "var/lib/nvpmodel/status", "etc/nvpmodel.conf"
SETTLED_S = 30.0
"""Pause after a change of mode: clocks and temperatures settle."""


def power_modes(root: Path = Path("/")) -> dict[str, int]:
    """Return the power modes of a Jetson board by name; none elsewhere."""
    return {name: int(number) for number, name in _MODE.findall(read_text(root / _MODES))}


def present_mode(root: Path = Path("/")) -> str:
    """Return the power mode that is set: of a Jetson board its name, elsewhere the governor; empty where unknown."""
    number = re.search(r"pmode:(\d+)", read_text(root / _STATUS))
    if number is not None:
        names = {place: name for name, place in power_modes(root).items()}
        return names.get(int(number[1]), f"mode {int(number[1])}")
    return read_text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def board_facts(folder: Path, root: Path = Path("/")) -> dict[str, str]:
    """Return JetPack and the storage of a folder, as far as the system states them."""
    release = read_text(root / "etc/nv_tegra_release")
    jetpack = {"l4t": release.splitlines()[0].lstrip("# ")} if release else {}
    return {"storage": _storage(folder, root), **jetpack}


def _storage(folder: Path, root: Path) -> str:
    device = os.stat(folder).st_dev
    block = root / f"sys/dev/block/{os.major(device)}:{os.minor(device)}"
    if not block.exists():
        return "no block device"
    disk = block.resolve()
    disk = disk.parent if (disk / "partition").exists() else disk
    kind = {"0": "no rotation", "1": "rotating"}.get(read_text(disk / "queue/rotational"), "kind unknown")
    return ", ".join(filter(None, (disk.name, read_text(disk / "device/model"), kind)))


def change_mode(mode: str) -> None:
    """Set a power mode of a Jetson board by its own tool, and wait until it has settled.

    Raises:
        SpecError: the board has no such mode.
        MeasureError: the tool is missing or refuses, for example as the change needs a restart.
    """
    modes = power_modes()
    if mode not in modes:
        known = ", ".join(modes) or "none: this is no Jetson board"
        raise SpecError(f"train-bench: mode {mode!r} is not one of this board's ({known})")
    tool = shutil.which("nvpmodel")
    if tool is None:
        raise MeasureError(f"train-bench: mode {mode}: nvpmodel is not here, which sets it")
    words = [tool, "-m", str(modes[mode])]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", errors="replace", input="no\n", check=False)
    if done.returncode or present_mode() != mode:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["it printed nothing"]
        raise MeasureError(f"train-bench: mode {mode} was not set: {last[0]}; some modes need a restart of the board")
    time.sleep(SETTLED_S)
