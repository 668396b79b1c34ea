"""What the forward pass of a Hugging Face model takes: one file per kind of input or family of models."""

from nearpeak.base.registry import Registry
from nearpeak.frontends.huggingface.input_request import Ask, Recipe

RECIPES: Registry[Recipe] = Registry.of_modules(
    "RECIPE", kind="recipe", package=__name__, file=__file__, group="nearpeak.recipes"
)
"""All input recipes by file stem."""

__all__ = ["RECIPES", "Ask", "Recipe"]
