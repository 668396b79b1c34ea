"""Input recipe for images tiled by aspect ratio that text reads through cross-attention (Mllama)."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, size


def _tiles(ask: Ask) -> int:
    return int(ask.setting("max_num_tiles", kind="image"))


def pixel_values(ask: Ask) -> Any:
    """Return (batch, images, tiles, colours, height, width)."""
    return ask.floats(ask.batch, 1, _tiles(ask), channels(ask), *size(ask))


def aspect_ratio_ids(ask: Ask) -> Any:
    """Return (batch, images): the class of the aspect ratio."""
    return ask.filled(ask.batch, 1)


def aspect_ratio_mask(ask: Ask) -> Any:
    """Return (batch, images, tiles) of ones: all tiles are used."""
    return ask.filled(ask.batch, 1, _tiles(ask))


def cross_attention_mask(ask: Ask) -> Any:
    """Return (batch, tokens, images, tiles) of ones: every token looks at every tile."""
    return ask.filled(*ask.given("input_ids").shape, 1, _tiles(ask))


RECIPE = Recipe(
    gives={
        "pixel_values": pixel_values, "aspect_ratio_ids": aspect_ratio_ids, "aspect_ratio_mask": aspect_ratio_mask,
        "cross_attention_mask": cross_attention_mask,
    },
    model_types=frozenset({"mllama"}),
)  # fmt: skip
