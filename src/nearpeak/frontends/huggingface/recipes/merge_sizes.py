"""Input recipe for the number of patches merged per side, one per image or video."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_MERGED = 2


def merge_sizes(ask: Ask) -> Any:
    """Return (images,) or (videos,)."""
    return ask.filled(ask.batch, value=_MERGED)


RECIPE = Recipe(gives={"merge_sizes": merge_sizes, "image_merge_sizes": merge_sizes, "video_merge_sizes": merge_sizes})
