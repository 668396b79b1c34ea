"""Synthetic samples of clients by their shares of labels: Gaussian classes, training and held-out parts."""

from dataclasses import dataclass

import numpy as np

from nearpeak.core.federated.client_fleet import ClientGroup, Fleet
from nearpeak.errors import SpecError
from nearpeak.systems.federated.client_columns import Ints
from nearpeak.systems.federated.keyed_draws import Floats, Keys

CLASSES, FEATURES, DISTANCE = 10, 16, 1.0
"""Classes without a table of shares, features, and standard deviation of class means over that of samples."""
MOST_SAMPLES, HELD_SAMPLES = 200, 50
"""Samples of a client that are trained on at most, and that are held out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientData:
    """Samples of one client."""

    samples: Floats
    """Training samples, one a row."""
    labels: Ints
    """Their classes."""
    held_samples: Floats
    """Held-out samples of the same distribution."""
    held_labels: Ints
    """Their classes."""


def class_count(fleet: Fleet) -> int:
    """Return the classes of a fleet's labels.

    Raises:
        SpecError: two tables of shares have different lengths.
    """
    lengths = sorted({len(group.label_ratio) for group in fleet.groups if group.label_ratio})
    if len(lengths) > 1:
        raise SpecError(f"{fleet.name}: labels have {lengths[0]} and {lengths[1]} entries; give all the same")
    return lengths[0] if lengths else CLASSES


def client_data(fleet: Fleet, keys: Keys, seed: int) -> list[ClientData]:
    """Return the samples of each client; a client's draws depend on its key, not on its place.

    >>> from nearpeak.core.federated.client_fleet import group_of
    >>> from nearpeak.systems.federated.keyed_draws import client_keys
    >>> fleet = Fleet(groups=(group_of("a", sample_count=30),))
    >>> (one,) = client_data(fleet, client_keys(("a",), (1,)), 0)
    >>> one.samples.shape, one.held_labels.shape
    ((30, 16), (50,))
    """
    classes = class_count(fleet)
    centres = DISTANCE * np.random.default_rng(seed).normal(size=(classes, FEATURES))
    groups = [group for group in fleet.groups for _ in range(group.client_count)]
    return [
        _one_client(group, centres, np.random.default_rng([seed, int(key)]))
        for group, key in zip(groups, keys, strict=True)
    ]


def _one_client(group: ClientGroup, centres: Floats, draw: np.random.Generator) -> ClientData:
    classes = len(centres)
    shares = np.array(group.label_ratio) if group.label_ratio else np.full(classes, 1.0 / classes)
    if group.concentration_ratio is not None:
        gamma = draw.standard_gamma(group.concentration_ratio, classes) + 1e-300
        shares = gamma / gamma.sum()

    def drawn(count: int) -> tuple[Floats, Ints]:
        labels = draw.choice(classes, size=count, p=shares)
        return centres[labels] + draw.normal(size=(count, FEATURES)), labels

    samples, labels = drawn(min(group.sample_count, MOST_SAMPLES))
    held_samples, held_labels = drawn(HELD_SAMPLES)
    return ClientData(samples=samples, labels=labels, held_samples=held_samples, held_labels=held_labels)
