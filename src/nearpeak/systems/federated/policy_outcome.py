"""Outcomes of policies on a fleet: logs of several seeds summarised, each seed shared by all policies."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nearpeak.core.federated.client_fleet import ClientCost, Fleet
from nearpeak.core.federated.federation_answer import GroupOutcome, LearningCurve, PolicyOutcome, StragglerShare
from nearpeak.core.federated.round_rules import SelectionPolicy, ServerRule
from nearpeak.systems.federated.client_columns import Clients, clients
from nearpeak.systems.federated.round_clock import synchronous_rounds
from nearpeak.systems.federated.round_log import CAUSES, RoundLog, jain_index
from nearpeak.systems.federated.update_clock import update_events


class Federation(NamedTuple):
    """What is simulated: a fleet with its costs and a number of rounds."""

    fleet: Fleet
    """Clients."""
    costs: Mapping[str, ClientCost]
    """Time and power by group."""
    model_bytes: int
    """Bytes of the model in one direction."""
    round_count: int
    """Rounds."""
    asked_count: int
    """Clients of a round, at most."""

    def columns(self, end: str = "sample_s") -> Clients:
        """Return the clients as columns, at the expected time or one end of its interval."""
        return clients(self.fleet, self.costs, model_bytes=self.model_bytes, end=end)


def simulated_rounds(
    federation: Federation, policy: SelectionPolicy, server: ServerRule, *, seed: int = 0, end: str = "sample_s"
) -> RoundLog:  # fmt: skip
    """Return the log of a federation's rounds.

    >>> from nearpeak.core.federated.round_rules import policy_of, server_of
    >>> from nearpeak.systems.federated.client_columns import example
    >>> three = Federation(*example(), model_bytes=46_758_000, round_count=1, asked_count=3)
    >>> round(simulated_rounds(three, policy_of("deadline=20s"), server_of("sync")).total_s, 3)
    18.963
    """
    columns = federation.columns(end)
    size = min(federation.asked_count, columns.count)
    if server.name == "sync":
        return synchronous_rounds(columns, policy, round_count=federation.round_count, most=size, seed=seed)
    return update_events(columns, policy, server, round_count=federation.round_count, most=size, seed=seed)


def outcome_of(
    federation: Federation, policy: SelectionPolicy, server: ServerRule, logs: Sequence[RoundLog],
    first: Sequence[RoundLog], *, curve: LearningCurve | None = None,
) -> PolicyOutcome:  # fmt: skip
    """Return the outcome of a policy from its logs of several seeds.

    Args:
        first: logs of the policy to compare with, of the same seeds.
    """
    columns, log = federation.columns(), logs[0]
    rounds_s = np.concatenate([course.round_s for course in logs])
    energies_j = [float(course.energy_j(columns).sum()) / federation.round_count for course in logs]
    ratios = [course.total_s / other.total_s for course, other in zip(logs, first, strict=True)]
    ends = [1.0, *(simulated_rounds(federation, policy, server, end=end).round_s.mean() / max(log.round_s.mean(), 1e-12)
            for end in ("low_s", "high_s"))]  # fmt: skip
    quantiles = np.quantile(rounds_s, (0.5, 0.9, 0.99, 1.0)).tolist()
    return PolicyOutcome(
        policy=policy.words, server=server.words, round_mean_s=float(rounds_s.mean()),
        low_s=float(rounds_s.mean() * min(ends)), high_s=float(rounds_s.mean() * max(ends)),
        quantiles_s=(quantiles[0], quantiles[1], quantiles[2], quantiles[3]),
        total_s=float(np.mean([course.total_s for course in logs])),
        round_j=None if np.isnan(energies_j).any() else float(np.mean(energies_j)),
        round_bytes=round(int(log.down_bytes.sum() + log.up_bytes.sum()) / federation.round_count),
        updates_count=float(np.mean([len(course.update_client) for course in logs])) / federation.round_count,
        late_count=int(log.late_count.sum()), lost_count=int(log.lost_count.sum()),
        jain_ratio=float(np.mean([jain_index(course.counted_count) for course in logs])),
        staleness_count=float(np.mean([course.staleness.mean() if len(course.staleness) else 0.0 for course in logs])),
        estimate_ratio=log.estimate_s / log.total_s if log.total_s else 0.0,
        stragglers=_stragglers(federation.fleet, columns, log), groups=_groups(federation, columns, log),
        paired_ratio=(float(np.mean(ratios)), min(ratios), max(ratios)), curve=curve,
    )  # fmt: skip


def _stragglers(fleet: Fleet, columns: Clients, log: RoundLog) -> tuple[StragglerShare, ...]:
    """Return who ended the rounds and why, most frequent first."""
    known = log.straggler >= 0
    pairs = zip(columns.group[log.straggler[known]].tolist(), log.cause[known].tolist(), strict=True)
    counts = Counter(pairs)
    return tuple(
        StragglerShare(
            group=fleet.groups[group].name, cause=CAUSES[cause], share_ratio=count / int(known.sum())
        )
        for (group, cause), count in counts.most_common()
    )  # fmt: skip


def _groups(federation: Federation, columns: Clients, log: RoundLog) -> tuple[GroupOutcome, ...]:
    energy_j, rows = log.energy_j(columns), []
    for place, group in enumerate(federation.fleet.groups):
        in_group = columns.group == place
        first, client_j = int(np.argmax(in_group)), float(energy_j[in_group].mean())
        rows.append(GroupOutcome(
            name=group.name, target=group.target, client_count=group.client_count, down_s=float(columns.down_s[first]),
            compute_s=float(columns.compute_s[first]), up_s=float(columns.up_s[first]),
            asked_count=int(log.asked_count[in_group].sum()), counted_count=int(log.counted_count[in_group].sum()),
            client_j=None if np.isnan(client_j) else client_j, source=federation.costs[group.name].source,
        ))  # fmt: skip
    return tuple(rows)
