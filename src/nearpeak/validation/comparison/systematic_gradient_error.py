"""Detection of systematic error in narrow gradients, along each term that a gradient consists of."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import MeasureError
from nearpeak.ops import OPS
from nearpeak.validation.comparison.output_comparison import values_of
from nearpeak.validation.comparison.systematic_error import (
    DOUBTFUL,
    ENOUGH,
    MOST_ELEMENTS,
    MOST_GROUPED,
    STAGES,
    narrow,
)
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.inputs.rounds import SEED_STEP
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, unbounded_draw
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, rounded
from nearpeak.validation.oracle.gradient_oracle import (
    Derivation,
    NamedPositions,
    at_positions,
    derivation,
    differentiated,
    named_by,
    unrounded,
    upstream_of,
)
from nearpeak.validation.oracle.gradient_terms import (
    LEAST_SIZE,
    WHOLE,
    Steps,
    Terms,
    step_description,
    stored,
    terms_of,
    unlike_steps,
)
from nearpeak.validation.running.implementation_run import Implementation, pytorch_of

LEAST_SHARE = 1 / 24
"""Error along a term, in roundoffs and lengths of the gradient, that rounding may cause."""
FIRST_SEED = 1000
"""First seed of the draws, in steps, beyond the seeds of all rounds."""
KEPT_ELEMENTS = 2**13
"""Elements of inputs up to which draws are cached for the next implementation."""
MOST_AGAIN = 2**24
"""Input elements over all draws up to which more are drawn: a dozen draws suffice for large gradients."""
Key = tuple[str, int]
"""A gradient's name, and the step of the oracle along whose term its error is measured."""
Errors = Mapping[Key, Any]
"""By gradient and step: for each group of draws, the error along that term in units of its length, and the length of
the gradient."""


def systematic_gradient_fault(case: Case, implementation: Implementation, seed: int) -> str:
    """Return which gradient has a term that is too large or too small by a factor; empty where none has.

    Rounding errors have no mean direction over fresh inputs. A wrong factor in one step gives an error along the
    gradient's derivative by that step, which may be orthogonal to the gradient itself.
    """
    doubtful: set[Key] = set()
    for count, limit in STAGES:
        if count > STAGES[0][0] and count * _group_of(case) * _elements(case) > MOST_AGAIN:
            break
        errors_by_term = _errors(case, implementation, seed, count)
        apart = {key: _apart(errors) for key, errors in errors_by_term.items() if not doubtful or key in doubtful}
        for key, errors in sorted(apart.items(), key=lambda item: -item[1]):
            if errors > limit and not _is_usual(case, seed, count, key, errors_by_term[key]):
                description = _description(case, seed, key[1], _share(errors_by_term[key]))
                return f"{key[0]}: over {count} draws {description}, {errors:.0f} errors"
        doubtful = {key for key, errors in apart.items() if errors > DOUBTFUL}
        if not doubtful:
            break
    return ""


def _description(case: Case, seed: int, step: int, share: float) -> str:
    """Return a description of the error: of the whole gradient, or of the term that one step adds to it."""
    if step == WHOLE:
        return f"it is off by {share:+.2e} of itself"
    draw = _draw(case, seed, 0)
    assert draw is not None  # its errors have been computed
    return (
        f"what {step_description(draw.derived(()), step, case.label())} adds to it is off by {share:+.2e} of the whole"
    )


def _apart(errors: Any) -> float:
    """Return how many standard errors the mean error along a term is from 0."""
    along = errors[:, 0]
    return float(abs(along.mean()) / max(along.std(ddof=1) / np.sqrt(len(along)), 1e-300))


def _share(errors: Any) -> float:
    """Return the mean error along a term over the length of the gradient."""
    return float(errors[:, 0].mean() / max(np.sqrt((errors[:, 1] ** 2).mean()), 1e-300))


def _is_usual(case: Case, seed: int, count: int, key: Key, errors: Any) -> bool:
    """Return whether PyTorch's gradient, or one with rounded intermediates, has at least half of the same error.

    A norm has few distinct factors, whose rounding errors need not cancel.
    """
    usual = _usual(case, seed, count).get(key)
    others = [*([] if usual is None else [usual]), *_stored(case, seed, count, key)]
    shares = [_share(entry) for entry in others if _apart(entry) > DOUBTFUL]
    return any(entry * _share(errors) > 0 and abs(_share(errors)) <= 2 * abs(entry) for entry in shares)


@lru_cache(maxsize=64)
def _usual(case: Case, seed: int, count: int) -> Errors:
    """Return the errors of PyTorch's own implementation."""
    return _errors(case, pytorch_of(case), seed, count)


@lru_cache(maxsize=64)
def _stored(case: Case, seed: int, count: int, key: Key) -> tuple[Any, ...]:
    """Return the errors along one term where the oracle rounds one step, or all, to the narrow format."""
    name, step = key
    sums: dict[int, Any] = {}
    for number in range(count * _group_of(case)):
        draw = _draw(case, seed, number)
        assert draw is not None  # its errors have been computed
        terms, dtype = _terms(draw, seed, ())[name], draw.inputs.tensors[name.removeprefix("grad_")].dtype
        for stored_step, gradients in stored(draw.derived(()), dtype, case.label()).items():
            if name in gradients and gradients[name].shape == terms[WHOLE].shape:
                three = _products(gradients[name], terms[WHOLE], terms[step])
                sums.setdefault(stored_step, np.zeros((count, 3)))[number // _group_of(case)] += three
    return tuple(_in_lengths(draw) for draw in sums.values() if _is_long(draw))


def _errors(case: Case, implementation: Implementation, seed: int, count: int) -> Errors:
    """Return the errors along the terms that exceed what rounding may cause."""
    dtypes, group = _narrow(case), _group_of(case)
    sums: dict[Key, Any] = {}
    for number in range(count * group if dtypes else 0):
        draw = _draw(case, seed, number)
        products = None if draw is None else _projected(case, implementation, draw, seed)
        if products is None:
            return {}
        for key, three in products.items():
            sums.setdefault(key, np.zeros((count, 3)))[number // group] += three
    errors = {key: _in_lengths(draw) for key, draw in sums.items() if _is_long(draw)}
    return {k: draw for k, draw in errors.items() if abs(_share(draw)) > LEAST_SHARE * UNIT_ROUNDOFF[dtypes[k[0]]]}


def _is_long(sums: Any) -> bool:
    """Return whether a term exists in each group of draws and is large enough to show a wrong factor."""
    return bool((sums[:, 1] > 0).all() and sums[:, 1].sum() > LEAST_SIZE**2 * sums[:, 2].sum())


def _in_lengths(sums: Any) -> Any:
    """Return errors along a term in units of its length, and lengths of the gradient, from the sums of squares.

    Their spread is then that of rounding, whatever the length of the term in each draw.

    >>> _in_lengths(np.array([[6.0, 4.0, 25.0]])).tolist()
    [[3.0, 5.0]]
    """
    product, term, whole = sums.T
    return np.stack([product / np.sqrt(term), np.sqrt(whole)], axis=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _GradientDraw:
    """Fresh inputs with their upstream gradients."""

    inputs: Draw
    """The inputs with unrounded results."""
    upstream: Mapping[str, Any]
    """By output."""

    def derived(self, named: NamedPositions) -> Derivation:
        """Return the oracle's derivation of the gradients, at positions that the implementation chose."""
        above = {f"grad_{name}": gradient for name, gradient in self.upstream.items()}
        return derivation(self.inputs, above, at_positions(self.inputs, named))


def _projected(
    case: Case, implementation: Implementation, gradient_draw: _GradientDraw, seed: int
) -> dict[Key, tuple[float, float, float]] | None:
    """Return the products by gradient and step; none where the implementation fails or its positions are unknown."""
    try:
        gradients, outputs = differentiated(implementation, gradient_draw.inputs, gradient_draw.upstream)
    except Exception:  # the rounds have reported an exception
        return None
    named = named_by(gradient_draw.inputs, outputs, gradients)
    picks = tolerance_of(case).picks.keys()
    if picks and not (named or picks & outputs.keys()):  # the gradient's positions are unknown
        return None
    products: dict[Key, tuple[float, float, float]] = {}
    got = values_of(gradients)
    for name, terms in _terms(gradient_draw, seed, named).items():
        if name not in got or got[name].shape != terms[WHOLE].shape:
            continue
        # Rounded like a right result, so that the difference is the error of intermediates alone.
        wanted = rounded(terms[WHOLE], gradients[name].dtype)
        products |= {(name, step): _products(got[name], wanted, term) for step, term in terms.items()}
    return products


def _products(got: Any, wanted: Any, term: Any) -> tuple[float, float, float]:
    """Return the products error · term, term · term and wanted · wanted over elements where all three are finite.

    >>> _products(np.array([3.0, np.inf]), np.array([2.0, np.inf]), np.array([5.0, 1.0]))
    (5.0, 25.0, 4.0)
    """
    finite = np.isfinite(got) & np.isfinite(wanted) & np.isfinite(term)
    error, value, along = got[finite] - wanted[finite], wanted[finite], term[finite]
    return float(error @ along), float(along @ along), float(value @ value)


def _narrow(case: Case) -> dict[str, str]:
    """Return the formats of the gradients that are narrow, by name."""
    formats = {name: dtype_of(spec.dtype).name for name, spec in OPS[case.op].inputs(**arguments_of(case)).items()}
    return {f"grad_{name}": spec for name, spec in formats.items() if narrow(spec)}


def _group_of(case: Case) -> int:
    """Return how many draws are pooled for one error, where results are few."""
    inputs = OPS[case.op].inputs(**arguments_of(case))
    fewest = min((inputs[name.removeprefix("grad_")].elements for name in _narrow(case)), default=ENOUGH)
    elements = sum(tensor.elements for tensor in inputs.values())
    return int(max(1, min(-(-ENOUGH // max(fewest, 1)), MOST_GROUPED, MOST_ELEMENTS // max(elements, 1))))


def _draw(case: Case, seed: int, number: int) -> _GradientDraw | None:
    """Return one draw; none for operators that draw random numbers, or where the reference is not defined."""
    return _kept_draw(case, seed, number) if _is_small(case) else _fresh_draw(case, seed, number)


def _is_small(case: Case) -> bool:
    return _elements(case) <= KEPT_ELEMENTS


def _elements(case: Case) -> int:
    return sum(tensor.elements for tensor in OPS[case.op].inputs(**arguments_of(case)).values())


def _fresh_draw(case: Case, seed: int, number: int) -> _GradientDraw | None:
    if OPS[case.op].draws:
        return None
    tensors = drawn(case.op, arguments_of(case), (seed, "systematic", number), "normal")
    if tensors is None:
        return None
    try:
        draw = unrounded(unbounded_draw(case, tensors, "normal"), seed + SEED_STEP * (FIRST_SEED + number))
    except MeasureError:  # the reference is undefined on them
        return None
    upstream = upstream_of(draw, seed)
    return None if upstream is None else _GradientDraw(inputs=draw, upstream=upstream)


_kept_draw = lru_cache(maxsize=128)(_fresh_draw)


def _terms(draw: _GradientDraw, seed: int, named: NamedPositions) -> Terms:
    """Return the terms of each narrow gradient."""
    return _kept_terms(draw, seed, named) if _is_small(draw.inputs.case) else _fresh_terms(draw, seed, named)


def _fresh_terms(draw: _GradientDraw, seed: int, named: NamedPositions) -> Terms:
    return terms_of(
        draw.derived(named), _narrow(draw.inputs.case), _steps(draw.inputs.case, seed), draw.inputs.case.label()
    )


_kept_terms = lru_cache(maxsize=128)(_fresh_terms)


@lru_cache(maxsize=64)
def _steps(case: Case, seed: int) -> Steps:
    """Return the steps of the oracle whose terms are examined."""
    draw = _draw(case, seed, 0)
    assert draw is not None  # its errors are being computed
    return unlike_steps(draw.derived(()), _narrow(draw.inputs.case), case.label())
