"""Accuracy of a PyTorch model quantised after training and in training, beside fp32 trained as long, over seeds."""

import copy
import importlib.util
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.errors import MissingExtraError, SpecError
from nearpeak.precision.quantisation.precision_table import Accuracy

WIDTHS: Mapping[str, int] = {"int8": 8, "int4": 4, "int3": 3, "int2": 2}
"""Bits of weights and activations by precision."""
PARTS = ("model", "fit", "accuracy")
"""What a task must have; `calibrate` may be added."""
_SHAPE = (
    "a mapping with model (trained), fit(model, epochs), accuracy(model) between 0 and 1, and, if it differs from "
    "accuracy, calibrate(model)"
)


def trained_accuracies(
    source: str, ptq: Sequence[str], qat: Sequence[str], seed_count: int, epoch_count: int
) -> dict[str, tuple[Accuracy, ...]]:
    """Return the accuracies of a model by precision; executed in this process.

    Each seed makes a trained model. fp32 is trained on by `epoch_count` epochs, which is the control of all others;
    so is what is quantised in training, from where quantisation after training left it.

    Args:
        source: `file.py:function`; the function takes a seed and returns a task.
        ptq: precisions of quantisation after training.
        qat: precisions of quantisation in training.

    Raises:
        SpecError: the function is missing, or returns something else.
        MissingExtraError: the library that quantises is not installed.
    """
    make, library = task_function(source), _library()
    torch = torch_or_refusal("precision --qat")
    base, control = list[float](), list[float]()
    ratios: dict[tuple[str, str], list[float]] = {}
    for seed in range(seed_count):
        torch.manual_seed(seed)
        task = _task(make(seed), source)
        base.append(_right(task, task["model"]))
        control.append(_right(task, _fitted(task, copy.deepcopy(task["model"]), epoch_count)))
        for name in dict.fromkeys((*ptq, *qat)):
            torch.manual_seed(seed)
            model = _quantised(library, task, WIDTHS[name])
            if name in ptq:
                ratios.setdefault((name, "ptq"), []).append(_right(task, model))
            if name in qat:
                ratios.setdefault((name, "qat"), []).append(_right(task, _fitted(task, model, epoch_count)))
    accuracies: dict[str, tuple[Accuracy, ...]] = {
        "fp32": (
            Accuracy(right_ratio=tuple(control), control_ratio=tuple(control), trained="control"),
            Accuracy(right_ratio=tuple(base), control_ratio=tuple(control), trained="as made"),
        )
    }
    for (name, how), values in ratios.items():
        accuracy = Accuracy(right_ratio=tuple(values), control_ratio=tuple(control), trained=how)
        accuracies[name] = (*accuracies.get(name, ()), accuracy)
    return accuracies


def task_function(source: str) -> Callable[[int], Any]:
    """Return the function that `file.py:function` names.

    Raises:
        SpecError: there is none.
    """
    file, _, name = source.rpartition(":")
    path = Path(file)
    if not name or path.suffix != ".py" or not path.is_file():
        raise SpecError(f"{source}: is no FILE.py:FUNCTION; the function takes a seed and returns {_SHAPE}")
    specification = importlib.util.spec_from_file_location("nearpeak_training_task", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        raise SpecError(f"{file}: cannot be imported: {type(error).__name__}: {error}") from None
    function = getattr(module, name, None)
    if not callable(function):
        raise SpecError(f"{source}: {file} defines no function {name!r}")
    return function  # type: ignore[no-any-return]  # the user's


def _task(task: Any, source: str) -> Mapping[str, Any]:
    missing = [part for part in PARTS if part not in task] if isinstance(task, Mapping) else list(PARTS)
    if missing:
        raise SpecError(f"{source}: returns no {missing[0]!r}; wanted {_SHAPE}")
    return task  # type: ignore[no-any-return]  # the user's


def _right(task: Mapping[str, Any], model: Any) -> float:
    right = float(task["accuracy"](model))
    if not 0 <= right <= 1:
        raise SpecError(f"accuracy: returned {right:g}; the part of right answers is between 0 and 1")
    return right


def _fitted(task: Mapping[str, Any], model: Any, epoch_count: int) -> Any:
    task["fit"](model, epoch_count)
    return model


def _quantised(library: Any, task: Mapping[str, Any], bits: int) -> Any:
    """Return a copy of the model with weights scaled per channel, activations per tensor, of that many bits."""
    rules = [
        {"quantizer_name": "*", "enable": False},
        {"quantizer_name": "*weight_quantizer", "cfg": {"num_bits": bits, "axis": 0}},
        {"quantizer_name": "*input_quantizer", "cfg": {"num_bits": bits, "axis": None}},
    ]
    calibrate = task.get("calibrate", task["accuracy"])
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return library.quantize(copy.deepcopy(task["model"]), {"quant_cfg": rules, "algorithm": "max"}, calibrate)


def _library() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import modelopt.torch.quantization as library
    except ImportError as error:
        raise MissingExtraError(
            f"--ptq, --qat: need nvidia-modelopt ({error}); install it with: pip install 'nearpeak[quantisation]'"
        ) from None
    return library
