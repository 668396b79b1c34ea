"""Output of AMD's `rocm-smi --csv`, one table or several in a row: a line per card, units in the column names."""

import re

from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.exchange import log_columns

_UNIT = re.compile(r"\s*\((W|C|%|B|MHz|Mhz)\)$")


class RocmSmi:
    """The header is `device,<quantity> (<unit>),…`; it comes again where the tool ran in a loop."""

    def recognises(self, head: str) -> bool:
        r"""Return whether the first line begins with the column of cards and names a quantity with its unit.

        >>> LOG.recognises("device,GPU use (%)\ncard0,3\n"), LOG.recognises("device,name\n")
        (True, False)
        """
        cells = head.partition("\n")[0].strip().split(",")
        return cells[0] == "device" and any(_UNIT.search(cell) for cell in cells[1:])

    def read(self, text: str, where: str, interval_s: float | None) -> Telemetry:
        """Return all quantities with a unit of all cards."""
        table = list(log_columns.rows_of(text, where))
        rows = [(place, cells["device"], cells) for place, cells in table if cells["device"] != "device"]
        header = list(rows[0][2]) if rows else []
        units = {name: match[1] for name in header if (match := _UNIT.search(name))}
        quantities = {
            name: (_UNIT.sub("", name).strip(), *log_columns.ENTRY_UNITS[unit]) for name, unit in units.items()
        }
        rest = [name for name in header[1:] if name not in quantities]
        return log_columns.device_telemetry(
            "rocm_smi", rows, quantities, lambda count: log_columns.interval_times_ns(count, interval_s, where), where,
            meaning="as rocm-smi prints it", note=f"columns without a known unit: {', '.join(rest)}" if rest else "",
        )  # fmt: skip


LOG = RocmSmi()
