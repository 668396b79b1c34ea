"""Plans of federated learning: client times from predicted training steps, policies compared, fleets changed."""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.core.federated.client_fleet import ClientCost, ClientGroup, Fleet
from nearpeak.core.federated.federation_answer import FleetChange, LearningCurve, PlannedFederation, PolicyOutcome
from nearpeak.core.federated.round_rules import SelectionPolicy, ServerRule
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.systems.federated.policy_outcome import Federation
    from nearpeak.systems.federated.round_log import RoundLog

RANDOM, SYNCHRONOUS = SelectionPolicy(name="random"), ServerRule()
USUAL_CLIENTS = 10
"""Clients of a round where the user states none."""
MOST_EVENTS = 50_000_000
"""Clients times rounds that are simulated at most."""


def plan_federation(
    fleet: Fleet | Path, model: str | Workload = "", *, policy: SelectionPolicy = RANDOM,
    server: ServerRule = SYNCHRONOUS, against: Sequence[SelectionPolicy] = (), round_count: int = 100,
    asked_count: int = 0, model_bytes: int = 0, seeds: tuple[int, ...] = (0, 1, 2), what_if: Sequence[str] = (),
    goal_ratio: float | None = None,
) -> PlannedFederation:  # fmt: skip
    """Return what rounds of a federation take under a policy and others, and which change of the fleet helps.

    Args:
        fleet: clients, or a fleet file.
        model: a model name, whose training step is captured, a saved training step, or empty where every client states
            its times and `model_bytes` is given.
        asked_count: clients of a round, at most; 10 or all of a smaller fleet without it.
        goal_ratio: accuracy to which a small model is trained for real along the clock; not trained without it.
        what_if: kinds of changes to try, `mode`, `link`, `drop`, `add COUNT BOARD[:MODE]`.

    Raises:
        SpecError: a client has no time, or more is asked than can be simulated.
    """
    from nearpeak.systems.federated.fleet_changes import cheapest_change
    from nearpeak.systems.federated.fleet_file import read_fleet
    from nearpeak.systems.federated.policy_outcome import Federation, outcome_of, simulated_rounds

    fleet = read_fleet(fleet) if isinstance(fleet, Path) else fleet
    if round_count < 1 or fleet.client_count * round_count > MOST_EVENTS:
        raise SpecError(
            f"plan federated: {fleet.client_count:,} clients × {round_count:,} rounds; 1 to {MOST_EVENTS:,} are "
            "simulated"
        )
    workload = _training_step(model, fleet) if isinstance(model, str) and model else model or None
    weights = () if workload is None else (use.bytes for use in workload.buffers if use.kind == "weight")
    size = model_bytes or sum(weights)
    if not size:
        raise SpecError("plan federated: the bytes of the model are unknown; give --model, or --model-bytes '46.8 MB'")
    clients_per_round = min(asked_count or USUAL_CLIENTS, fleet.client_count)
    federation = Federation(fleet, client_costs(fleet, workload), size, round_count, clients_per_round)
    outcomes: list[PolicyOutcome] = []
    first: list[RoundLog] = []
    for rule in (policy, *against):
        logs = [simulated_rounds(federation, rule, server, seed=seed) for seed in seeds]
        first = first or logs
        curve = None if goal_ratio is None else _curve(federation, rule, server, logs[0], goal_ratio)
        outcomes.append(outcome_of(federation, rule, server, logs, first, curve=curve))
    changes = tuple(
        sorted(_changes(federation, what_if, workload, policy, server, outcomes[0]), key=lambda row: row.round_mean_s)
    )  # fmt: skip
    return PlannedFederation(
        fleet=fleet.name, model=getattr(workload, "name", "stated times"), model_bytes=size,
        client_count=fleet.client_count, asked_count=clients_per_round, round_count=round_count,
        epoch_count=fleet.epoch_count,
        outcomes=tuple(outcomes), changes=changes, cheapest=cheapest_change(changes, outcomes[0].round_mean_s),
        seeds=seeds, notes=tuple(_notes(fleet, is_trained=goal_ratio is not None)),
    )  # fmt: skip


def client_costs(fleet: Fleet, workload: Workload | None) -> dict[str, ClientCost]:
    """Return time and power of each group: stated ones first, else those of the training step on board and mode.

    Raises:
        SpecError: a group states no time and there is no training step, or its board or mode is unknown.

    >>> from nearpeak.systems.federated.fleet_file import parse_fleet
    >>> client = {"board": "jetson_nano", "samples": 8, "down": "1 MB/s", "up": "1 MB/s", "sample_time": "2 ms"}
    >>> client_costs(parse_fleet("home", {"client": [client]}), None)["jetson_nano"].sample_s
    0.002
    """
    return {group.name: _cost(group, fleet.batch_count, workload) for group in fleet.groups}


def _cost(group: ClientGroup, batch: int, workload: Workload | None) -> ClientCost:
    if group.sample_s is not None:
        return ClientCost(
            sample_s=group.sample_s, low_s=group.sample_s, high_s=group.sample_s, busy_w=group.busy_w,
            idle_w=group.idle_w, source="stated in the fleet file",
        )  # fmt: skip
    if workload is None:
        raise SpecError(f"client {group.name}: has no sample_time; state it, or name a model with --model")
    if workload.step != "train":
        raise SpecError(f"{workload.name}: is a {workload.step} step; clients train: capture it with --step train")
    stated = workload.origin.get("batch", "")
    batch = int(stated) if stated.isdecimal() and int(stated) else batch
    step = _predicted_step(group.target, Same(workload))
    return ClientCost(
        sample_s=step.sample_s / batch, low_s=step.low_s / batch, high_s=step.high_s / batch,
        busy_w=step.busy_w if group.busy_w is None else group.busy_w,
        idle_w=step.idle_w if group.idle_w is None else group.idle_w, source=step.source,
    )  # fmt: skip


@lru_cache(maxsize=512)  # what-if changes ask for the same boards again
def _predicted_step(target: str, workload: "Same[Workload]") -> ClientCost:
    """Return time and power of a whole training step on a board in a mode, as its source submits it."""
    from nearpeak.api.achievable_time import predict
    from nearpeak.api.submitted_step import submitted_step
    from nearpeak.targets import target_of

    device = target_of(target)
    time, step = submitted_step(workload.held, device), predict(workload.held, device)
    drawn_j = None if step.energy is None else step.energy.energy_j
    energy_j, mode = (time.energy_j, time.mode) if isinstance(time, ExecutionTime) else (drawn_j, "in order")
    return ClientCost(
        sample_s=time.time_s, low_s=time.low_s, high_s=time.high_s,
        busy_w=None if energy_j is None else energy_j / time.time_s,
        idle_w=None if step.energy is None else step.energy.parts_j.get("idle", 0.0) / step.time_s,
        source=f"predicted training step of {workload.held.name} on {target}, {mode}",
    )  # fmt: skip


def _training_step(model: str, fleet: Fleet) -> Workload:
    """Return the captured training step of a model at the fleet's batch; `resnet18` stands for `resnet-18`."""
    from nearpeak.api.questions import capture
    from nearpeak.frontends.huggingface.published_models import MODELS

    if model.endswith(".json"):
        return capture(model)
    bare = {name.replace("-", ""): name for name in MODELS.names()}
    name = bare.get(model.replace("-", "").replace("_", "").lower(), model)
    return capture(name, step="train", batch=fleet.batch_count)


def _changes(
    federation: "Federation", kinds: Sequence[str], workload: Workload | None, policy: SelectionPolicy,
    server: ServerRule, usual: PolicyOutcome,
) -> Iterator[FleetChange]:  # fmt: skip
    """Yield changes of a fleet with the rounds of its first seed; a mode that cannot be predicted is left out."""
    from nearpeak.systems.federated.fleet_changes import fleet_changes
    from nearpeak.systems.federated.policy_outcome import simulated_rounds
    from nearpeak.targets import target_of

    for kind in kinds:
        for words, fleet in fleet_changes(federation.fleet, kind, lambda board: target_of(board).partitions):
            changed = federation._replace(fleet=fleet, costs=client_costs(fleet, workload))
            log = simulated_rounds(changed, policy, server)
            round_j = float(log.energy_j(changed.columns()).sum()) / federation.round_count
            known = not math.isnan(round_j) and usual.round_j is not None
            yield FleetChange(
                words=words, round_mean_s=float(log.round_s.mean()), round_j=round_j if known else None,
                added_j=round_j - (usual.round_j or 0.0) if known else None,
            )  # fmt: skip


def _curve(
    federation: "Federation", policy: SelectionPolicy, server: ServerRule, log: "RoundLog", goal_ratio: float
) -> LearningCurve:  # fmt: skip
    """Return the accuracy of the small model along a log."""
    from nearpeak.systems.federated.label_data import class_count, client_data
    from nearpeak.systems.federated.learning_curve import curve_of, learner_of

    fleet, keys = federation.fleet, federation.columns().keys
    learner = learner_of(
        client_data(fleet, keys, 0), keys, class_count(fleet), epoch_count=fleet.epoch_count,
        batch_count=fleet.batch_count,
    )  # fmt: skip
    return curve_of(learner, log, policy.name, server, goal_ratio=goal_ratio)


def _notes(fleet: Fleet, *, is_trained: bool) -> list[str]:
    """Return the assumptions of a plan, a sentence each."""
    notes = [
        "A client's round is receiving, training and sending, one after the other; energy is that of clients that take "
        "part, with idle power for links and waiting, and without the radio.",
        "Links do not share bandwidth, and the server takes no time.",
    ]
    if any(group.spread_ratio == 0 for group in fleet.groups):
        notes.append("Clients without a stated spread take the same time in each round.")
    if is_trained:
        notes.append(
            "Accuracy is that of a small classifier, trained for real on synthetic samples with the fleet's labels, at "
            "most 200 a client, and tested on held-out samples of all clients; it compares policies, not models."
        )
    return notes
