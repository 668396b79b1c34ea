"""Models trained along the clock: averages to the bit, limits of per-client weights, planted clusters, servers."""

from dataclasses import replace

import numpy as np
import pytest

from nearpeak.core.federated.client_fleet import Fleet, group_of
from nearpeak.core.federated.round_rules import policy_of, server_of
from nearpeak.errors import SpecError
from nearpeak.systems.federated import small_classifier as network
from nearpeak.systems.federated.keyed_draws import client_keys
from nearpeak.systems.federated.label_data import class_count, client_data
from nearpeak.systems.federated.learning_curve import (
    _estimated,
    averaged_models,
    curve_of,
    learner_of,
    own_models,
)
from nearpeak.systems.federated.model_average import weighted_mean
from nearpeak.systems.federated.policy_outcome import Federation, simulated_rounds

from .test_round_clock import unlike

CLIENTS = 8


def learner(samples=(40, 60, 20, 80), *, epochs=1, batch=16, opposite=False, alpha=None):
    """Clients of four groups of two; every second one has its labels turned around where they are opposite."""
    groups = tuple(
        replace(group_of(f"b{place}", sample_count=count), client_count=2, concentration_ratio=alpha)
        for place, count in enumerate(samples)
    )
    keys = client_keys(tuple(group.name for group in groups), (2,) * len(groups))
    data = client_data(Fleet(groups=groups), keys, 0)
    if opposite:
        data = [
            replace(own, labels=9 - own.labels, held_labels=9 - own.held_labels) if place % 2 else own
            for place, own in enumerate(data)
        ]
    return learner_of(data, keys, 10, epoch_count=epochs, batch_count=batch)


def last(models):
    return [model.copy() for model in models][-1]


def everyone(count):
    return [np.arange(CLIENTS)] * count


def test_the_mean_of_models_is_that_of_a_plain_loop_to_the_bit():
    draw = np.random.default_rng(0)
    models, counts = draw.normal(size=(5, 7)), np.array([3.0, 1.0, 2.0, 7.0, 5.0])
    mean = [0.0] * 7
    for model, count in zip(models.tolist(), counts.tolist(), strict=True):
        mean = [total + count / 18.0 * value for total, value in zip(mean, model, strict=True)]
    assert weighted_mean(models, counts).tolist() == mean


def test_golden_weights_are_a_half_a_third_and_a_sixth():
    assert weighted_mean(np.eye(3), np.array([600.0, 400.0, 200.0])).tolist() == [600 / 1200, 400 / 1200, 200 / 1200]


def test_one_client_is_local_training_to_the_bit():
    one = learner()
    model = one.layers.initial(0)
    for number in range(3):
        model = one.update(5, model, number)
    assert last(averaged_models(one, [np.array([5])] * 3)).tolist() == model.tolist()


def test_equal_clients_with_one_step_are_one_large_batch():
    one = learner((50, 50, 50, 50), batch=10**6)
    whole = [np.concatenate(parts) for parts in zip(*((own.samples, own.labels) for own in one.data), strict=True)]
    model = one.layers.initial(0)
    for _ in range(3):
        model = network.trained(one.layers, model, *whole, epoch_count=1, batch_count=10**6, seed=0)
    assert last(averaged_models(one, everyone(3))) == pytest.approx(model, rel=1e-12, abs=1e-13)


def test_weights_of_samples_are_fedavg_and_those_of_the_identity_local_training_to_the_bit():
    one = learner()
    counts = one.counts(np.arange(CLIENTS))
    averaged = last(averaged_models(one, everyone(4)))
    models = last(own_models(one, everyone(4), lambda *_: np.tile(counts, (CLIENTS, 1))))
    assert all(row.tolist() == averaged.tolist() for row in models)
    local = last(own_models(one, everyone(4), lambda *_: np.eye(CLIENTS)))
    for client in range(CLIENTS):
        model = one.layers.initial(0)
        for number in range(4):
            model = one.update(client, model, number)
        assert local[client].tolist() == model.tolist()


def test_planted_clusters_are_found_and_pay():
    one = learner(opposite=True, epochs=2)
    same = np.add.outer(np.arange(CLIENTS), np.arange(CLIENTS)) % 2 == 0
    masses = []

    def watched(models, _):
        pull = _estimated(one, models, np.argsort(one.keys))
        masses.append((pull / pull.sum(axis=1, keepdims=True) * same).sum(axis=1).min())
        return pull

    last(own_models(one, everyone(25), watched))
    assert masses[5] >= 0.9  # the fifth estimate; the first one is made of models that nobody has trained
    own = one.accuracy(last(own_models(one, everyone(41))))
    assert own >= one.accuracy(last(averaged_models(one, everyone(41)))) + 0.10
    assert own >= one.accuracy(last(own_models(one, everyone(41), lambda *_: np.eye(CLIENTS)))) + 0.02


@pytest.mark.parametrize(("policy", "server"), [
    ("random", "sync"), ("omnifedge", "sync"), ("random", "async"), ("random", "buffered=3"),
])  # fmt: skip
def test_accuracy_rises_under_every_server_and_permuted_clients_change_nothing(policy, server):
    fleet, costs = unlike(8, count=10)
    fleet = replace(fleet, groups=tuple(replace(group, concentration_ratio=1.0) for group in fleet.groups))
    curves = []
    for one in (fleet, replace(fleet, groups=fleet.groups[::-1])):
        federation = Federation(one, costs, 10**6, 12, 5)
        log = simulated_rounds(federation, policy_of(policy), server_of(server))
        keys = federation.columns().keys
        same = learner_of(client_data(one, keys, 0), keys, class_count(one), epoch_count=1, batch_count=16)
        curves.append(curve_of(same, log, policy, server_of(server), goal_ratio=0.4))
    first, second = curves
    assert len(first.accuracy_ratio) == 12
    assert first.accuracy_ratio[-1] > 0.5 > first.accuracy_ratio[0]
    assert first.accuracy_ratio == pytest.approx(second.accuracy_ratio, abs=1e-12)
    assert first.goal_round_count == second.goal_round_count
    assert first.goal_s > 0


def test_shares_of_labels_are_those_of_the_fleet():
    groups = (replace(group_of("a", sample_count=200), label_ratio=(0.5, 0.5, 0.0)),
              replace(group_of("b", sample_count=200), concentration_ratio=0.05))  # fmt: skip
    fleet = Fleet(groups=groups)
    table, skewed = client_data(fleet, client_keys(("a", "b"), (1, 1)), 0)
    assert class_count(fleet) == 3
    assert set(table.labels.tolist()) == {0, 1}
    assert np.bincount(skewed.labels).max() > 150
    wrong = replace(fleet, groups=(groups[0], replace(groups[1], label_ratio=(1.0,))))
    with pytest.raises(SpecError, match="1 and 3 entries"):
        class_count(wrong)
