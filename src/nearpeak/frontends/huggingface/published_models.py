"""Published model dimensions, from the files shipped with nearpeak or from a user's config.json."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import json_value, text_of_file
from nearpeak.base.registry import Registry
from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.frontends.huggingface.published_quantisation import note_on

_NOT_DIMENSIONS = ("model_type", "transformers_version", "auto_map", "attn_implementation", "_attn_implementation")
_KEYS = {
    "title", "model_type", "class", "training_class", "source", "parameters_count", "dtype", "config", "inputs",
    "aliases",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A model's dimensions and their source."""

    name: str
    """Name on the command line, or of the folder of a config.json."""
    title: str
    """Name for people."""
    model_type: str
    """Architecture, as transformers names it."""
    class_names: tuple[str, ...]
    """Classes in transformers, the preferred one first; empty when only the architecture is known."""
    source: str
    """Whose dimensions these are."""
    dtype: str = ""
    """Published number format of the weights, empty when not stated."""
    training_class: str = ""
    """Class with the training head, if it is a different one."""
    parameters_count: int = 0
    """Parameters, tied ones once; 0 when not stated."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Dimensions by their names in transformers."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Usual input sizes."""
    aliases: tuple[str, ...] = ()
    """Names of models of the same dimensions."""
    notes: tuple[str, ...] = ()
    """Notes on omissions."""

    @property
    def reads_text(self) -> bool:
        """Whether the model reads or generates tokens: it states a vocabulary size.

        >>> MODELS["whisper-tiny"].reads_text, MODELS["resnet-50"].reads_text
        (True, False)
        """
        return _states(self.config, "vocab_size")


def _states(config: Mapping[str, Any], name: str) -> bool:
    """Return whether a configuration, or a nested one, states a dimension."""
    return name in config or any(_states(value, name) for value in config.values() if isinstance(value, Mapping))


def _load(name: str) -> Published:
    path = _FOLDER / f"{name}.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = sorted(set(data) - _KEYS)
    if unknown:
        raise SpecError(f"models/{path.name}: key {unknown[0]!r} is not known; known are {', '.join(sorted(_KEYS))}")
    return Published(
        name=name, title=data["title"], model_type=data["model_type"],
        class_names=tuple(filter(None, (data["class"],))),
        training_class=data.get("training_class", ""), source=data["source"], dtype=data["dtype"],
        parameters_count=data["parameters_count"], config=data["config"], inputs=data.get("inputs", {}),
        aliases=tuple(data.get("aliases", ())),
    )  # fmt: skip


_FOLDER = Path(__file__).parent / "models"
MODELS: Registry[Published] = Registry(kind="model", files=_FOLDER.glob("*.toml"), load=_load, group="nearpeak.models")
"""All models whose published dimensions come with nearpeak, by name."""


def published(name_or_config: str | Path) -> Published:
    """Return the dimensions of a named model, or those in a config.json (or the folder that holds one).

    Raises:
        UnknownNameError: neither a known name nor a file.
        SpecError: the file is not a configuration.

    >>> published("llama-3-8b").config["num_hidden_layers"]
    32
    """
    path = Path(name_or_config)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json":
        return _from_file(path)
    name = str(name_or_config).lower()
    if name in MODELS:
        return MODELS[name]
    for other in MODELS.names():
        if name in MODELS[other].aliases:
            return MODELS[other]
    raise _unknown(str(name_or_config))


def _unknown(name: str) -> UnknownNameError:
    known = MODELS.names()
    near = difflib.get_close_matches(name.lower().rsplit("/", 1)[-1], known, n=3, cutoff=0.5)
    what = "not known, nor a file that is there" if "/" in name or Path(name).suffix else "not known"
    hint = f"did you mean {', '.join(near)}? Or give" if near else "give its name or"
    listed = f"nothing is downloaded ('nearpeak show models' lists all {len(known)})"
    return UnknownNameError(f"model {name!r}: {what}; {hint} the path of a config.json or an ONNX file; {listed}")


def _from_file(path: Path) -> Published:
    if not path.is_file():
        raise SpecError(f"{path}: no such file; give the path of a config.json, nothing is downloaded")
    try:
        data = json_value(text_of_file(path))
    except ValueError as error:
        raise SpecError(f"{path}: not JSON ({error}); give a model's config.json") from None
    if not isinstance(data, dict) or not isinstance(data.get("model_type"), str):
        raise SpecError(f"{path}: has no 'model_type'; give the config.json of a Hugging Face model")
    quantisation = data.pop("quantization_config", None)
    notes = (note_on(quantisation),) if isinstance(quantisation, dict) and quantisation else ()
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    dtype = data.get("dtype") or data.get("torch_dtype") or ""
    return Published(
        name=name, title=name, model_type=data["model_type"],
        class_names=tuple(item for item in data.get("architectures") or () if isinstance(item, str)),
        source=f"{path.name} in {path.resolve().parent.name}", dtype=str(dtype).removeprefix("torch."),
        config={key: value for key, value in data.items() if key not in _NOT_DIMENSIONS},
        notes=notes,
    )  # fmt: skip
