"""Power of Jetson boards through NVIDIA's tegrastats, where the rails cannot be read directly."""

import math
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sources import Unavailable

_INTERVAL_MS = 100
_FIRST_S = 3.0


class Tegrastats:
    """The program runs beside the sampler; each of its lines is stamped when it arrives."""

    name, most_hz = "tegrastats", 1000.0 / _INTERVAL_MS

    def __init__(self, root: Path) -> None:
        """Start the program and wait for its first line, which says what it has."""
        from nearpeak.exchange.power_logs.tegrastats import channels_of, quantities_of

        if root != Path("/") or shutil.which("tegrastats") is None:
            raise Unavailable("there is no program tegrastats; it comes with JetPack")
        self._quantities = quantities_of
        self._process = subprocess.Popen(
            ["tegrastats", "--interval", str(_INTERVAL_MS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._rest = b""
        quantities = quantities_of(self._first_line())
        if not quantities:
            self.close()
            raise Unavailable("tegrastats says nothing that is known")
        self.channels: tuple[Channel, ...] = channels_of(quantities, "stamped when its line arrived")
        self._names = list(quantities)

    def _first_line(self) -> str:
        import select
        import time

        pipe, end_s = self._pipe(), time.monotonic() + _FIRST_S
        while b"\n" not in self._rest and time.monotonic() < end_s:
            if select.select([pipe], [], [], 0.1)[0] and not self._more(pipe):
                break
        os.set_blocking(pipe, False)
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _pipe(self) -> int:
        return self._process.stdout.fileno() if self._process.stdout else -1

    def _more(self, pipe: int) -> bool:
        try:
            part = os.read(pipe, 1 << 16)
        except BlockingIOError:
            return False
        self._rest += part
        return bool(part)

    def read(self) -> Sequence[float]:
        """Return the values of the newest line, NaN where none came since the last reading."""
        while self._more(self._pipe()):
            pass
        whole, _, self._rest = self._rest.rpartition(b"\n")
        quantities = self._quantities(whole.splitlines()[-1].decode("utf-8", "replace")) if whole else {}
        return [quantities.get(name, math.nan) for name in self._names]

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


SOURCE = Tegrastats
