"""Input recipe for a second image: a visual prompt, or the same image at higher resolution."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, size


def square(ask: Ask) -> Any:
    """Return (batch, colours, width, width): image and prompt are later put one above the other."""
    width = size(ask)[1]
    return ask.floats(ask.batch, channels(ask), width, width)


def fine(ask: Ask) -> Any:
    """Return (batch, colours, height, width) of the image in the resolution of the second tower."""
    side = int(ask.setting("high_res_image_size", default=1024))
    return ask.floats(ask.batch, channels(ask), side, side)


RECIPE = Recipe(gives={"prompt_pixel_values": square, "prompt_masks": square, "high_res_pixel_values": fine})
