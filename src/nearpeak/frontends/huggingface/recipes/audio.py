"""Input recipe for audio: waveforms, or spectrograms in the layout that the model's first layer expects."""

from typing import Any

from nearpeak.frontends.huggingface.input_request import Ask, Recipe

_BINS = ("num_mel_bins", "n_mels", "mel_bins", "n_mel_bins", "num_mel_channels", "feature_size", "input_feat_size",
         "feature_projection_input_dim", "input_dim", "num_features", "input_channels", "in_channels")  # fmt: skip
_HEARING = ("audio_tower", "audio_model", "audio_encoder", "speech_encoder", "audio_embed", "encoder")
_FIRST_LAYERS = 4
_FRAMES, _SAMPLES = 400, 19_200
_SECONDS, _SAMPLES_PER_S = 30, 16_000


def bins(ask: Ask) -> int:
    """Return the number of values of one frame of a spectrogram: a stated one, or what the first layer takes."""
    import torch

    if _BINS[0] in ask.hints:
        return int(ask.hints[_BINS[0]])
    stated = [ask.setting(name, kind="audio") for name in _BINS]
    stated = [value for value in stated if isinstance(value, int)]
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Linear)
    layers = [m for m in hearing_part(ask).modules() if isinstance(m, kinds)][:_FIRST_LAYERS]
    widths = [m.in_features if isinstance(m, torch.nn.Linear) else m.in_channels for m in layers]
    if not layers or isinstance(layers[0], torch.nn.Conv2d):  # its channels say nothing about bins
        return int((stated or [80])[0])
    return int(next((value for value in stated if value in widths), widths[0]))


def hearing_part(ask: Ask) -> Any:
    """Return the part of the model that sees sound: the one named so, else the whole model."""
    named = (m for name, m in ask.model.named_modules() if name.rsplit(".", 1)[-1] in _HEARING)
    return next(named, ask.model)


def input_features(ask: Ask) -> Any:
    """Return (batch, bins, frames) for a model that starts with a convolution over time, else (batch, frames, bins)."""
    positions = ask.setting("max_source_positions", kind="audio")
    is_speech_table = isinstance(positions, int) and positions <= 2048  # a table of positions for a fixed length
    frames = int(ask.setting("audio_frames", default=2 * positions if is_speech_table else _FRAMES))
    if starts_with_time(ask):
        return ask.floats(ask.batch, bins(ask), frames)
    return ask.floats(ask.batch, frames, bins(ask))


def starts_with_time(ask: Ask) -> bool:
    """Say whether the first layer that sees a spectrogram is a one-dimensional convolution over its frames."""
    import torch

    if "bins_first" in ask.hints:
        return bool(ask.hints["bins_first"])
    count = bins(ask)
    for module in hearing_part(ask).modules():
        if isinstance(module, torch.nn.Conv1d) and module.in_channels == count:
            return True
        if isinstance(module, torch.nn.Linear) and module.in_features == count:
            return False
    return False


def frames_mask(ask: Ask) -> Any:
    """Return (batch, frames) of ones: every frame is sound."""
    features = ask.given("input_features")
    kind = ask.hints.get("frames_mask", "whole")  # a mask that picks elements has to be one of truth values
    if features is None or kind == "none":
        return None
    mask = ask.filled(ask.batch, features.shape[-1 if starts_with_time(ask) else 1])
    return mask.bool() if kind == "bool" else mask


def input_values(ask: Ask) -> Any:
    """Return (batch, samples) for a model whose first layer adds the channel itself, else (batch, 1, samples)."""
    samples = int(ask.setting("audio_samples", default=_SAMPLES))
    return ask.floats(ask.batch, samples) if adds_channel(ask) else ask.floats(ask.batch, 1, samples)


def adds_channel(ask: Ask) -> bool:
    """Say whether the model takes waveforms without a channel: those of the family of wav2vec 2.0 do."""
    return not ask.hints.get("channel", "padding_mask" in ask.parameters)


def samples_mask(ask: Ask) -> Any:
    """Return (batch, samples) of ones where the model cuts its embeddings by it; codecs need none."""
    values = ask.given("input_values")
    if "input_ids" not in ask.parameters or (values is None and "padding_mask" not in ask.needed("audio")):
        return None
    return ask.filled(ask.batch, _SECONDS * _SAMPLES_PER_S if values is None else values.shape[-1])


RECIPE = Recipe(gives={
    "input_features": input_features, "input_features_mask": frames_mask, "feature_attention_mask": frames_mask,
    "input_values": input_values, "padding_mask": samples_mask,
})  # fmt: skip
