"""Two-layer NumPy classifier with float64 parameters in one vector, trained by simulated federated clients."""

from dataclasses import dataclass

import numpy as np

from nearpeak.systems.federated.client_columns import Ints
from nearpeak.systems.federated.keyed_draws import Floats

RATE = 0.1
"""Step of stochastic gradient descent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Extents of the classifier: inputs, hidden units with tanh, classes with softmax."""

    input_count: int
    """Features of a sample."""
    hidden_count: int
    """Hidden units."""
    class_count: int
    """Classes."""

    @property
    def parameter_count(self) -> int:
        """Length of the vector of parameters.

        >>> Layers(input_count=2, hidden_count=3, class_count=4).parameter_count
        25
        """
        return (self.input_count + 1) * self.hidden_count + (self.hidden_count + 1) * self.class_count

    def initial(self, seed: int) -> Floats:
        """Return random parameters with variance 1 over the inputs of each unit."""
        draw = np.random.default_rng(seed)
        first = draw.normal(size=(self.input_count + 1, self.hidden_count)) / self.input_count**0.5
        second = draw.normal(size=(self.hidden_count + 1, self.class_count)) / self.hidden_count**0.5
        return np.concatenate([first.ravel(), second.ravel()])

    def matrices(self, parameters: Floats) -> tuple[Floats, Floats]:
        """Return the weights of both layers, biases in the last row, as views."""
        split = (self.input_count + 1) * self.hidden_count
        return (
            parameters[:split].reshape(self.input_count + 1, self.hidden_count),
            parameters[split:].reshape(self.hidden_count + 1, self.class_count),
        )


def gradient(layers: Layers, parameters: Floats, samples: Floats, labels: Ints) -> Floats:
    """Return the gradient of the mean cross-entropy of a batch.

    >>> layers, draw = Layers(input_count=3, hidden_count=4, class_count=2), np.random.default_rng(0)
    >>> at, x, y = layers.initial(0), draw.normal(size=(5, 3)), np.array([0, 1, 1, 0, 1])
    >>> step = 1e-6 * np.eye(layers.parameter_count)[7]
    >>> slope = (losses(layers, at + step, x, y).mean() - losses(layers, at - step, x, y).mean()) / 2e-6
    >>> bool(abs(slope - gradient(layers, at, x, y)[7]) < 1e-8)
    True
    """
    first, second = layers.matrices(parameters)
    hidden = np.tanh(samples @ first[:-1] + first[-1])
    error = _shares(hidden @ second[:-1] + second[-1])
    error[np.arange(len(labels)), labels] -= 1.0
    error /= len(labels)
    back = (error @ second[:-1].T) * (1.0 - hidden * hidden)
    return np.concatenate([
        (samples.T @ back).ravel(), back.sum(axis=0), (hidden.T @ error).ravel(), error.sum(axis=0)
    ])  # fmt: skip


def trained(
    layers: Layers, parameters: Floats, samples: Floats, labels: Ints, *, epoch_count: int, batch_count: int, seed: int
) -> Floats:  # fmt: skip
    """Return the parameters after stochastic gradient descent in random order; whole-batch descent for one batch."""
    draw, count = np.random.default_rng(seed), len(labels)
    for _ in range(epoch_count):
        order = draw.permutation(count) if batch_count < count else np.arange(count)
        for start in range(0, count, batch_count):
            rows = order[start : start + batch_count]
            parameters = parameters - RATE * gradient(layers, parameters, samples[rows], labels[rows])
    return parameters


def losses(layers: Layers, parameters: Floats, samples: Floats, labels: Ints) -> Floats:
    """Return the cross-entropy of each sample."""
    shares = _shares(_outputs(layers, parameters, samples))
    each: Floats = -np.log(np.maximum(shares[np.arange(len(labels)), labels], 1e-300))
    return each


def accuracy(layers: Layers, parameters: Floats, samples: Floats, labels: Ints) -> float:
    """Return the share of samples whose class is right."""
    return float((_outputs(layers, parameters, samples).argmax(axis=1) == labels).mean())


def _outputs(layers: Layers, parameters: Floats, samples: Floats) -> Floats:
    first, second = layers.matrices(parameters)
    outputs: Floats = np.tanh(samples @ first[:-1] + first[-1]) @ second[:-1] + second[-1]
    return outputs


def _shares(outputs: Floats) -> Floats:
    powers = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares
