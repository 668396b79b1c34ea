"""What the forward pass of a Hugging Face model takes: one file per kind of input or family of models."""

from pathlib import Path

from nearpeak.capture._ask import Ask, Recipe
from nearpeak.registry import Registry


def _load(name: str) -> Recipe:
    from importlib import import_module

    recipe: Recipe = import_module(f"nearpeak.capture.recipes.{name}").RECIPE
    return recipe


RECIPES: Registry[Recipe] = Registry(
    kind="recipe", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.recipes"
)
"""All input recipes by file stem."""

__all__ = ["RECIPES", "Ask", "Recipe"]
