"""Input recipe for images with a separate dimension of tiles."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, size


def pixel_values(ask: Ask) -> Any:
    """Return (batch, tiles, colours, height, width)."""
    return ask.floats(ask.batch, 1, channels(ask), *size(ask))


def tile_mask(ask: Ask) -> Any:
    """Return (batch, tiles) of ones: every tile is there."""
    return ask.filled(ask.batch, 1).bool() if ask.model_type == "granite_docling" else None


def image_attention_mask(ask: Ask) -> Any:
    """Return (batch, tokens, images) of ones: every token looks at every image."""
    return ask.filled(*ask.given("input_ids").shape, 1)


RECIPE = Recipe(
    gives={
        "pixel_values": pixel_values, "pixel_attention_mask": tile_mask, "image_attention_mask": image_attention_mask,
    },
    model_types=frozenset({"colmodernvbert", "idefics", "granite_docling"}),
)  # fmt: skip
