"""Training of a small model along the clock of a federation: which update counts when, and what accuracy follows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nearpeak.core.federated.federation_answer import LearningCurve
from nearpeak.core.federated.round_rules import ServerRule
from nearpeak.errors import SpecError
from nearpeak.systems.federated import small_classifier as network
from nearpeak.systems.federated.client_columns import Ints
from nearpeak.systems.federated.keyed_draws import Floats, Keys
from nearpeak.systems.federated.label_data import FEATURES, ClientData
from nearpeak.systems.federated.model_average import source_weights, weighted_mean
from nearpeak.systems.federated.round_clock import ESTIMATE_ROUNDS
from nearpeak.systems.federated.round_log import RoundLog
from nearpeak.systems.federated.small_classifier import Layers

MOST_UPDATES = 100_000
"""Client updates that are trained for real at most."""
HIDDEN = 16
"""Hidden units of the small model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """Clients with data, and how each trains."""

    data: Sequence[ClientData]
    """Samples of each client."""
    keys: Keys
    """Random key of each client; sums go in their order."""
    layers: Layers
    """The model."""
    epoch_count: int
    """Passes over the data in an update."""
    batch_count: int
    """Samples of a step."""
    seed: int = 0
    """Seed of the first model and of the order of samples."""

    def update(self, client: int, parameters: Floats, number: int) -> Floats:
        """Return what a client makes of a model in its update of that number."""
        client_data = self.data[client]
        if not len(client_data.labels):
            return parameters
        seed = (int(self.keys[client]) ^ (self.seed << 32) ^ number) % 2**63
        return network.trained(
            self.layers, parameters, client_data.samples, client_data.labels, epoch_count=self.epoch_count,
            batch_count=self.batch_count, seed=seed,
        )  # fmt: skip

    def counts(self, clients: Ints) -> Floats:
        """Return the samples of clients."""
        return np.array([len(self.data[client].labels) for client in clients], np.float64)

    def accuracy(self, parameters: Floats) -> float:
        """Return the mean accuracy over clients on their held-out samples.

        Args:
            parameters: one model for all, or a row for each client.
        """
        rows = np.broadcast_to(parameters, (len(self.data), self.layers.parameter_count))
        return float(np.mean([
            network.accuracy(self.layers, row, client_data.held_samples, client_data.held_labels)
            for row, client_data in zip(rows, self.data, strict=True)
        ]))  # fmt: skip


def learner_of(
    data: Sequence[ClientData], keys: Keys, classes: int, *, epoch_count: int, batch_count: int, seed: int = 0
) -> Learner:
    """Return a learner with the small model.

    >>> learner_of([], np.zeros(0, np.uint64), 10, epoch_count=1, batch_count=16).layers.parameter_count
    442
    """
    layers = Layers(input_count=FEATURES, hidden_count=HIDDEN, class_count=classes)
    return Learner(
        data=data, keys=keys, layers=layers, epoch_count=epoch_count, batch_count=batch_count, seed=seed
    )  # fmt: skip


def curve_of(
    learner: Learner, log: RoundLog, policy: str, server: ServerRule, *, goal_ratio: float
) -> LearningCurve:  # fmt: skip
    """Return the accuracy after each round of a log, and when it reaches the goal.

    Raises:
        SpecError: there are too many updates to train for real.
    """
    if len(log.update_client) > MOST_UPDATES:
        raise SpecError(
            f"--train: {len(log.update_client):,} updates; at most {MOST_UPDATES:,} are trained: fewer --rounds or "
            "--clients"
        )
    if policy == "omnifedge":
        models: Iterator[Floats] = own_models(learner, _sync_rounds(log))
    elif server.name == "sync":
        models = averaged_models(learner, _sync_rounds(log))
    else:
        models = _mixed_models(learner, log, server)
    curve = tuple(learner.accuracy(parameters) for parameters in models)
    reached = next((place for place, ratio in enumerate(curve, 1) if ratio >= goal_ratio), None)
    return LearningCurve(
        accuracy_ratio=curve, goal_ratio=goal_ratio, goal_round_count=reached,
        goal_s=None if reached is None else float(log.round_s[:reached].sum()),
    )  # fmt: skip


def averaged_models(learner: Learner, rounds: Sequence[Ints]) -> Iterator[Floats]:
    """Yield the model of FedAvg after each round: the mean of its clients' models, weighted by samples.

    Args:
        rounds: clients of each round that count.
    """
    model = learner.layers.initial(learner.seed)
    for number, members in enumerate(rounds):
        order = members[np.argsort(learner.keys[members])]
        counts = learner.counts(order)
        if counts.sum():
            updated = np.array([learner.update(client, model, number) for client in order])
            model = weighted_mean(updated, counts)
        yield model


def own_models(
    learner: Learner, rounds: Sequence[Ints], weights: Callable[[Floats, Ints], Floats] | None = None
) -> Iterator[Floats]:
    """Yield a model for each client after each round, the mean of its sources' models with weights of its own.

    Weights are estimated every ESTIMATE_ROUNDS rounds from the losses of the models as they were trained before the
    mean is taken; until the first estimate every client trains alone, as only models that know their own
    data tell other data apart.

    Args:
        rounds: clients of each round that count.
        weights: function that gives the weights of clients' models instead of the estimate.
    """
    size = len(learner.data)
    everyone = np.arange(size)
    models = np.tile(learner.layers.initial(learner.seed), (size, 1))
    pull = weights(models, everyone) if weights else np.eye(size)
    for number, members in enumerate(rounds):
        order = members[np.argsort(learner.keys[members])]
        for client in order:
            models[client] = learner.update(client, models[client], number)
        if (number + 1) % ESTIMATE_ROUNDS == 0:
            pulls = weights(models, everyone) if weights else _estimated(learner, models, order)
            pull = pull.copy()
            pull[order] = pulls[order]
        means = {}
        for client in order.tolist():
            sources = order[pull[client, order] > 0]
            if len(sources):  # else its own model stays
                means[client] = weighted_mean(models[sources], pull[client, sources])
        for client, mean in means.items():
            models[client] = mean
        yield models


def _estimated(learner: Learner, models: Floats, order: Ints) -> Floats:
    """Return the weights of sources among the clients of a round, from m² evaluations."""
    held = [(learner.data[client].held_samples, learner.data[client].held_labels) for client in order]
    each = [[network.losses(learner.layers, models[client], *pair) for pair in held] for client in order]
    means = np.array([[loss.mean() for loss in row] for row in each])
    spreads = np.array([row[place].std() / len(row[place]) ** 0.5 for place, row in enumerate(each)])
    counts = np.maximum(learner.counts(order), 1.0)
    full = np.zeros((len(learner.data), len(learner.data)))
    full[np.ix_(order, order)] = source_weights(means, spreads, counts)
    return full


def _sync_rounds(log: RoundLog) -> list[Ints]:
    ends = np.searchsorted(log.update_round, np.arange(len(log.round_s) + 1))
    return [log.update_client[start:stop] for start, stop in pairwise(ends)]


def _mixed_models(learner: Learner, log: RoundLog, server: ServerRule) -> Iterator[Floats]:
    """Yield the model of a server that does not wait after each round's worth of updates."""
    model = learner.layers.initial(learner.seed)
    versions, steps = {0: model}, list[Floats]()
    size = len(log.update_client) // len(log.round_s)
    needed = np.minimum.accumulate(log.update_base[::-1])[::-1].tolist()
    rows = zip(log.update_client.tolist(), log.update_base.tolist(), log.update_round.tolist(), strict=True)
    for number, (client, base, version) in enumerate(rows):
        start = versions[base]
        updated, weight = learner.update(client, start, number), server.weight(version - base)
        if server.name == "async":
            model = (1.0 - weight) * model + weight * updated
            versions[version + 1] = model
        else:
            steps.append(weight * (updated - start))
            if len(steps) == server.buffer_count:
                model = model + sum(steps) / len(steps)
                versions[version + 1], steps = model, []
        for old in [known for known in versions if known < needed[number]]:
            del versions[old]
        if (number + 1) % size == 0:
            yield model
