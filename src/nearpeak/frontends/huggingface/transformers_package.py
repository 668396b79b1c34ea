"""Import of transformers in offline mode, and construction of models without random behaviour."""

import os
from collections.abc import Callable
from typing import Any

from nearpeak.errors import MissingExtraError
from nearpeak.frontends.huggingface.routed_experts import route_tokens

SWITCHES = {
    "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "apply_spec_augment": False,
    "output_router_logits": False,
}  # fmt: skip
"""Settings that would make the forward pass random."""


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


def built(build: Callable[[], Any]) -> Any:
    """Return the model that `build` makes, as after loading; initial values do not matter and are not drawn."""
    from transformers import initialization

    with initialization.no_init_weights():
        model = build()
    model.tie_weights()  # skipped together with the initial values
    route_tokens(model)
    return model
