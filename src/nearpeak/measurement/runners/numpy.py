"""Runner of the float64 NumPy references: slow, and correct by definition."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine.environment import OnCpu
from nearpeak.ops import OPS


class NumpyReference(OnCpu):
    """The operator's NumPy reference."""

    name = "numpy"
    packages = ("numpy",)
    abilities = RunnerAbilities(devices=("cpu",), needs=("numpy",))
    is_reference = True

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run on arrays widened to float64."""
        start = time.perf_counter()
        sets = [
            {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in arrays.items()}
            for arrays in inputs
        ]
        make = _forward if case.phase == "forward" else _backward
        runs = tuple(make(case, arrays) for arrays in sets)
        build_s = time.perf_counter() - start
        return Prepared(runs=runs, outputs=named_arrays, algorithm="NumPy float64", phases_s={"build": build_s})

    def implementation(self, case: Case) -> None:
        """Return none: the reference itself is not validated."""
        del case


def named_arrays(result: Any) -> dict[str, Any]:
    """Return outputs by name as arrays.

    >>> named_arrays({"y": 1.0})["y"].dtype.name
    'float64'
    """
    return {name: np.asarray(array) for name, array in result.items()}


def _forward(case: Case, arrays: Mapping[str, Any]) -> Callable[[], object]:
    reference, arguments = OPS[case.op].reference, forward_arguments(case)
    return lambda: reference(arrays, **arguments)


def _backward(case: Case, arrays: Mapping[str, Any]) -> Callable[[], object]:
    """Return the gradient's reference, on outputs of the forward reference."""
    operator = OPS[case.op]
    assert operator.backward_reference is not None  # a case of the phase could not have been made without
    outputs = operator.reference(arrays, **forward_arguments(case))
    generator = np.random.default_rng(0)
    upstream = {f"grad_{name}": generator.standard_normal(np.shape(array)) for name, array in outputs.items()}
    case_arguments = {**dict(case.axes), **dict(case.dtypes), **dict(case.attributes)}
    reference, known = operator.backward_reference, {**arrays, **outputs, **upstream}
    return lambda: reference(known, **case_arguments)


RUNNER = NumpyReference
