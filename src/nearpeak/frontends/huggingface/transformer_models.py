"""Shapes of named transformers, of configurations and of stated extents."""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from nearpeak.core.systems.transformer import Experts, LatentAttention, TransformerShape
from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.frontends.huggingface.published_models import MODELS, Published, published
from nearpeak.frontends.huggingface.transformer_config import shape_of_config

_FILE = Path(__file__).with_name("transformer_models.toml")
_VARIANTS = (
    "instruct", "chat", "base", "hf", "it", "fp8", "nvfp4", "fp4", "bf16", "fp16", "mxfp4", "awq", "gptq", "int4",
    "int8", "preview", "tokendrop", "lora", "dynamic", "quantized", "kv", "w4a16", "w8a8", "turbo",
)  # fmt: skip
"""Words that name a training stage or a number format of the same shape."""
_VERSION = re.compile(r"(?<=[a-z0-9])-?v0\.[0-9]$|-(2[0-9]{3}|[01][0-9][0-3][0-9])$")
_EXTENTS = {
    "hidden": "hidden", "layers": "layer_count", "heads": "head_count", "kv_heads": "kv_head_count",
    "head_width": "head_width", "ffn": "ffn", "vocabulary": "vocabulary",
}  # fmt: skip


def shape_of(name_or_path: str | Path) -> TransformerShape:
    """Return the shape of a named model, or of a config.json (or the folder that holds one); nothing is downloaded.

    Names are compared without capitals, separators and the organisation before a slash; words that name a training
    stage or a number format (Instruct, FP8) do not change the shape.

    Raises:
        UnknownNameError: no model of that name is known.
        SpecError: the configuration states too little.

    >>> shape_of("meta-llama/Llama-3.1-70B-Instruct").hidden, shape_of("LLAMA3.1_405B").layer_count
    (8192, 126)
    """
    path = Path(name_or_path)
    if path.suffix == ".json" or os.path.isdir(path):  # of a name too long for a path, is_dir() raises
        return shape_of_published(published(name_or_path))
    return _named(known_name(str(name_or_path)))


def shape_of_published(model: Published) -> TransformerShape:
    """Return the shape of published dimensions."""
    return shape_of_config(model.name, model.model_type, model.config)


def shape_from_extents(
    *, hidden: int, layers: int, heads: int, vocabulary: int, kv_heads: int = 0, head_width: int = 0, ffn: int = 0,
    name: str = "stated", like: str = "", experts: Experts | None = None, latent: LatentAttention | None = None,
    **traits: Any,
) -> TransformerShape:  # fmt: skip
    """Return the shape of a model whose extents a row of data states.

    Args:
        kv_heads: key heads; 0 for as many as heads.
        head_width: 0 for hidden / heads.
        ffn: 0 for four times hidden.
        like: model type that fixes what the row leaves open (norms, biases, activation): `megatron_gpt`, `llama`;
            traits then override it. Without it, they are those of a Llama, or what `traits` says.
        traits: further fields of TransformerShape, `has_bias=True`.

    Raises:
        SpecError: an unknown trait, or extents that no model has.

    >>> shape_from_extents(hidden=1024, layers=24, heads=16, vocabulary=51_200, like="megatron_gpt").is_gated
    False
    """
    fields = set(TransformerShape.__dataclass_fields__)
    for trait in traits:
        if trait not in fields:
            near = difflib.get_close_matches(trait, [*fields, *_EXTENTS], n=1, cutoff=0.0)[0]
            raise SpecError(f"{name}: {trait!r} is no extent of a transformer; the nearest is {near!r}")
    if hidden % heads and not head_width:
        raise SpecError(f"{name}: hidden {hidden} is no multiple of {heads} heads; state head_width")
    config = {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": vocabulary,
        "num_key_value_heads": kv_heads or heads, "intermediate_size": ffn or 4 * hidden,
        "head_dim": head_width or hidden // heads,
    }  # fmt: skip
    base = shape_of_config(name, like or "llama", config)
    settings = {field: getattr(base, field) for field in TransformerShape.__dataclass_fields__}
    return TransformerShape(**(settings | {"experts": experts, "latent": latent} | traits))


def shape_names() -> tuple[str, ...]:
    """Return the names of all models whose shape is known, aliases left out."""
    names = set(_rows())
    for name in MODELS.names():
        with suppress(UnknownNameError, SpecError, NotModelledError):
            names.add(shape_of_published(MODELS[name]).name)
    return tuple(sorted(names))


def published_parameters(name: str) -> int:
    """Return the published number of parameters of a named model; 0 where the source states none."""
    known = known_name(name)
    row = _rows().get(known, {})
    known = row.get("shape_of", known)
    return int(_rows()[known].get("parameters_count", 0)) if known in _rows() else MODELS[known].parameters_count


def known_name(name: str) -> str:
    """Return the name under which a model is known, whatever its spelling, see `shape_of`.

    Raises:
        UnknownNameError: no model of that name; the nearest ones are in the message.

    >>> known_name("ResNet50")
    'resnet-50'
    """
    known = _names()
    keys = _key(name), _key(_VERSION.sub("", _key(name, "-")))
    for key in keys:
        if key in known:
            return known[key]
    near = difflib.get_close_matches(keys[0], known, n=3, cutoff=0.3)
    hint = ", ".join(dict.fromkeys(known[close] for close in near)) or "llama-3-8b"
    raise UnknownNameError(f"model {name!r}: its extents are not known; nearest names: {hint}; or give a config.json")


def _key(name: str, separator: str = "") -> str:
    """Return what names are compared by.

    >>> _key("neuralmagic/Meta-Llama-3-8B-Instruct-FP8") == _key("LLAMA3_8B"), _key("mistralai/Mistral-7B-v0.3")
    (True, 'mistral7bv0.3')
    """
    words = re.split("[-_ ]+", name.lower().rsplit("/", 1)[-1].split("(")[0].strip())
    return separator.join(piece for piece in words if piece not in _VARIANTS and piece != "meta")


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    rows: dict[str, Mapping[str, Any]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    return rows


@cache
def _names() -> Mapping[str, str]:
    """Return the known names by key, aliases among them."""
    names = {_key(alias): name for name in MODELS.names() for alias in (*MODELS[name].aliases, name)}
    for name, row in _rows().items():
        names |= {_key(alias): name for alias in (*row.get("aliases", ()), name)}
    return names


@cache
def _named(name: str) -> TransformerShape:
    row = _rows().get(name)
    if row is None:
        return shape_of_published(MODELS[name])
    if "shape_of" in row:
        return _named(row["shape_of"])
    return shape_of_config(name, row["model_type"], row["config"])
