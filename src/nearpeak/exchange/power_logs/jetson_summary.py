"""CSV summaries of Jetson runs: duration, mean power and energy per run, without timestamps."""

from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange import log_columns

_AGREE_RATIO = 1e-6


class JetsonSummary:
    """A CSV file with `tag,measure_seconds_actual,avg_power_w,energy_total_j`; rows follow one another."""

    recognises = staticmethod(
        log_columns.columns_recognised("tag", "measure_seconds_actual", "avg_power_w", "energy_total_j")
    )

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return each row as a phase with its energy.

        Raises:
            SpecError: the energy of a row is not its mean power times its time.
        """
        windows, start_s = [], 0.0
        for place, row in log_columns.rows_of(text, where):
            length_s, power_w, energy_j = (
                log_columns.number(row[name], place, name)
                for name in ("measure_seconds_actual", "avg_power_w", "energy_total_j")
            )
            if abs(energy_j - power_w * length_s) > _AGREE_RATIO * abs(energy_j):
                raise SpecError(f"{place}: energy_total_j is {energy_j}, avg_power_w × seconds is {power_w * length_s}")
            windows.append((row["tag"], start_s, length_s, {"board": energy_j}))
            start_s += length_s + 1.0
        return log_columns.windows_telemetry("jetson_summary", windows, where, "mean power times time of a run")


LOG = JetsonSummary()
