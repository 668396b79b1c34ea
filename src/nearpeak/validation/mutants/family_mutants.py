"""Mutants of particular operators: missing loss terms, misplaced epsilons, other attributes, last of ties."""

from collections.abc import Callable, Iterator
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import OPS
from nearpeak.validation.mutants.mutant import Mutant, Tensors, right_call
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import declared_formats
from nearpeak.validation.running.implementation_run import Call

Rule = Callable[..., Tensors]


def of_families(case: Case) -> Iterator[Mutant]:
    """Yield the mutants of typical mistakes in the operator's family."""
    for row, rule in _RULES.get(case.op, {}).items():
        yield Mutant(row=row, where="", make=_always(rule))
    for name, value in case.attributes:
        if value in _OTHER and _accepts(case, {name: _OTHER[value]}):
            yield Mutant(row=f"{_OTHER[value]} for {value}", where=name, make=_with(case, {name: _OTHER[value]}))
        if value is True and not name.startswith("grad_") and _accepts(case, {name: False}):
            yield Mutant(row="choice ignored", where=name, make=_with(case, {name: False}), ignores=name)
    if case.op in _FLIPPED and any(not dtype.is_floating_point for dtype in declared_formats(case).values()):
        yield Mutant(row="ties to the last", where="", make=_always(_FLIPPED[case.op](case)))


_OTHER: dict[object, str] = {"mean": "sum", "sum": "mean", "var": "sum_square", "max_index": "min_index"}
"""Attributes that are easily confused: mean and sum, maximum and minimum."""


def _always(call: Call) -> Callable[[], Call]:
    return lambda: call


def _with(case: Case, other: dict[str, Any]) -> Callable[[], Call]:
    right = right_call(case)
    return _always(lambda tensors, **arguments: right(tensors, **{**arguments, **other}))


def _accepts(case: Case, other: dict[str, Any]) -> bool:
    """Return whether the operator has a case with these attributes, the same outputs and no further inputs."""
    arguments = {**arguments_of(case), **other}
    try:
        changed = OPS[case.op].case("forward", **arguments)
        known = OPS[case.op].inputs(**arguments).keys() <= OPS[case.op].inputs(**arguments_of(case)).keys()
        return known and declared_formats(changed).keys() == declared_formats(case).keys()
    except (NearpeakError, LookupError, RuntimeError, TypeError):
        return False


def _without_softmax_term(tensors: Tensors, reduction: str, **arguments: Any) -> Tensors:
    """Return the right loss with a gradient without probabilities: it is non-zero at the target alone."""
    right = OPS["cross_entropy"].torch_call(tensors, reduction=reduction, **arguments)["y"].detach()
    rows = -tensors["x"].gather(1, tensors["target"][:, None])[:, 0]
    share = rows if reduction == "none" else getattr(rows, reduction)()
    return {"y": right + (share - share.detach())}


def _adamw_inside(tensors: Tensors, decay: str, amsgrad: bool, **arguments: Any) -> Tensors:
    """Return the step with epsilon inside the root."""
    before = tensors["parameter"].clone()
    outputs = dict(OPS["adamw"].torch_call(tensors, decay=decay, amsgrad=amsgrad, **arguments))
    shrunk = before * (1 - 1e-5) if decay == "decoupled" else before
    square = outputs["largest" if amsgrad else "square"]
    step = outputs["moment"].to(before.dtype) / 0.1 / ((square.to(before.dtype) / 0.001 + 1e-8).sqrt())
    outputs["parameter"] = shrunk - 1e-3 * step
    return outputs | ({"copy": outputs["parameter"].to(outputs["copy"].dtype)} if "copy" in outputs else {})


def _last_of_pool(case: Case) -> Call:
    """Return max pooling with indices of the last of equal values."""
    right, side = right_call(case), -1

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        x = tensors["input"]
        outputs = dict(right(tensors, **arguments))
        if "indices" in outputs:
            values = x.reshape(*x.shape[:2], -1)
            flat = outputs["output"].reshape(*x.shape[:2], -1)
            same = values[..., None, :] == flat[..., :, None]
            last = values.shape[-1] - 1 - same.flip(side).int().argmax(side)
            outputs["indices"] = last.view(outputs["indices"].shape).to(outputs["indices"].dtype)
        return outputs

    return call


def _last_of_reduce(case: Case) -> Call:
    right = right_call(case)

    def call(tensors: Tensors, **arguments: Any) -> Tensors:
        x = tensors["x"]
        outputs = dict(right({**tensors, "x": x.flip(-1)}, **arguments))
        whole = {name: y for name, y in outputs.items() if not y.is_floating_point() and str(y.dtype) == "torch.int64"}
        return outputs | {name: x.shape[-1] - 1 - y for name, y in whole.items()}

    return call


_FLIPPED: dict[str, Callable[[Case], Call]] = {
    "max_pool": _last_of_pool,
    "adaptive_max_pool": _last_of_pool,
    "reduce": _last_of_reduce,
}
_RULES: dict[str, dict[str, Rule]] = {
    "cross_entropy": {"softmax term missing": _without_softmax_term},
    "adamw": {"epsilon inside the root": _adamw_inside},
}
