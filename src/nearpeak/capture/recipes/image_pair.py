"""Pairs of images between which points are matched."""

from nearpeak.capture._ask import Ask, Recipe
from nearpeak.capture.recipes.image import size


def pixel_values(ask: Ask) -> object:
    """Return (batch, 2, colours, height, width)."""
    return ask.floats(ask.batch, 2, 3, *size(ask))


RECIPE = Recipe(
    gives={"pixel_values": pixel_values}, model_types=frozenset({"efficientloftr", "lightglue", "superglue"})
)
