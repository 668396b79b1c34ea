"""Choice of the kernel model that predicts an operator, its formats and its attributes."""

from collections.abc import Mapping
from functools import lru_cache

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction import KERNEL_MODELS
from nearpeak.prediction.kernel_model import KernelModel


def model_for(case: Case, target: Target | None = None) -> KernelModel:
    """Return the model that answers for a case."""
    return model_of(case.op, case.phase, target, dict(case.dtypes), dict(case.attributes))


def model_of(
    op: str, phase: str, target: Target | None = None,
    dtypes: Mapping[str, str] | None = None, attributes: Mapping[str, str | bool] | None = None,
) -> KernelModel:  # fmt: skip
    """Return the model that answers for an operator; on the CPU at hand one for all of them.

    Formats and choices that the operator's own model does not model are left to the one for all operators.
    """
    if target is not None and target.kind == "cpu":
        return KERNEL_MODELS["cpu"]
    model = _forms().get((op, phase))
    if model is not None and dtypes is not None and model.lacks(dtypes, attributes or {}):
        model = next((fallback for fallback in _fallbacks() if op in fallback.ops and phase in fallback.phases), model)
    if model is None:
        known = ", ".join(sorted({name for name, its in _forms() if its == phase})) or "no operator"
        raise NotModelledError(f"predict: no model for {op} ({phase}); {phase} of {known} can be predicted")
    return model


@lru_cache
def _fallbacks() -> tuple[KernelModel, ...]:
    return tuple(model for model in (KERNEL_MODELS[name] for name in KERNEL_MODELS) if model.is_fallback)


@lru_cache
def _forms() -> Mapping[tuple[str, str], KernelModel]:
    models = sorted((KERNEL_MODELS[name] for name in KERNEL_MODELS), key=lambda model: not model.is_fallback)
    return {(op, phase): model for model in models for op in model.ops for phase in model.phases}
