"""Models that name waveforms and spectrograms and take one of them, which here is the waveform."""

from nearpeak.frontends.huggingface.input_request import Recipe
from nearpeak.frontends.huggingface.recipes.audio import input_values

RECIPE = Recipe(
    gives={"input_features": lambda _: None, "input_values": input_values},
    model_types=frozenset({"speech-encoder-decoder"}),
)
