"""Input recipe for models that take videos as `pixel_values`."""

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, size
from nearpeak.frontends.huggingface.recipes.video import frame_count


def pixel_values(ask: Ask) -> object:
    """Return (batch, frames, colours, height, width)."""
    return ask.floats(ask.batch, max(2, frame_count(ask)), channels(ask), *size(ask))


RECIPE = Recipe(
    gives={"pixel_values": pixel_values},
    model_types=frozenset({"videomae", "timesformer", "vivit", "xclip", "instructblipvideo", "tvp"}),
)
