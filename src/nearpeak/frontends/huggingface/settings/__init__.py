"""Settings of model types that cannot be captured with transformers' defaults: one file per type."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


@cache
def settings_of(model_type: str) -> Mapping[str, Any]:
    """Return what the file of a type says: settings of the configuration, sizes of inputs, least layers."""
    path = Path(__file__).parent / f"{model_type}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
