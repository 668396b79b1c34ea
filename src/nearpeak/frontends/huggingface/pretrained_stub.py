"""Replacement of `from_pretrained` that builds models from published dimensions instead of downloading weights."""

import difflib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from nearpeak.errors import CaptureError
from nearpeak.frontends.huggingface.published_models import MODELS, Published
from nearpeak.frontends.huggingface.transformers_package import built
from nearpeak.frontends.torch.fake_tensors import replaced

_HUB_NAME = re.compile(r"config\.json of (\S+)")
_DTYPE_OPTIONS = ("dtype", "torch_dtype")


def wants_pretrained(source: str) -> bool:
    """Return whether Python `source` loads pretrained models.

    >>> wants_pretrained("AutoModel.from_pretrained(name)"), wants_pretrained("import torch")
    (True, False)
    """
    return ".from_pretrained" in source


@contextmanager
def without_downloads() -> Iterator[None]:
    """Let `from_pretrained` of transformers build models from published dimensions while the block runs.

    A folder or file that exists is read as always; weights in it are not.
    """
    import transformers
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

    with ExitStack() as stack:
        for owner, stand_in in (
            (transformers.AutoConfig, _auto_config),
            (transformers.PreTrainedConfig, _configured(transformers.PreTrainedConfig.from_pretrained)),
            (transformers.PreTrainedModel, _model),
            (_BaseAutoModelClass, _auto_model),
            (transformers.PreTrainedTokenizerBase, _tokenizer),
            (transformers.AutoTokenizer, _tokenizer),
        ):
            stack.enter_context(replaced(owner, "from_pretrained", classmethod(stand_in)))
        yield


def published_as(name: str) -> Published:
    """Return the published dimensions of the model that the hub calls `name`.

    Raises:
        CaptureError: they did not come with nearpeak, and nothing is downloaded.

    >>> published_as("openai-community/gpt2").title, published_as("gpt2").title
    ('GPT-2', 'GPT-2')
    """
    known = _by_hub_name()
    model = known.get(name.lower()) or known.get(name.lower().rsplit("/", 1)[-1])
    if model is not None:
        return model
    near = difflib.get_close_matches(name.lower().rsplit("/", 1)[-1], known, n=3, cutoff=0.5)
    hint = f"; near it are {', '.join(near)}" if near else ""
    raise CaptureError(
        f"from_pretrained({name!r}): its dimensions did not come with nearpeak and nothing is downloaded; "
        f"give the path of a folder with its config.json{hint}"
    )


def _by_hub_name() -> dict[str, Published]:
    """Return published models by our name, by hub name, and by hub name without its owner."""
    models: dict[str, Published] = {}
    for name in MODELS:
        match = _HUB_NAME.search(MODELS[name].source)
        names = [name, *([match.group(1).lower(), match.group(1).lower().rsplit("/", 1)[-1]] if match else [])]
        for alias in names:
            models.setdefault(alias, MODELS[name])
    return models


def _is_local(name: object) -> bool:
    return Path(str(name)).exists()


def _auto_config(_cls: Any, name: Any, **options: Any) -> Any:
    import transformers

    if _is_local(name):
        settings, _ = transformers.PreTrainedConfig.get_config_dict(name)
        model_type = settings.pop("model_type", "")
    else:
        model = published_as(str(name))
        model_type, settings = model.model_type, dict(model.config)
        settings["architectures"] = list(model.class_names)
    unused = options.pop("return_unused_kwargs", False)
    config = transformers.AutoConfig.for_model(model_type, **{**settings, **_dimensions(options)})
    return (config, {}) if unused else config


def _configured(original: Callable[..., Any]) -> Callable[..., Any]:
    def from_pretrained(cls: Any, name: Any, **options: Any) -> Any:
        if _is_local(name):
            return original.__func__(cls, name, **options)  # type: ignore[attr-defined]  # a bound class method
        return cls(**{**published_as(str(name)).config, **_dimensions(options)})

    return from_pretrained


def _auto_model(cls: Any, name: Any, *_args: Any, **options: Any) -> Any:
    config = options.pop("config", None) or _auto_config(None, name, **_without_dtype(options))
    return built(lambda: cls.from_config(config, **_dtype(options))).eval()


def _model(cls: Any, name: Any, *_args: Any, **options: Any) -> Any:
    config = options.pop("config", None)
    if config is None:
        config = cls.config_class.from_pretrained(name, **_without_dtype(options))
    return built(lambda: cls._from_config(config, **_dtype(options))).eval()


def _tokenizer(_cls: Any, name: Any, *_args: Any, **_options: Any) -> Any:
    raise CaptureError(f"from_pretrained({str(name)!r}): vocabularies are not downloaded; make token numbers directly")


def _dimensions(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that set dimensions; those of loading have no meaning here."""
    loading = {
        "trust_remote_code", "revision", "cache_dir", "token", "use_auth_token", "force_download", "local_files_only",
        "device_map", "low_cpu_mem_usage", "attn_implementation", "quantization_config", "use_safetensors", "proxies",
        "subfolder", "code_revision", "return_unused_kwargs", *_DTYPE_OPTIONS,
    }  # fmt: skip
    return {key: value for key, value in options.items() if key not in loading}


def _without_dtype(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key not in _DTYPE_OPTIONS}


def _dtype(options: dict[str, Any]) -> dict[str, Any]:
    dtype = next((options[key] for key in _DTYPE_OPTIONS if options.get(key) not in (None, "auto")), None)
    return {} if dtype is None else {"dtype": dtype}
