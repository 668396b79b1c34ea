"""Runner that returns recorded measurements, `replay:FILE`, without executing anything."""

from functools import cache
from pathlib import Path

from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.core.runs.runner_protocols import RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.measurement.result_file import read_results


class Replay:
    """The measurements of a result file."""

    name = "replay"
    target = "recorded"
    abilities = RunnerAbilities(devices=("recorded",), argument="results.jsonl")

    def __init__(self, argument: str, timing: Timing) -> None:
        """Read the file."""
        path = Path(argument)
        if not path.is_file():
            raise SpecError(f"replay: {argument}: not found; name a result file")
        self._file, self._cache, self._known = argument, timing.cache, _by_case(path.resolve())

    def measure(self, case: Case) -> Measurement:
        """Return the last recorded measurement of `case` with the requested cache state; unsupported if there is none.

        A record without a cache state, of a runner that only reports times, counts for both.
        """
        known = self._known.get(case.digest, ())
        matching = [
            measurement
            for measurement in known
            if measurement.method is None or measurement.method.cache == self._cache
        ]
        if matching:
            return matching[-1]
        states = " and ".join(
            dict.fromkeys(measurement.method.cache for measurement in known if measurement.method is not None)
        )
        other = f"it with --cache {states} alone, not {self._cache}"
        note = f"{self._file} holds {other if known else 'no result of it'}"
        return Measurement(
            case=case,
            target=self.target,
            runner=f"replay:{self._file}",
            samples_s=(),
            outcome=Outcome.UNSUPPORTED,
            note=note,
        )


@cache
def _by_case(path: Path) -> dict[str, tuple[Measurement, ...]]:
    measurements: dict[str, tuple[Measurement, ...]] = {}
    for measurement in read_results(path):
        measurements[measurement.case.digest] = (*measurements.get(measurement.case.digest, ()), measurement)
    return measurements


RUNNER = Replay
