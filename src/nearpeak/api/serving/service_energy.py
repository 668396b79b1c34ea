"""Power of a serving deployment: predicted energy of the kernels of typical steps, plus idle power of the boards."""

from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.api.serving.service_pools import PooledService
from nearpeak.api.serving.service_runs import Service
from nearpeak.api.serving.serving_plan import step_table
from nearpeak.base.identity_key import Same
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.systems.serving.adapter_calls import adapter_calls, step_adapter_count
from nearpeak.systems.serving.disaggregation import DisaggregatedOutcome
from nearpeak.systems.serving.serving_outcome import Outcome
from nearpeak.systems.serving.step_calls import StepCall, decode_calls, prompt_calls, row_calls, token_calls
from nearpeak.systems.serving.step_latency import StepTable

DECODES = (1, 4, 16, 64, 256)
"""Decoding sequences of the steps whose power is predicted; between them it is linear in their logarithm."""
PROMPTS = (64, 512, 4096)
"""Likewise new tokens of prompts."""


def run_power_w(service: Service, outcome: Outcome) -> float | None:
    """Return the mean power of one device over a run, idle time included; none where it cannot be predicted."""
    from nearpeak.prediction.power.predicted_energy import has_power
    from nearpeak.systems.serving.serving_cost import run_energy_j

    if not has_power(service.target):
        return None
    source = step_table(service.shape, service.target, service.question.costs, service.layout)
    inputs, outputs = service.question.mean_lengths()
    decode_w, prompt_w, idle_w = _powers(source, Same(service.target), round(inputs + outputs / 2))

    def busy_w(prompts: Any, decodes: Any, _caches: Any) -> Any:
        of_prompts = np.interp(np.log(np.maximum(prompts, 1.0)), np.log(PROMPTS), prompt_w)
        of_decodes = np.interp(np.log(np.maximum(decodes, 1.0)), np.log(DECODES), decode_w)
        return np.where(prompts > 0, of_prompts, of_decodes)

    return run_energy_j(outcome, busy_w, idle_w=idle_w) / float(outcome.rented_s.sum())


def pooled_power_w(service: PooledService, pools_outcome: DisaggregatedOutcome) -> float | None:
    """Return the mean power of one device of both pools over a run; none where it cannot be predicted.

    Each pool draws by its own steps; one that has ended, or gets nothing, idles until the other has.
    """
    from nearpeak.prediction.models.power import idle_w
    from nearpeak.prediction.power.predicted_energy import has_power

    if not has_power(service.prompts.target):
        return None
    length_s = max(outcome.end_s for outcome in (pools_outcome.prompts, pools_outcome.decodes) if outcome is not None)
    energy_j = 0.0
    for pool, outcome in ((service.prompts, pools_outcome.prompts), (service.decodes, pools_outcome.decodes)):
        busy_s = 0.0 if outcome is None else float(outcome.rented_s.sum())
        idle_s = max(pool.replica_count * length_s - busy_s, 0.0)
        busy_w = 0.0 if outcome is None else run_power_w(pool, outcome) or 0.0
        energy_j += pool.layout.device_count * (busy_w * busy_s + idle_w(pool.target) * idle_s)
    return energy_j / (length_s * service.device_count)


@lru_cache(maxsize=64)
def _powers(source: StepTable, target: "Same[Target]", context: int) -> tuple[list[float], list[float], float]:
    """Return the power of a device in steps of decoding sequences, in steps of prompts, and between steps.

    Collectives, whose energy is not modelled, draw what the other kernels do in the mean; while the device waits for
    the host it draws its idle power.
    """
    from nearpeak.prediction.case_prediction import predict_case
    from nearpeak.prediction.models.power import idle_w

    rank, board = source.rank, target.held
    rest_w = idle_w(board)
    known: dict[Case, tuple[float, float | None]] = {}

    def power_w(calls: list[StepCall], batch: StepBatch) -> float:
        busy_s = energy_j = 0.0
        for call in calls:
            if call.case not in known:
                prediction = predict_case(call.case, board)
                known[call.case] = prediction.time_s, prediction.energy_j
            time_s, joules = known[call.case]
            if joules is not None:
                busy_s += call.times * time_s
                energy_j += call.times * joules
        seconds = source.seconds(batch)
        device_w = energy_j / busy_s if busy_s else rest_w
        return (device_w * seconds.device_s + rest_w * (seconds.time_s - seconds.device_s)) / seconds.time_s

    groups = rank.layout.attention_dp
    decode_w = [
        power_w([*token_calls(rank, count), *row_calls(rank, count),
                 *decode_calls(rank, max(count // groups, 1), max(count // groups, 1) * context),
                 *adapter_calls(rank, max(count // groups, 1), step_adapter_count(rank.layout, count // groups))],
                StepBatch.of_decode(count, kv_count=count * context)) for count in DECODES
    ]  # fmt: skip
    prompt_w = [
        power_w([*token_calls(rank, count, is_prompt=True), *row_calls(rank, 1),
                 *prompt_calls(rank, count, (count + 1) / 2), *adapter_calls(rank, count, 1)],
                StepBatch.of_prompt(count)) for count in PROMPTS
    ]  # fmt: skip
    return decode_w, prompt_w, rest_w
