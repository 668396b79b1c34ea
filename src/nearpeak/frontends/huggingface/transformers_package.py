"""Import of transformers in offline mode, and construction of models without random behaviour."""

import os
from typing import Any

from nearpeak.errors import MissingExtraError

SWITCHES = {
    "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "apply_spec_augment": False,
    "output_router_logits": False,
}  # fmt: skip
"""Settings that would leave parts of the model to chance."""


def transformers_package() -> Any:
    """Return the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            f"transformers: not installed ({error}); install it with: pip install 'nearpeak[hf]'"
        ) from None
    return transformers


def built(cls: Any, config: Any, dtype: Any) -> Any:
    """Return a model of `cls`; its initial values do not matter, so they are not drawn."""
    from transformers import initialization

    with initialization.no_init_weights():
        model = cls._from_config(config, dtype=dtype)
    model.tie_weights()  # skipped together with the initial values
    return model
