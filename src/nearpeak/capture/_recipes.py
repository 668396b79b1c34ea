"""What the forward pass of a Hugging Face model takes, by its driving input: shapes and kinds as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.errors import NotModelledError, SpecError

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
_TEXT_AND_IMAGE = ("clip", "siglip", "chinese_clip", "altclip", "metaclip_2")
"""Model types that compare texts with images and need both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One tensor that the forward pass takes."""

    shape: tuple[int, ...]
    """Extents."""
    kind: str = "whole"
    """`whole` (int64) or `float` (the model's format)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the caller asks for."""

    step: str
    """`forward`, `train` or `decode`."""
    batch: int
    """Sequences, images or recordings."""
    sequence: int | None = None
    """Tokens per sequence."""
    kv: int | None = None
    """Positions already in the cache of a decode step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What a recipe needs to know of a model."""

    name: str
    """Name for messages."""
    class_name: str
    """Class in transformers."""
    config: Any
    """Configuration object of transformers."""
    main_input: str
    """Driving input, as transformers names it."""
    parameters: frozenset[str]
    """Names that the forward pass takes."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Input sizes from the model's file."""

    def setting(self, *names: str) -> Any:
        """Return the first of the settings that the configuration or a nested one states, else none."""
        configs = [self.config, *(getattr(self.config, nested, None) for nested in _NESTED)]
        found = (getattr(config, name, None) for name in names for config in configs if config is not None)
        return next((value for value in found if value is not None), None)

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether an encoder feeds a decoder that makes tokens."""
        return bool(getattr(self.config, "is_encoder_decoder", False)) and "decoder_input_ids" in self.parameters


Specs = dict[str, InputSpec]


def recipe(facts: ModelFacts, options: Options) -> tuple[Specs, tuple[str, ...]]:
    """Return the tensors of one forward pass by name, and what was assumed about them.

    Raises:
        SpecError: an option does not fit the model.
        NotModelledError: the model's driving input has no recipe.
    """
    build = _BY_MAIN_INPUT.get(facts.main_input)
    if build is None:
        known = ", ".join(_BY_MAIN_INPUT)
        raise NotModelledError(f"{facts.name}: no recipe for input {facts.main_input!r}; there are recipes for {known}")
    specs, notes = build(facts, options)
    if facts.is_encoder_decoder and options.step != "decode":
        notes += _decoder(facts, options, specs)
    if options.step == "train":
        notes += _labels(facts, specs)
    return specs, notes


def cached_positions(facts: ModelFacts, options: Options) -> int:
    """Return the positions that stand in the cache before a decode step."""
    limit = _positions(facts, decoder=True)
    if options.kv is not None:
        _check_positions(facts, "--kv", options.kv, limit - 1 if limit else None)
        return options.kv
    usual = DEFAULT_DECODER_SEQUENCE if facts.is_encoder_decoder else DEFAULT_KV
    return min(usual, limit - 1) if limit else usual


def _text(facts: ModelFacts, options: Options) -> tuple[Specs, tuple[str, ...]]:
    limit = _positions(facts, decoder=False)
    encoder_option = options.sequence
    length = encoder_option or facts.defaults.get("sequence") or min(limit or DEFAULT_SEQUENCE, DEFAULT_SEQUENCE)
    notes = _check_positions(facts, "--sequence", length, limit) if encoder_option else ()
    specs = {"input_ids": InputSpec(shape=(options.batch, length))}
    if facts.config.model_type in _TEXT_AND_IMAGE:
        images, more = _image(facts, Options(step=options.step, batch=options.batch))
        return specs | images, (*notes, *more)
    return specs, notes


def _image(facts: ModelFacts, options: Options) -> tuple[Specs, tuple[str, ...]]:
    size = facts.defaults.get("image_size") or facts.setting("image_size") or DEFAULT_IMAGE_SIZE
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    if options.sequence is not None:
        raise SpecError(f"--sequence {options.sequence}: {facts.name} reads images of {height}×{width}; leave it out")
    channels = facts.setting("num_channels") or 3
    specs = {"pixel_values": InputSpec(shape=(options.batch, channels, height, width), kind="float")}
    if "input_points" in facts.parameters:  # a promptable model is asked about one point per image
        specs["input_points"] = InputSpec(shape=(options.batch, 1, 1, 2), kind="float")
        return specs, ("One point per image is given as the prompt.",)
    return specs, ()


def _spectrogram(facts: ModelFacts, options: Options) -> tuple[Specs, tuple[str, ...]]:
    """Return mel frames: two per position of the encoder, whose first layer halves them."""
    positions, bins = facts.setting("max_source_positions"), facts.setting("num_mel_bins")
    if not positions or not bins:
        raise NotModelledError(f"{facts.name}: no recipe for its audio features; it states no max_source_positions")
    return {"input_features": InputSpec(shape=(options.batch, bins, 2 * positions), kind="float")}, ()


def _waveform(facts: ModelFacts, options: Options) -> tuple[Specs, tuple[str, ...]]:
    if options.sequence is not None:
        raise SpecError(f"--sequence {options.sequence}: {facts.name} reads sound, not tokens; leave it out")
    length_s = facts.defaults.get("audio_s", DEFAULT_AUDIO_S)
    specs = {"input_values": InputSpec(shape=(options.batch, length_s * AUDIO_SAMPLES_PER_S), kind="float")}
    return specs, (f"Recordings of {length_s} s at {AUDIO_SAMPLES_PER_S} samples per second.",)


_BY_MAIN_INPUT: Mapping[str, Callable[[ModelFacts, Options], tuple[Specs, tuple[str, ...]]]] = {
    "input_ids": _text, "pixel_values": _image, "input_features": _spectrogram, "input_values": _waveform,
}  # fmt: skip


def _decoder(facts: ModelFacts, options: Options, specs: Specs) -> tuple[str, ...]:
    """Add the decoder's tokens."""
    length = facts.defaults.get("decoder_sequence") or DEFAULT_DECODER_SEQUENCE
    notes: tuple[str, ...] = (f"The decoder makes {length} tokens at once (teacher forcing).",)
    if facts.main_input != "input_ids":  # --sequence means the decoder where the encoder does not read tokens
        length = options.sequence or facts.defaults.get("sequence") or length
        notes = _check_positions(facts, "--sequence", length, _positions(facts, decoder=True))
    specs["decoder_input_ids"] = InputSpec(shape=(options.batch, length))
    return notes


def _labels(facts: ModelFacts, specs: Specs) -> tuple[str, ...]:
    """Add what the model's own loss compares with, where its head has one."""
    if "return_loss" in facts.parameters and facts.config.model_type in _TEXT_AND_IMAGE:
        return ()
    kind = next((kind for ending, kind in _LABELS.items() if facts.class_name.endswith(ending)), None)
    if kind is None or "labels" not in facts.parameters:
        return ("The model has no loss of its own here; its gradient starts from the mean of its outputs.",)
    first = specs[facts.main_input].shape
    shapes = {
        "token": specs.get("decoder_input_ids", specs[facts.main_input]).shape,
        "example": first[:1],
        "pixel": (first[0], *first[2:]),
    }
    specs["labels"] = InputSpec(shape=shapes[kind])
    return ()


_LABELS = {
    "ForCausalLM": "token", "LMHeadModel": "token", "ForMaskedLM": "token", "ForConditionalGeneration": "token",
    "ForTokenClassification": "token", "ForSequenceClassification": "example", "ForImageClassification": "example",
    "ForSemanticSegmentation": "pixel",
}  # fmt: skip
"""What a label belongs to, by the ending of the class name."""


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
