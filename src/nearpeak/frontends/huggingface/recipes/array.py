"""Input recipe for Perceiver arrays and robot actions (pi0)."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe
from nearpeak.frontends.huggingface.recipes.image import channels, size

_ROWS, _ACTIONS = 64, 51


def inputs(ask: Ask) -> Any:
    """Return (batch, rows, width)."""
    return ask.floats(ask.batch, _ROWS, int(ask.setting("d_model")))


def action_embeds(ask: Ask) -> Any:
    """Return (batch, one state and fifty actions, width of the part that acts)."""
    return ask.floats(ask.batch, _ACTIONS, int(ask.config.dit_config.hidden_size))


def pictures(ask: Ask) -> Any:
    """Return (batch, cameras, colours, height, width)."""
    return ask.floats(ask.batch, 1, channels(ask), *size(ask))


def cameras(ask: Ask) -> Any:
    """Return (batch, cameras) of true: every camera sees."""
    return ask.filled(ask.batch, 1).bool()


RECIPE = Recipe(
    gives={"inputs": inputs, "action_embeds": action_embeds, "pixel_values": pictures, "pixel_attention_mask": cameras},
    model_types=frozenset({"perceiver", "pi0"}),
)
