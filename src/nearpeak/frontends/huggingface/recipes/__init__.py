"""Input recipes for forward passes of Hugging Face models: one file per kind of input or model family."""

from nearpeak.base.registry import Registry
from nearpeak.frontends.huggingface.input_request import Ask, Recipe

RECIPES: Registry[Recipe] = Registry.of_modules(
    "RECIPE", kind="recipe", package=__name__, file=__file__, group="nearpeak.recipes"
)
"""All input recipes by file stem."""

__all__ = ["RECIPES", "Ask", "Recipe"]
