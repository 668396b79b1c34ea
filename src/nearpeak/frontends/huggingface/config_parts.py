"""Traversal of nested model configurations, filling of open settings, and a copy with fewer layers."""

import copy
import re
from collections.abc import Iterator
from typing import Any

_DEPTH = re.compile(
    r"(\w+_)?(num_hidden_layers|num_layers|n_layers?|layers|depth|encoder_layers|decoder_layers|"
    r"num_encoder_layers|num_decoder_layers|num_encoder_blocks)"
)
_NO_DEPTH = re.compile(r"max_.*|min_.*|iou_.*|num_adapter.*|num_lstm.*|.*feat_extract.*|spatial_.*|.*(net|proj)_layers")
_MUST_AGREE = ("out_hidden_size", "output_dim")
"""Output widths of a tower, which must equal the language model's width."""
_PLACEHOLDERS = (
    "image_token_id", "video_token_id", "audio_token_id", "image_token_index", "video_token_index", "audio_token_index",
)  # fmt: skip
_READ_LAYERS = ("intermediate_layers_indices", "extract_layers", "intermediate_layer_indices")
_READ_OF_TOWER = ("vision_feature_layer", "vision_feature_layers")
"""Layers of the vision tower that another part reads; negative numbers count from the end."""
_DEPTH_LISTS = ("depths", "num_blocks", "num_block_repeats", "block_repeats")
"""Layers of each stage; stacks whose other lists name blocks instead of stages are not cut."""


def parts(config: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a configuration and all configurations nested in it, each with its dotted path."""
    yield path, config
    for name, value in vars(config).items():
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from parts(value, f"{path}.{name}".lstrip("."))


def with_layers(config: Any, layer_count: int) -> Any:
    """Return a copy in which every stack has `layer_count` layers, or one period of its layer types if that is more.

    Lists with an entry per layer are cut with their stack; layers that other parts read are kept.
    """
    smaller = copy.deepcopy(config)
    tower_depth = _tower_depth(smaller)
    for path, part in parts(smaller):
        stages = {
            len(value)
            for name, value in vars(part).items()
            if name in _DEPTH_LISTS and isinstance(value, (list, tuple))
        }
        for name, value in list(vars(part).items()):
            if _is_count(value) and value in stages:
                continue  # a number of stages, between which the width changes
            if _DEPTH.fullmatch(name) and not _NO_DEPTH.fullmatch(name) and _is_count(value) and value > layer_count:
                depth = max(layer_count, _period(part, value), tower_depth if "vi" in path else 1)
                _cut(part, name, value, min(value, depth))
            elif name in _DEPTH_LISTS and isinstance(value, (list, tuple)) and all(map(_is_count, value)):
                setattr(part, name, type(value)(min(count, layer_count) for count in value))
    return smaller


def _tower_depth(config: Any) -> int:
    """Return the number of vision-tower layers that must be kept because other parts read them."""
    stated = (vars(part).get(name) for _, part in parts(config) for name in _READ_OF_TOWER)
    read: list[int] = [
        index for layers in stated if isinstance(layers, (list, tuple)) for index in layers if _is_count(index)
    ]
    return max([1, *(-index if index < 0 else index + 1 for index in read)])


def fitted(config: Any) -> tuple[str, ...]:
    """Fill in open or contradictory defaults of transformers; return notes on the changes."""
    every, notes = dict(parts(config)), []
    texts = [part for path, part in every.items() if path.endswith("text_config")]
    for path, part in every.items():
        settings = vars(part)  # as a per-layer setting cannot be asked for by name
        heads, width = settings.get("num_attention_heads"), settings.get("hidden_size")
        wanted = {
            "head_dim": width // heads if _is_count(heads) and _is_count(width) and heads else None,
            "num_key_value_heads": heads,
            "out_hidden_size": vars(texts[0]).get("hidden_size") if texts and part is not texts[0] else None,
            "output_dim": vars(texts[0]).get("hidden_size") if texts and path.endswith("audio_config") else None,
        }
        for name, value in wanted.items():
            present = settings.get(name, value)
            if value is not None and (present is None or (name in _MUST_AGREE and present != value)):
                setattr(part, name, value)
                notes.append(
                    f"{f'{path}.{name}'.lstrip('.')} is taken to be {value}: transformers' default does not fit."
                )
    return (*notes, *_placeholders(config))


def _placeholders(config: Any) -> Iterator[str]:
    """Assign missing placeholder tokens from the end of the vocabulary; yield notes on the changes."""
    sizes = [vars(part).get("vocab_size") for path, part in parts(config) if path in ("", "text_config")]
    vocabulary = next((size for size in sizes if _is_count(size)), None)
    for place, name in enumerate(_PLACEHOLDERS, start=1):
        if vocabulary is not None and name in vars(config) and vars(config)[name] is None:
            setattr(config, name, vocabulary - place)
            yield f"{name} is taken to be {vocabulary - place}: transformers' default leaves it open."


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _period(part: Any, layer_count: int) -> int:
    """Return the number of leading layers that include every layer type and all layers that are read."""
    period = 1
    for value in vars(part).values():
        if isinstance(value, (list, tuple)) and len(value) == layer_count and all(isinstance(v, str) for v in value):
            period = max(period, max(value.index(item) for item in set(value)) + 1)
    if getattr(part, "num_kv_shared_layers", 0):
        period *= 2  # a period with keys and values of its own, one without
    read = [list(vars(part).get(name) or ()) for name in _READ_LAYERS]
    outputs = list(getattr(part, "out_indices", None) or ())
    read.append(outputs if len(outputs) > 1 else [])
    return max([period, *(int(index) + 1 for item in read for index in item)])


def _cut(part: Any, name: str, before: int, after: int) -> None:
    """Set a depth, and cut the lists with an entry per layer."""
    setattr(part, name, after)
    if name == "num_hidden_layers" and vars(part).get("num_kv_shared_layers"):
        part.num_kv_shared_layers = after // 2
    for key, value in list(vars(part).items()):
        if isinstance(value, (list, tuple)) and len(value) == before:
            setattr(part, key, value[:after])
    names = vars(part).get("stage_names")
    if names is not None and len(names) == before + 1:
        part.stage_names = names[: after + 1]
        if len(getattr(part, "out_indices", None) or ()) <= 1:
            part._out_features, part._out_indices = [part.stage_names[-1]], [after]
