"""Adapter of beaverpy's NumPy operators: implementations under test, and the behaviours in which they differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.runs.validation import CheckResult
from nearpeak.core.work.case import Case
from nearpeak.errors import MissingExtraError, NotModelledError
from nearpeak.validation import Implementation
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak_beaverpy.conv_pool import CONV_POOL
from nearpeak_beaverpy.pointwise import POINTWISE
from nearpeak_beaverpy.probe import Probe, judged

OPERATORS = ("Conv2D", "CosineSimilarity", "Linear", "MSELoss", "MaxPool2D", "ReLU", "Sigmoid", "Softmax")
PROBES: tuple[Probe, ...] = (*CONV_POOL, *POINTWISE)
"""Every tested behaviour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A behaviour in which the package differs from the operator's definition."""

    operator: str
    """Class of the package."""
    name: str
    """The defect."""
    result: CheckResult
    """The check that rejects it, with the reason."""


def installed() -> Any:
    """Return the package.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import beaverpy
    except ImportError:
        raise MissingExtraError("beaverpy is not installed; 'pip install beaverpy'") from None
    return beaverpy


def divergences(package: Any, operators: Sequence[str] = OPERATORS) -> Iterator[Divergence]:
    """Yield each behaviour of `package` that a check rejects, of all or some of its operators."""
    for probe in (probe for probe in PROBES if probe.operator in operators):
        result = judged(probe, package)
        if result.failed:
            yield Divergence(operator=probe.operator, name=probe.name, result=result)


def implementation(case: Case, package: Any = None) -> Implementation:
    """Return the package's operator for a case of the catalogue, as an implementation for `validate`.

    Raises:
        NotModelledError: the package has no operator for the case.
    """
    if case.op not in RULES:
        raise NotModelledError(f"beaverpy: no operator for {case.op}; it has {', '.join(OPERATORS)}")
    operators, rule = package or installed(), RULES[case.op]
    rule(operators, None, arguments_of(case))  # refuses here what the package cannot compute

    def call(arrays: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
        return {_OUTPUT.get(case.op, "y"): rule(operators, arrays, arguments)}

    return Implementation(name="beaverpy", call=call, arrays="numpy")


_OUTPUT = {"conv": "output", "max_pool": "output"}


def _conv(package: Any, arrays: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    _without("conv", arguments, bias=True)
    sizes = [(arguments[f"{axis}h"], arguments[f"{axis}w"]) for axis in "kpsd"]
    groups, channels = arguments["groups"], (arguments["in_channels"], arguments["out_channels"])
    made = package.Conv2D(*channels, sizes[0], padding=sizes[1], stride=sizes[2], dilation=sizes[3], groups=groups)
    return None if arrays is None else made.forward(_planes(arrays["input"]), _planes(arrays["weight"]))


def _planes(array: Any) -> Any:
    """Return [batch, channels, h, w] of an array with or without depth."""
    return array.reshape(*array.shape[:2], *array.shape[-2:])


def _max_pool(package: Any, arrays: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    _without("max_pool", arguments, ceil=True, indices=True)
    sizes = [(arguments[f"{axis}h"], arguments[f"{axis}w"]) for axis in "kpsd"]
    made = package.MaxPool2D(sizes[0], padding=sizes[1], stride=sizes[2], dilation=sizes[3])
    return None if arrays is None else made.forward(_planes(arrays["input"]))


def _linear(package: Any, arrays: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    if arguments["batch"] != 1 or arguments["bias_elements"] not in (0, arguments["n"]):
        raise NotModelledError("beaverpy: Linear takes one matrix, with one bias per column")
    made = package.Linear(arguments["k"], arguments["n"], bias=arguments["bias"])
    return None if arrays is None else made.forward(arrays["a"], arrays["b"][0].T, arrays.get("bias"))


def _softmax(package: Any, arrays: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    _without("softmax", arguments, log=True)
    return None if arrays is None else package.Softmax(dim=-1).forward(arrays["x"])


def _loss(package: Any, arrays: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    if arguments["function"] not in ("mse", "mse_loss"):
        raise NotModelledError(f"beaverpy: no loss {arguments['function']}; it has MSELoss")
    made = package.MSELoss(reduction=arguments["reduction"])
    return None if arrays is None else made.forward(*arrays.values())


def _activation(package: Any, arrays: Mapping[str, Any] | None, arguments: Mapping[str, Any]) -> Any:
    classes = {"relu": "ReLU", "sigmoid": "Sigmoid"}
    if arguments["function"] not in classes:
        raise NotModelledError(f"beaverpy: no function {arguments['function']}; it has relu and sigmoid")
    made = getattr(package, classes[arguments["function"]])()
    return None if arrays is None else np.asarray(made.forward(arrays["a"]))


def _without(op: str, arguments: Mapping[str, Any], **refused: Any) -> None:
    for name, value in refused.items():
        if arguments[name] == value:
            raise NotModelledError(f"beaverpy: {op} with {name}={str(value).lower()} is not something it takes")


RULES = {
    "conv": _conv, "max_pool": _max_pool, "gemm": _linear, "softmax": _softmax, "pointwise_loss": _loss,
    "elementwise": _activation,
}  # fmt: skip
"""How the package computes each operator of the catalogue that it has."""
