"""Achievable times of cases by kernel models, one per operator family, with coefficients fitted to measurements."""

from typing import TYPE_CHECKING

from nearpeak.base.registry import Registry

if TYPE_CHECKING:
    from nearpeak.prediction.kernel_model import KernelModel

__all__ = ["KERNEL_MODELS"]


KERNEL_MODELS: "Registry[KernelModel]" = Registry.of_modules(
    "KERNEL_MODEL", kind="kernel model", package=__name__, file=__file__, group="nearpeak.forms", pattern="models/*.py"
)
"""All models by family; a file of models/ is one."""
