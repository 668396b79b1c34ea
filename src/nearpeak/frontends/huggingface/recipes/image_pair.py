"""Input recipe for image pairs between which keypoints are matched."""

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import size


def pixel_values(ask: Ask) -> object:
    """Return (batch, 2, colours, height, width)."""
    return ask.floats(ask.batch, 2, 3, *size(ask))


RECIPE = Recipe(
    gives={"pixel_values": pixel_values}, model_types=frozenset({"efficientloftr", "lightglue", "superglue"})
)
