"""Input recipe for videos: frames, or packed patches with their grid."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, grid, packed, patch_extents, size

_FRAMES = ("num_frames", "frames_per_clip", "num_video_frames")


def frame_count(ask: Ask) -> int:
    """Return the number of frames."""
    return int(ask.setting(*_FRAMES, kind="video", default=2 * patch_extents(ask)[0]))


def video_grid(ask: Ask) -> Any:
    """Return (batch, 3): steps in time, rows and columns of patches of each video."""
    return None if is_image_too(ask) else grid(ask, ask.hints.get("video_steps", 1))


def is_image_too(ask: Ask) -> bool:
    """Say whether the model takes images or videos, never both: its frames stand in a prompt as images do."""
    return ask.model_type in _EITHER


_EITHER = ("glm4v", "glm4v_moe", "glm46v", "glm_ocr", "glm5_next", "glmga")


def pixel_values_videos(ask: Ask) -> Any:
    """Return (batch, frames, colours, height, width), or packed patches."""
    if is_image_too(ask):
        return None
    if "video_grid_thw" in ask.parameters:
        return packed(ask, ask.given("video_grid_thw"), "video")
    return ask.floats(ask.batch, frame_count(ask), channels(ask), *size(ask))


RECIPE = Recipe(gives={"pixel_values_videos": pixel_values_videos, "video_grid_thw": video_grid})
