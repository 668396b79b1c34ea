"""Job kind `simulate`: simulates one case on a device that may not exist."""

from collections.abc import Mapping
from typing import Any

from nearpeak.farm.kinds import Kind, Payload, case_in, need


def _check(payload: Payload) -> None:
    from nearpeak.targets import target_of

    need(payload, "simulate", case=dict, target=str)
    case_in(payload, "simulate")
    target_of(payload["target"])


def _run(payload: Payload) -> Mapping[str, Any]:
    from nearpeak.simulation.machine_units import PS_PER_S
    from nearpeak.simulation.step_simulation import simulate_case
    from nearpeak.targets import target_of

    simulation = simulate_case(case_in(payload, "simulate"), target_of(payload["target"]))
    return {"time_s": simulation.end_ps / PS_PER_S, "cta_count": simulation.cta_count}


KIND = Kind(name="simulate", pool="slot", check=_check, run=_run, preload=("nearpeak.simulation.step_simulation",))
