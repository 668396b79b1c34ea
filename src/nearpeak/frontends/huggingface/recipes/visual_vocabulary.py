"""Input recipe for Chameleon, which turns images into tokens of its own vocabulary."""

from collections.abc import Mapping
from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_CODES, _FIRST_CODE, _IMAGE = 8192, 4, 8711


def config() -> Mapping[str, Any]:
    """Return the vocabulary: letters for the digits of a code, as in config.json of facebook/chameleon-7b."""
    letters = str.maketrans("0123456789", "ABCDEFGHIJ")
    codes = {f"IMGIMG{str(code).translate(letters)}Z": _FIRST_CODE + code for code in range(_CODES)}
    return {"vocabulary_map": {"<image>": _IMAGE, **codes}}


def image_tokens(ask: Ask) -> Any:
    """Return (batch, tokens): 1024 of an image, then text."""
    return ask.whole([[_IMAGE] * 1024 + [9000] * 32] * ask.batch)


RECIPE = Recipe(gives={"input_ids": image_tokens}, config=config, model_types=frozenset({"chameleon"}))
