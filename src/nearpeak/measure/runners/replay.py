"""Says recorded samples again, `replay:FILE`: for judging and reporting where nothing can run."""

from functools import cache
from pathlib import Path

from nearpeak.core.case import Case
from nearpeak.core.measurement import Measurement, Outcome, RunnerAbilities, Timing
from nearpeak.errors import SpecError
from nearpeak.measure.results import read_results


class Replay:
    """The measurements of a result file."""

    name = "replay"
    target = "recorded"
    abilities = RunnerAbilities(devices=("recorded",), argument="results.jsonl")

    def __init__(self, argument: str, timing: Timing) -> None:
        """Read the file."""
        del timing
        path = Path(argument)
        if not path.is_file():
            raise SpecError(f"replay: {argument}: not found; name a result file")
        self._file, self._known = argument, _by_case(path.resolve())

    def measure(self, case: Case) -> Measurement:
        """Return what was recorded of `case`; a case that was not recorded is unsupported."""
        found = self._known.get(case.digest)
        if found is not None:
            return found
        note = f"{self._file} holds no result of it"
        return Measurement(
            case=case,
            target=self.target,
            runner=f"replay:{self._file}",
            samples_s=(),
            outcome=Outcome.UNSUPPORTED,
            note=note,
        )


@cache
def _by_case(path: Path) -> dict[str, Measurement]:
    return {one.case.digest: one for one in read_results(path)}


RUNNER = Replay
