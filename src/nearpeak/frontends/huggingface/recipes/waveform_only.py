"""Input recipe for speech encoder-decoders, which accept both waveforms and spectrograms: waveforms only."""

from nearpeak.frontends.huggingface.input_request import Recipe
from nearpeak.frontends.huggingface.recipes.audio import input_values

RECIPE = Recipe(
    gives={"input_features": lambda _: None, "input_values": input_values},
    model_types=frozenset({"speech-encoder-decoder"}),
)
