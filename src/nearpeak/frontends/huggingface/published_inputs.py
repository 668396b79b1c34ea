"""Input sizes of published models: sequence, cache and decoder lengths, checked against the model's positions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError

DEFAULT_SEQUENCE = 2048
"""Tokens when neither the caller nor the model's file says how many."""
DEFAULT_KV = 4096
"""Cached positions of a decode step when the caller does not say."""
DEFAULT_DECODER_SEQUENCE = 128
"""Tokens of the decoder of an encoder-decoder model, likewise."""
DEFAULT_IMAGE_SIZE = 224
DEFAULT_AUDIO_S = 10
AUDIO_SAMPLES_PER_S = 16_000
"""Sampling rate of the published speech models."""

_NESTED = ("text_config", "vision_config", "backbone_config", "audio_config", "decoder", "encoder")
_POSITION_OFFSETS = {"roberta": 2, "xlm-roberta": 2, "camembert": 2, "xlm-roberta-xl": 2, "data2vec-text": 2}
"""Position embeddings that tokens never use, by model type: positions start after the padding index."""
_RELATIVE_POSITIONS = ("t5", "mt5", "umt5", "longt5", "bloom", "mpt")
"""Model types whose positions have no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Properties of a model that determine its input sizes."""

    name: str
    """Name for messages."""
    class_name: str
    """Class in transformers."""
    config: Any
    """Configuration object of transformers."""
    main_input: str
    """Driving input, as transformers names it."""
    parameters: frozenset[str]
    """Parameters of the forward pass."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Input sizes from the model's file."""

    def setting(self, *names: str) -> Any:
        """Return the first of the settings that the configuration or a nested one states, else none."""
        configs = [self.config, *(getattr(self.config, nested, None) for nested in _NESTED)]
        values = (_stated(config, name) for name in names for config in configs if config is not None)
        return next((value for value in values if value is not None), None)

    @property
    def compares_text_with_images(self) -> bool:
        """Whether the model's loss compares texts with images, without labels."""
        return "return_loss" in self.parameters and {"input_ids", "pixel_values"} <= self.parameters

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder feeds a decoder that makes tokens."""
        return bool(getattr(self.config, "is_encoder_decoder", False)) and "decoder_input_ids" in self.parameters


def _stated(config: Any, name: str) -> Any:
    """Return a setting or none; reading one that differs between layers raises, so it is read from the dictionary."""
    try:
        return getattr(config, name, None)
    except Exception:  # transformers' own error, of a class that older releases lack
        return vars(config).get(name)


def input_sizes(facts: ModelFacts, options: CaptureOptions) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the sizes that recipes of inputs look for, by name, and what was assumed about them.

    Raises:
        SpecError: an option does not fit the model.
    """
    sizes: dict[str, Any] = {"decoder_sequence": DEFAULT_DECODER_SEQUENCE, **facts.defaults}
    notes: tuple[str, ...] = ()
    if "input_ids" in facts.parameters:
        limit = _positions(facts, decoder=False)
        sizes["text_tokens"] = options.sequence
        if options.sequence is None:
            sizes["text_tokens"] = facts.defaults.get("sequence") or min(limit or DEFAULT_SEQUENCE, DEFAULT_SEQUENCE)
        else:
            notes = _check_positions(facts, "--sequence", options.sequence, limit)
    elif options.sequence is not None and not _sequence_is_decoder(facts):
        raise SpecError(f"--sequence {options.sequence}: {facts.name} reads {_read(facts)}; leave it out")
    if "input_values" in facts.parameters:
        length_s = facts.defaults.get("audio_s", DEFAULT_AUDIO_S)
        sizes["audio_samples"] = length_s * AUDIO_SAMPLES_PER_S
        notes += (f"Recordings of {length_s} s at {AUDIO_SAMPLES_PER_S} samples per second.",)
    if "input_points" in facts.parameters:
        notes += ("One point per image is given as the prompt.",)
    if facts.is_encoder_decoder and options.step != "decode":
        sizes["decoder_sequence"], more = _decoder_tokens(facts, options)
        notes += more
    return sizes, notes


def check_cache(options: CaptureOptions) -> None:
    """Refuse cached positions for a step that has no cache."""
    if options.kv is not None and options.step != "decode":
        raise SpecError(f"--kv {options.kv}: only a decode step has a cache; this is step {options.step!r}")


def cached_positions(facts: ModelFacts, options: CaptureOptions) -> int:
    """Return the number of cached positions before a decode step."""
    limit = _positions(facts, decoder=True)
    if options.kv is not None:
        _check_positions(facts, "--kv", options.kv, limit - 1 if limit else None)
        return options.kv
    usual = DEFAULT_DECODER_SEQUENCE if facts.is_encoder_decoder else DEFAULT_KV
    return min(usual, limit - 1) if limit else usual


def label_kind(facts: ModelFacts) -> str:
    """Return the unit that labels of the model's own loss refer to, empty if its head has no loss."""
    kind = next((kind for ending, kind in _LABELS.items() if facts.class_name.endswith(ending)), "")
    return kind if "labels" in facts.parameters else ""


def label_shape(facts: ModelFacts, inputs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the shape of the labels of the model's own loss, none if its head has no loss."""
    first = tuple(inputs[facts.main_input].shape)
    shapes = {
        "token": tuple(inputs.get("decoder_input_ids", inputs[facts.main_input]).shape),
        "example": first[:1],
        "pixel": (first[0], *first[2:]),
    }
    return shapes.get(label_kind(facts))


_LABELS = {
    "ForCausalLM": "token", "LMHeadModel": "token", "ForMaskedLM": "token", "ForConditionalGeneration": "token",
    "ForTokenClassification": "token", "ForSequenceClassification": "example", "ForImageClassification": "example",
    "ForSemanticSegmentation": "pixel",
}  # fmt: skip
"""What a label belongs to, by the ending of the class name."""


def _sequence_is_decoder(facts: ModelFacts) -> bool:
    """Return whether `--sequence` sets the decoder's length, as the encoder reads audio."""
    return facts.is_encoder_decoder and facts.main_input == "input_features"


def _read(facts: ModelFacts) -> str:
    """Return a description of the input of a model without tokens."""
    if facts.main_input != "pixel_values":
        return "sound, not tokens"
    size = facts.defaults.get("image_size") or facts.setting("image_size") or DEFAULT_IMAGE_SIZE
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return f"images of {height}×{width}"


def _decoder_tokens(facts: ModelFacts, options: CaptureOptions) -> tuple[int, tuple[str, ...]]:
    """Return the tokens of the decoder, and what was assumed."""
    length = facts.defaults.get("decoder_sequence") or DEFAULT_DECODER_SEQUENCE
    if not _sequence_is_decoder(facts):
        return length, (f"The decoder makes {length} tokens at once (teacher forcing).",)
    length = options.sequence or facts.defaults.get("sequence") or length
    return length, _check_positions(facts, "--sequence", length, _positions(facts, decoder=True))


def _positions(facts: ModelFacts, *, decoder: bool) -> int | None:
    """Return the positions that the model was published with, none where they have no end."""
    if facts.config.model_type in _RELATIVE_POSITIONS or getattr(facts.config, "alibi", False):
        return None
    names = ("max_target_positions", "max_position_embeddings") if decoder else ("max_position_embeddings",)
    limit = facts.setting(*names)
    return int(limit) - _POSITION_OFFSETS.get(facts.config.model_type, 0) if limit else None


def _check_positions(facts: ModelFacts, option: str, length: int, limit: int | None) -> tuple[str, ...]:
    """Refuse more positions than a table of embeddings has; computed (rotary) positions go on, with a note."""
    if limit is None or length <= limit:
        return ()
    if facts.setting("rope_parameters", "rope_theta") is None:
        raise SpecError(f"{option} {length}: {facts.name} has positions for {limit}; give at most that")
    return (f"{option} {length} goes beyond the {limit} positions that the model was published for.",)
