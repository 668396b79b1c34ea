"""Achievable time: one form per family of operators, with scalars fitted on measurements."""

from typing import TYPE_CHECKING

from nearpeak.base.registry import Registry

if TYPE_CHECKING:
    from nearpeak.prediction.kernel_model import Form

__all__ = ["FORMS"]


FORMS: "Registry[Form]" = Registry.of_modules(
    "FORM", kind="form", package=__name__, file=__file__, group="nearpeak.forms", pattern="models/*.py"
)
"""All forms by family; a file of forms/ is one."""
