"""A directed probe of one operator behaviour: inputs, the right result, and the check that rejects another one."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.runs.validation import PASS, CheckResult
from nearpeak.ops import Tolerance
from nearpeak.validation.comparison.output_comparison import comparable, compared, values_of
from nearpeak.validation.oracle.expected_results import Expected
from nearpeak.validation.oracle.float64_oracle import answers

Package = Any
Ours = Callable[[Package, Mapping[str, Any]], Any]
Theirs = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One behaviour that an operator must have."""

    operator: str
    """Class of the package."""
    name: str
    """The defect that it finds, in a few words."""
    ours: Ours
    """(package, arrays) → the package's result: an array or a tuple of arrays."""
    right: Theirs | None = None
    """(float64 torch tensors by name) → the right result; none where the package must refuse."""
    arrays: Mapping[str, Any]
    """Inputs."""
    formats: tuple[str, ...] = ("float32",)
    """Format of each output, as NumPy names it; it sets the bound."""
    of_format: bool = False
    """Whether a result in another format is the defect."""
    contract: str = "contraction"
    """Kind of the tolerance."""
    summand_count: float = 1.0
    """Length of the longest sum."""


def judged(probe: Probe, package: Package) -> CheckResult:
    """Return the check of the package's result for the probe."""
    inputs = {name: array.copy() for name, array in probe.arrays.items()}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            answer = probe.ours(package, inputs)
    except Exception as error:  # an exception is the package's result
        if probe.right is None:
            return CheckResult(check="V1", status=PASS)
        return CheckResult(check="V1", status="CRASH", reason=f"{type(error).__name__}: {error}")
    if probe.right is None:
        return CheckResult(check="V1", status="UNSUPPORTED", reason="accepted what must be refused")
    return _compared(probe, answer if isinstance(answer, tuple) else (answer,))


def _compared(probe: Probe, outputs: tuple[Any, ...]) -> CheckResult:
    import torch

    expected = _expected(probe)
    got = {f"y{index}": torch.as_tensor(np.array(output)) for index, output in enumerate(outputs)}
    if not comparable(got, expected):
        shapes = [tuple(y.shape) for y in got.values()]
        reason = f"got shape {shapes}, right {[entry.values.shape for entry in expected.values()]}"
        return CheckResult(check="V1", status="SHAPE_FAIL", reason=reason)
    compared_values = compared("V5", values_of(got), expected, "values")
    if compared_values.failed:
        return compared_values
    formats = tuple(np.asarray(output).dtype.name for output in outputs)
    if probe.of_format and formats != probe.formats:
        return CheckResult(check="V1", status="DTYPE_FAIL", reason=f"got {formats}, right {probe.formats}")
    return CheckResult(check="V5", status=PASS, worst=compared_values.worst)


def _expected(probe: Probe) -> dict[str, Expected]:
    """Return the expected results with their bounds, from PyTorch in float64."""
    import torch

    assert probe.right is not None
    right = probe.right

    def reference(arrays: dict[str, Any]) -> dict[str, Any]:
        results = right({name: torch.as_tensor(array) for name, array in arrays.items()})
        outputs = results if isinstance(results, tuple) else (results,)
        return {f"y{index}": output.detach().numpy() for index, output in enumerate(outputs)}

    tensors = {name: torch.as_tensor(np.array(array)) for name, array in probe.arrays.items()}
    formats = {f"y{index}": getattr(torch, name) for index, name in enumerate(probe.formats)}
    numerics = Tolerance(kind=probe.contract)
    return answers(reference, tensors, formats, numerics, probe.summand_count, f"{probe.operator}: {probe.name}")
