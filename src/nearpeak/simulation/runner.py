"""Runner of cases on a simulated device, named `sim:h200_sxm`, for suites and judgements."""

from nearpeak.core.runs.measurement import Environment, Measurement, Outcome, Timing
from nearpeak.core.runs.runner_protocols import RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.simulation.machine_units import PS_PER_S


class Sim:
    """A device that is simulated: one exact time per case, and no spread."""

    name = "sim"
    abilities = RunnerAbilities(devices=("simulated",), argument="TARGET")

    def __init__(self, argument: str, timing: Timing) -> None:
        """Read the target, with its what-if edits behind plus signs."""
        from nearpeak.targets import target_of

        if not argument:
            raise SpecError("sim: names no target; e.g. sim:h200_sxm")
        name, *edits = argument.split("+")
        self._device, self._count = target_of(name, edits), timing.least_count
        self.target = self._device.name

    def measure(self, case: Case) -> Measurement:
        """Return the simulated time of `case`, once per requested sample; a case without a lowering is unsupported."""
        from nearpeak.simulation.step_simulation import simulate_case

        environment = Environment(device=f"simulated {self._device.title}")
        try:
            samples_s = (simulate_case(case, self._device).end_ps / PS_PER_S,) * self._count
        except NearpeakError as error:
            return Measurement(
                case=case, target=self.target, runner=f"sim:{self.target}", samples_s=(), note=str(error),
                outcome=Outcome.UNSUPPORTED, environment=environment,
            )  # fmt: skip
        return Measurement(
            case=case, target=self.target, runner=f"sim:{self.target}", samples_s=samples_s, environment=environment,
            outcome=Outcome.CONVERGED, note="simulated: no device ran it",
        )  # fmt: skip


RUNNER = Sim
