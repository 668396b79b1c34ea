"""Inputs for required parameters without a recipe, inferred from parameter names and annotations."""

import re
from collections.abc import Callable
from typing import Any

from nearpeak.frontends.huggingface.input_request import DEFAULT_TOKENS, Ask

_FRAMES, _SIDE = 32, 16
_SAMPLES = 64_000
"""Of a recording that fills the usual 400 frames, one for each 160 samples."""
_WIDTHS = ("hidden_size", "d_model", "n_embd", "embed_dim", "dim")
_NUMBERS: dict[str, Any] = {"int": 1, "float": 1.0, "bool": False}


def by_name(ask: Ask, name: str) -> Any:
    """Return a value for a required parameter; none if its name matches no pattern."""
    annotation = ask.annotations.get(name, "")
    plain = next((value for kind, value in _NUMBERS.items() if re.match(rf"(<class ')?{kind}\b", annotation)), None)
    if plain is not None:
        return plain
    return next((make(ask) for pattern, make in _MAKERS if re.fullmatch(pattern, name)), None)


def first_layer_input(ask: Ask) -> Any:
    """Return an input for the model's first layer: an image, a sequence of frames, or a sequence of vectors."""
    import torch

    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.ConvTranspose1d, torch.nn.Linear)
    first = next((module for module in ask.model.modules() if isinstance(module, kinds)), None)
    if isinstance(first, torch.nn.Conv2d):
        return ask.floats(ask.batch, first.in_channels, _SIDE, _SIDE)
    if isinstance(first, (torch.nn.Conv1d, torch.nn.ConvTranspose1d)):
        return ask.floats(ask.batch, first.in_channels, _FRAMES)
    width = ask.setting(*_WIDTHS, default=getattr(first, "in_features", None))
    return None if width is None else ask.floats(ask.batch, ask.sequence or DEFAULT_TOKENS, int(width))


def _codes(ask: Ask) -> Any:
    books = ask.setting("num_quantizers", "num_codebooks", "n_codebooks")
    return ask.filled(ask.batch, *([] if books is None else [int(books)]), _FRAMES)


def _spectrogram(ask: Ask) -> Any:
    return ask.floats(ask.batch, _FRAMES, int(ask.setting("mel_dim", "num_mel_bins", "n_mels", default=80)))


def _vector(ask: Ask) -> Any:
    return ask.floats(ask.batch, int(ask.setting("enc_emb_dim", "speaker_embedding_dim", *_WIDTHS, default=256)))


_MAKERS: tuple[tuple[str, Callable[[Ask], Any]], ...] = (
    (r"(\w+_)?codes?", _codes),
    (r"\w*sample_(lengths?|lens?)", lambda ask: ask.filled(ask.batch, value=_SAMPLES)),
    (r"(\w+_)?(lengths?|lens?|seqlens)", lambda ask: ask.filled(ask.batch, value=DEFAULT_TOKENS)),
    (r"(\w+_)?mask", lambda ask: ask.filled(ask.batch, DEFAULT_TOKENS)),
    (r"(\w+_)?(ids|tokens)", lambda ask: ask.filled(ask.batch, DEFAULT_TOKENS, value=5)),
    (r"(\w+_)?(timesteps?|time_steps?|sigmas?)", lambda ask: ask.floats(ask.batch)),
    (r"(\w+_)?(mel|spectrogram)", _spectrogram),
    (r"conditioning|(speaker|condition)_(embeddings?|vector)", _vector),
    (r"(\w+_)?(hidden_states?|embeds|embeddings?|latents?|features|inputs?|sequence)|x", first_layer_input),
)  # fmt: skip
"""Name pattern, and maker of the input."""
