"""Input recipe for models that take audio embeddings instead of audio (SpeechT5, Pop2Piano)."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_FRAMES = 100


def embedded(ask: Ask) -> Any:
    """Return (batch, frames, width)."""
    return ask.floats(ask.batch, _FRAMES, int(ask.setting("hidden_size", "d_model")))


RECIPE = Recipe(
    gives={
        "input_values": embedded, "decoder_input_values": embedded, "input_features": embedded,
        "input_ids": lambda _: None,
    },
    model_types=frozenset({"speecht5", "pop2piano"}),
)  # fmt: skip
