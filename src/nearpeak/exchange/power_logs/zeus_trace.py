"""CSV power traces of Zeus: epoch time and mean power by model, batch and power limit, without timestamps."""

from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.exchange import log_columns

_NAMES = ("dataset", "network", "batch_size", "optimizer", "power_limit")


class ZeusTrace:
    """A CSV file with `power_limit,time_per_epoch,average_power`; its rows are laid out one after the other."""

    recognises = staticmethod(log_columns.columns_recognised(*_NAMES, "time_per_epoch", "average_power"))

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return each row as a phase; its energy is mean power times time."""
        windows, start_s = [], 0.0
        for place, row in log_columns.rows_of(text, where):
            length_s, power_w = (
                log_columns.number(row[name], place, name) for name in ("time_per_epoch", "average_power")
            )
            windows.append(("/".join(row[name] for name in _NAMES), start_s, length_s, {"gpu": power_w * length_s}))
            start_s += length_s + 1.0
        return log_columns.windows_telemetry("zeus_trace", windows, where, "mean power times time of an epoch")


LOG = ZeusTrace()
