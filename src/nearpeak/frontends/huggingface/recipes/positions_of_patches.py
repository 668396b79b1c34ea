"""Input recipe for patches with explicit row and column positions."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, patch_extents

_SIDE = 12


def patches(ask: Ask) -> Any:
    """Return (batch, patches, values of a patch)."""
    _, height, width = patch_extents(ask)
    return ask.floats(ask.batch, _SIDE * _SIDE, channels(ask) * height * width)


def positions(ask: Ask) -> Any:
    """Return (batch, patches, 2): column and row of each patch."""
    return ask.whole([[[column, row] for row in range(_SIDE) for column in range(_SIDE)]] * ask.batch)


def frame_counts(ask: Ask) -> Any:
    """Return (batch,): frames of each video; the frames of all videos stand one after the other."""
    return ask.filled(ask.batch)


RECIPE = Recipe(
    gives={
        "pixel_values": patches, "pixel_position_ids": positions, "image_position_ids": positions,
        "pixel_values_videos": patches, "video_position_ids": positions, "num_frames_per_video": frame_counts,
    },
    model_types=frozenset({"gemma4", "gemma4_vision", "gemma4_unified", "embedding_gemma2"}),
)  # fmt: skip
