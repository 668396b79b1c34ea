"""Input recipe for flattened document patches, each preceded by its row and column (Pix2Struct, Kosmos)."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.tokens import input_ids

_PATCHES = 64


def flattened_patches(ask: Ask) -> Any:
    """Return (batch, patches, 2 + values of a patch)."""
    patch = int(ask.setting("patch_size", kind="image", default=16))
    return ask.floats(ask.batch, _PATCHES, 2 + 3 * patch * patch)


def image_positions(ask: Ask) -> Any:
    """Return (batch, tokens): one where an embedding of the image stands, which is at the start of a prompt."""
    count = int(ask.setting("latent_query_num", default=0))
    tokens = ask.given("input_ids").shape[1]
    return ask.whole([[1] * count + [0] * (tokens - count)] * ask.batch)


def tokens_with_room(ask: Ask) -> Any:
    """Return (batch, tokens): a prompt long enough for the embeddings of the image."""
    count = int(ask.setting("latent_query_num", default=0))
    return ask.filled(ask.batch, count + input_ids(ask).shape[1], value=5)


def extent(ask: Ask) -> Any:
    """Return (batch,): height or width of the image in patches."""
    return ask.filled(ask.batch, value=8)


RECIPE = Recipe(
    gives={
        "flattened_patches": flattened_patches, "image_embeds_position_mask": image_positions,
        "input_ids": tokens_with_room, "width": extent, "height": extent,
    },
    model_types=frozenset({"pix2struct", "kosmos-2.5", "kosmos-2"}),
)  # fmt: skip
