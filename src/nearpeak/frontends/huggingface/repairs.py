"""Configuration and input changes that are worth a retry after a failed capture, derived from its error message."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nearpeak.frontends.huggingface.config_defaults import (
    default_parts,
    missing_setting,
    open_settings,
    specified_parts,
    without_timm,
)
from nearpeak.frontends.huggingface.config_parts import parts

Setting = tuple[str, str, Any]
"""Dotted path of a part of the configuration, name, value."""
Rules = tuple[tuple[str, Callable[[re.Match[str], "Trial", Any], Iterator["Trial"]]], ...]
"""Message pattern, and the generator of the changes that it suggests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Changes to configuration and inputs, on top of transformers' defaults and the settings of the model type."""

    settings: tuple[Setting, ...] = ()
    """Changes of the configuration, in order."""
    hints: Mapping[str, Any] = field(default_factory=dict)
    """Layouts and sizes of inputs."""
    dtype: str | None = None
    """Format of weights and inputs."""

    def with_settings(self, *changes: Setting) -> "Trial":
        """Return a copy with further changes of the configuration."""
        return replace(self, settings=(*self.settings, *changes))

    def with_hints(self, **hints: Any) -> "Trial":
        """Return a copy with further hints."""
        return replace(self, hints={**self.hints, **hints})

    def apply(self, config: Any) -> None:
        """Change a configuration."""
        for path, name, value in self.settings:
            part = dict(parts(config)).get(path)
            if part is not None:
                setattr(part, name, value)

    def notes(self) -> tuple[str, ...]:
        """Return what was changed, in sentences."""
        shown = (
            (path, name, f"a default {type(value).__name__}" if hasattr(value, "model_type") else value)
            for path, name, value in self.settings
        )
        changed = (
            f"{f'{path}.{name}'.lstrip('.')} is taken to be {value}: transformers' default does not fit."
            for path, name, value in shown
        )
        guessed = (
            f"{name} of the inputs is taken to be {value}: the model refused others."
            for name, value in self.hints.items()
        )
        return (*changed, *guessed)


UNCHANGED = Trial()
"""The unchanged model."""

_SIZE = re.compile(r"\w*(hidden_size|_dim|_width|d_model|output_size)")
_CHANNELS = re.compile(r"input\[\d+, \d+, \d+, \d+\] to have (\d+) channels, but got (\d+) channels")
"""A 2-D convolution with a wrong channel count: the layout of the images is right, and no other is tried."""


def repairs(error: str, trial: Trial, config: Any, parameters: Sequence[str]) -> Iterator[Trial]:
    """Yield changes to try after an error, the likeliest first.

    Args:
        error: the message of the capture that failed.
        trial: the changes of the failed attempt.
        config: its configuration, changes included.
        parameters: parameters of its forward passes.
    """
    inputs_are_there = "building the model" not in error
    in_doubt = inputs_are_there and not _CHANNELS.search(error)
    yield from _ruled(_RULES, error, trial, config)
    gridded = any("grid" in name for name in parameters)
    for name in _VARIANTS if in_doubt else ():
        if name in parameters and gridded is _GRIDDED.get(name, gridded):
            yield from (trial.with_hints(**hints) for hints in _VARIANTS[name] if not set(hints) <= set(trial.hints))
    yield from _ruled(_WIDTHS, error, trial, config)
    if in_doubt and "pixel_values" in parameters:
        stated = [path for path, part in parts(config) if isinstance(vars(part).get("image_size"), int)]
        for side in _SIDES:
            yield trial.with_settings(*((path, "image_size", side) for path in stated)).with_hints(image_size=side)


def _ruled(rules: Rules, error: str, trial: Trial, config: Any) -> Iterator[Trial]:
    for pattern, rule in rules:
        match = re.search(pattern, error)
        if match:
            yield from rule(match, trial, config)


def _absent(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """A setting that one class of configuration lacks."""
    for path, part in parts(config):
        if type(part).__name__ == match[1]:
            value = missing_setting(config, part, match[2])
            if value is not None:
                yield trial.with_settings((path, match[2], value))


def _unstated(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """A setting that the model asks for by name."""
    for path, part in parts(config):
        if match[1] in vars(part):
            value = missing_setting(config, part, match[1])
            yield trial.with_settings((path, match[1], 24 if value is None else value))


def _none(_match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """Something that is not there: a part of the configuration, or sizes that are left open."""
    for changes in (default_parts(config), open_settings(config)):
        if changes:
            yield trial.with_settings(*changes)


def _timm(_match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """A backbone of a package that is not installed."""
    changes = without_timm(config)
    if changes:
        yield trial.with_settings(*changes)


def _sections(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """Sections of a rotary embedding that do not add up to its dimension."""
    wanted, sections = int(match[1]), [int(size) for size in match[2].split(",")]
    for path, part in parts(config):
        rope = getattr(part, "rope_parameters", None)
        if not isinstance(rope, Mapping) or not path.endswith("text_config") | (part is config):
            continue
        stated = rope.get("mrope_section") or sections
        total = sum(stated)
        if 0 < total < wanted:
            yield trial.with_settings((path, "rope_parameters", {**rope, "partial_rotary_factor": total / wanted}))
        share = [size * wanted // total for size in stated]
        share[0] += wanted - sum(share)
        yield trial.with_settings((path, "rope_parameters", {**rope, "mrope_section": share}))


def _kinds_of_layers(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """Rotary parameters that each kind of layer should have of its own."""
    for path, part in parts(config):
        kinds = set(getattr(part, "layer_types", None) or ())
        if match[1] in kinds:
            rope = {"rope_type": "default", "rope_theta": 10000.0}
            yield trial.with_settings((path, "rope_parameters", dict.fromkeys(sorted(kinds), rope)))


def _bf16(_match: re.Match[str], trial: Trial, _config: Any) -> Iterator[Trial]:
    """Grouped products of experts, which PyTorch has in bf16 only."""
    yield replace(trial, dtype="bf16")


def _heads(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """Heads that do not divide a width: the next number that does."""
    width, heads = int(match[1]), int(match[2])
    fits = [count for count in range(1, 2 * heads) if width % count == 0 and width // count % 2 == 0]
    for path, part in parts(config):
        if vars(part).get("hidden_size") == width and vars(part).get("num_attention_heads") == heads:
            yield trial.with_settings(
                (path, "num_attention_heads", min(fits, key=lambda count: (abs(count - heads), -count)))
            )


def _widths(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """A layer that takes another width than it gets: settings with one of the two become the other."""
    got, wanted = int(match[1]), int(match[2])
    sizes = [
        (path, name, value) for path, part in parts(config) for name, value in vars(part).items()
        if isinstance(value, int) and value > 1 and _SIZE.fullmatch(name)
    ]  # fmt: skip
    for path, name, value in sizes:
        if value == wanted and path:
            yield trial.with_settings((path, name, got))
    for path, name, value in sizes:
        if path and "text" not in path and got % value == 0 and wanted % (got // value) == 0 and value != wanted:
            yield trial.with_settings((path, name, wanted // (got // value)))


def _specified(_match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """A part that is not the one which the class of the configuration specifies."""
    changes = specified_parts(config)
    if changes:
        yield trial.with_settings(*changes)


def _channels(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """A convolution that takes another number of channels than it gets: a list of widths is the likeliest wrong."""
    wanted, got = int(match[1]), int(match[2])
    for path, part in parts(config):
        for name, value in vars(part).items():
            if isinstance(value, (list, tuple)) and wanted in value and not name.startswith("_"):
                yield trial.with_settings(
                    (path, name, type(value)(got if width == wanted else width for width in value))
                )


def _embeddings(match: re.Match[str], trial: Trial, config: Any) -> Iterator[Trial]:
    """Embeddings of an image that are not as wide as those of text."""
    tokens, features = int(match[1]), int(match[2])
    texts = [(path, part) for path, part in parts(config) if path.endswith("text_config")]
    towers = [(path, part) for path, part in parts(config) if path and "text" not in path]
    for path, part in texts:
        width = vars(part).get("hidden_size")
        for tower_path, tower in towers:
            for name in ("out_hidden_size", "projection_dim", "hidden_size"):
                if isinstance(vars(tower).get(name), int) and vars(tower)[name] != width:
                    yield trial.with_settings(
                        (path, "hidden_size", vars(tower)[name]), *_own_heads(path, part, vars(tower)[name])
                    )
                    yield trial.with_settings((tower_path, name, width))
        if features > tokens and features % tokens == 0:
            yield trial.with_settings(
                (path, "hidden_size", features // tokens), *_own_heads(path, part, features // tokens)
            )


def _own_heads(path: str, part: Any, width: int) -> Iterator[Setting]:
    """Yield heads of the size that a part has already, for another width."""
    size = vars(part).get("head_dim") or vars(part)["hidden_size"] // vars(part)["num_attention_heads"]
    if width % size == 0:
        yield path, "num_attention_heads", width // size
        yield path, "num_key_value_heads", width // size


_RULES: Rules = (
    (r"'(\w+Config)' object has no attribute '(\w+)'", _absent),
    (r"`(\w+)` config needs to be specified", _unstated),
    (r"timm library", _timm),
    (r"NoneType|without a \w+_config|`None`", _none),
    (r"sum exactly to (\d+) .*split_sizes=\[([\d, ]+)\]", _sections),
    (r"KeyError: '(\w+_attention)'", _kinds_of_layers),
    (r"Expected inputs of BF16", _bf16),
    (r"embed_dim`?: (\d+) and `?num_heads`?: (\d+)", _heads),
    (rf"{_CHANNELS.pattern}|IndexError", _specified),
    (_CHANNELS.pattern, _channels),
    (r"do not match, tokens: (\d+), features: (\d+)", _embeddings),
)  # fmt: skip
"""Message pattern, and the rule for its cause."""
_WIDTHS: Rules = ((r"same reduction dim, but got \[\d+, (\d+)\] X \[(\d+), \d+\]", _widths),)
"""Rules that are tried after all other input layouts."""

_PATCHES = tuple({"patch_layout": layout} for layout in ("pictures", "row of pictures", "merged pictures"))
_VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "input_features": (
        {"bins_first": True}, {"bins_first": False}, {"num_mel_bins": 128}, {"num_mel_bins": 80},
        {"bins_first": True, "num_mel_bins": 128}, {"bins_first": False, "num_mel_bins": 128},
        {"bins_first": True, "num_mel_bins": 128, "audio_frames": 400}, {"num_mel_bins": 160}, {"frames_mask": "bool"},
        {"frames_mask": "none"}, {"frames_mask": "bool", "num_mel_bins": 128}, {"audio_frames": 3000},
    ),
    "input_values": ({"channel": True}, {"channel": False}, {"audio_samples": 24_000}),
    "grid_thw": _PATCHES, "image_grid_thw": _PATCHES, "pixel_values": ({"tiled": True},),
    "video_grid_thw": ({"video_steps": 2},), "pixel_values_videos": ({"num_frames": 8},),
    "inputs_embeds": ({"embedded": True},),
}  # fmt: skip
"""Layouts and sizes in which models take an input, by parameter: the ones to try where the usual one is refused."""
_GRIDDED = {"pixel_values": False, "pixel_values_videos": False}
"""Parameters whose layout is another one where a grid of patches comes with them."""
_SIDES = (448, 512, 896, 560, 490, 364, 1536)
"""Image sides in released models, most common first; patches, windows or queries may need to divide them."""
