"""Input recipe for point prompts of segmentation models."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe


def input_points(ask: Ask) -> Any:
    """Return (batch, 1, 1, 2): one point of one object."""
    return ask.floats(ask.batch, 1, 1, 2)


def input_labels(ask: Ask) -> Any:
    """Return (batch, 1, 1) of ones: the point is on the object."""
    return ask.filled(ask.batch, 1, 1)


RECIPE = Recipe(gives={"input_points": input_points, "input_labels": input_labels})
