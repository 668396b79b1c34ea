"""Which form answers for an operator, its formats and its choices."""

from collections.abc import Mapping
from functools import lru_cache

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction import FORMS
from nearpeak.prediction.kernel_model import Form


def form_for(case: Case, target: Target | None = None) -> Form:
    """Return the form that answers for a case."""
    return form_of(case.op, case.phase, target, dict(case.dtypes), dict(case.attributes))


def form_of(
    op: str, phase: str, target: Target | None = None,
    dtypes: Mapping[str, str] | None = None, attributes: Mapping[str, str | bool] | None = None,
) -> Form:  # fmt: skip
    """Return the form that answers for an operator; on the CPU at hand one for all of them.

    Formats and choices that the operator's own form does not model are left to the one for all operators.
    """
    if target is not None and target.kind == "cpu":
        return FORMS["cpu"]
    found = _forms().get((op, phase))
    if found is not None and dtypes is not None and found.lacks(dtypes, attributes or {}):
        found = next((one for one in _fallbacks() if op in one.ops and phase in one.phases), found)
    if found is None:
        known = ", ".join(sorted({name for name, its in _forms() if its == phase})) or "no operator"
        raise NotModelledError(f"predict: no form for {op} ({phase}); {phase} of {known} can be predicted")
    return found


@lru_cache
def _fallbacks() -> tuple[Form, ...]:
    return tuple(form for form in (FORMS[name] for name in FORMS) if form.is_fallback)


@lru_cache
def _forms() -> Mapping[tuple[str, str], Form]:
    forms = sorted((FORMS[name] for name in FORMS), key=lambda form: not form.is_fallback)
    return {(op, phase): form for form in forms for op in form.ops for phase in form.phases}
