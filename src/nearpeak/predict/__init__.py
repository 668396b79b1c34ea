"""Achievable time: one form per family of operators, with scalars fitted on measurements."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from nearpeak.registry import Registry

if TYPE_CHECKING:
    from nearpeak.predict._form import Form

__all__ = ["FORMS"]


def _load(name: str) -> "Form":
    form: Form = importlib.import_module(f"nearpeak.predict.forms.{name}").FORM
    return form


FORMS: "Registry[Form]" = Registry(
    kind="form", folder=Path(__file__).parent / "forms", suffix=".py", load=_load, group="nearpeak.forms"
)
"""All forms by family; a file of forms/ is one."""
