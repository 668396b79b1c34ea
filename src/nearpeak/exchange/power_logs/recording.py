"""Sensor recordings that `nearpeak telemetry --out` wrote: all readings, unchanged."""

from nearpeak.base.input_files import json_value
from nearpeak.core.runs.telemetry import Telemetry
from nearpeak.errors import SpecError
from nearpeak.exchange.telemetry_lines import RECORDING, telemetry_of


class Recording:
    """A JSON object of kind `telemetry`."""

    def recognises(self, head: str) -> bool:
        """Return whether a file that begins with `head` is a recording.

        >>> LOG.recognises('{"kind": "telemetry", "schema": 1,'), LOG.recognises('{"kind": "run"')
        (True, False)
        """
        return "".join(head.split()).startswith('{"kind":"telemetry"')

    def read(self, text: str, where: str, _interval_s: float | None) -> Telemetry:
        """Return the readings; energies are computed from them again."""
        try:
            record = json_value(text)
        except ValueError as error:
            raise SpecError(f"{where}: a recording that is cut off or no JSON: {error}") from None
        return telemetry_of(RECORDING.current(record, where), where)


LOG = Recording()
