"""Input recipe for Emu3, whose vocabulary has one token per image code."""

from collections.abc import Mapping
from typing import Any

from nearpeak.frontends.huggingface.input_request import Recipe
from nearpeak.frontends.huggingface.recipes.image import image_sizes

_CODES, _FIRST_CODE, _END_OF_ROW, _IMAGE = 32_768, 151_854, 151_846, 151_860
"""As many codes as transformers' default of the tokenizer of images, at the end of the vocabulary."""


def config() -> Mapping[str, Any]:
    """Return the vocabulary, whose names of codes end in a number of six digits.

    The first and the last code give the model's table its size; what stands in it is data.
    """
    codes = {f"<|visual token {code:06d}|>": _FIRST_CODE + code for code in (0, _CODES - 1)}
    return {"vocabulary_map": {"<image>": _IMAGE, "<|extra_200|>": _END_OF_ROW, **codes}}


RECIPE = Recipe(gives={"image_sizes": image_sizes}, config=config, model_types=frozenset({"emu3"}))
