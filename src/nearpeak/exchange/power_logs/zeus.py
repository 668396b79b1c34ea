"""CSV measurement windows of Zeus: start, name, duration, and energy per GPU."""

import re

from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.exchange import log_columns


class Zeus:
    """A CSV file of `start_time,window_name,elapsed_time,gpu0_energy,…`."""

    recognises = staticmethod(log_columns.columns_recognised("start_time", "window_name", "elapsed_time"))

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return each window as a phase with the energy of each GPU."""
        windows = []
        for place, row in log_columns.rows_of(text, where):
            start_s, length_s = (log_columns.number(row[name], place, name) for name in ("start_time", "elapsed_time"))
            names = [name for name in row if re.fullmatch(r"gpu\d+_energy", name)]
            energies = {name[: -len("_energy")]: log_columns.number(row[name], place, name) for name in names}
            windows.append((row["window_name"], start_s, length_s, energies))
        return log_columns.windows_telemetry("zeus", windows, where, "energy of a window, as Zeus found it")


LOG = Zeus()
