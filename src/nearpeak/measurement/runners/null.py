"""Runner that executes nothing and reports a fixed time, for documents, tests and dry runs."""

from nearpeak.core.runs.measurement import Measurement, Outcome, Timing
from nearpeak.core.runs.runner_protocols import RunnerAbilities
from nearpeak.core.work.case import Case

FIXED_S = 1e-3
"""Time of every sample."""


class Null:
    """The runner that runs nothing."""

    name = "null"
    target = "null"
    abilities = RunnerAbilities(devices=("recorded",))

    def __init__(self, argument: str, timing: Timing) -> None:
        """Keep the number of samples."""
        del argument
        self._timing = timing

    def measure(self, case: Case) -> Measurement:
        """Return samples of one fixed time."""
        samples_s = (FIXED_S,) * max(10, self._timing.least_count)
        note = "nothing ran: every time is made up"
        return Measurement(
            case=case, target=self.target, runner=self.name, samples_s=samples_s, cpu_samples_s=samples_s,
            outcome=Outcome.CONVERGED, note=note,
        )  # fmt: skip


RUNNER = Null
