"""Averages of client models: FedAvg to the bit, and per-client weights of sources from their losses."""

import numpy as np

from nearpeak.systems.federated.keyed_draws import Floats

PENALTY = 1.0
"""Strength of the penalty on sources with few samples."""
LEAST_SHARE = 0.1
"""Weight over that of an even share below which a client is no source."""
_STEPS = (1.0, 0.75, 0.5, 0.25, 0.0)
_LEAST_SPREAD = 1e-3


def weighted_mean(models: Floats, weights: Floats) -> Floats:
    """Return the weighted mean of models, summed one by one in their order: the same bits on every machine.

    Args:
        models: [clients, parameters].
        weights: of each client, such as its samples; they need not add up to 1.

    >>> weighted_mean(np.array([[1.0, 2.0], [3.0, 6.0]]), np.array([3.0, 1.0])).tolist()
    [1.5, 3.0]
    """
    total = 0.0
    for weight in weights.tolist():
        total += weight
    shares = weights / total
    mean = np.zeros(models.shape[1])
    for share, model in zip(shares, models, strict=True):
        mean += share * model
    return mean


def source_weights(losses: Floats, spreads: Floats, counts: Floats, *, penalty: float = PENALTY) -> Floats:
    """Return for each client the weights of the clients whose models make up its own, not normalised.

    An interpretation of Kesanapalli and Bharath, "Federated algorithm with Bayesian approach: Omni-Fedge", ICASSP 2021,
    of which only the abstract is public. Client i minimises sum_j w_ij L_j(theta_i) + penalty * sum_j w_ij^2 / n_j,
    where w_ij is proportional to exp(-(l_ij - l_ii)^2 / (2 s_i^2)) n_j: how likely its losses on j's data are under the
    distribution of those on its own. Between these weights and those of FedAvg, the mix in steps of a quarter with the
    least objective counts. Weights below a tenth of an even share are none.

    Args:
        losses: l_ij, mean loss of client i's model on the held-out samples of j.
        spreads: s_i, standard error of l_ii: the mean loss over as many samples of i's own data varies by so much.
        counts: n_j, training samples.

    >>> source_weights(np.ones((2, 2)), np.ones(2), np.array([30.0, 10.0])).tolist()
    [[30.0, 10.0], [30.0, 10.0]]
    >>> apart = np.array([[0.1, 9.0], [9.0, 0.1]])
    >>> source_weights(apart, np.full(2, 0.1), np.array([10.0, 10.0])).round(3).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    size = len(counts)
    own_loss = np.diag(losses)[:, None]
    likely = np.exp(-0.5 * ((losses - own_loss) / np.maximum(spreads, _LEAST_SPREAD)[:, None]) ** 2) * counts
    likely /= likely.sum(axis=1, keepdims=True)
    even, chosen = counts / counts.sum(), np.tile(counts, (size, 1))
    for client in range(size):
        mixes = [step * even + (1.0 - step) * likely[client] for step in _STEPS]
        goals = [float((mix * losses[client]).sum() + penalty * (mix * mix / counts).sum()) for mix in mixes]
        best = int(np.argmin(goals))
        if _STEPS[best] < 1.0:
            mix = mixes[best]
            chosen[client] = np.where(mix < LEAST_SHARE / size, 0.0, mix)
    return chosen
