"""Input recipe for standalone vision towers that take patches with a grid."""

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import packed


def hidden_states(ask: Ask) -> object:
    """Return packed patches where the tower takes a grid with them."""
    return packed(ask, ask.given("grid_thw")) if "grid_thw" in ask.parameters else None


RECIPE = Recipe(gives={"hidden_states": hidden_states})
