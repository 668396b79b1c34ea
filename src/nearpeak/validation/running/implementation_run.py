"""Runs of an implementation on guarded copies of inputs in poisoned memory, with outputs, changes and errors."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from nearpeak.case_tensors.global_state import ChangedStateError, unchanged_state
from nearpeak.case_tensors.user_functions import exception_text, takes_out
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.validation.oracle.format_limits import format_name, poison_value
from nearpeak.validation.running.guard_buffers import Guarded
from nearpeak.validation.running.guard_buffers import imported_torch as imported_torch  # noqa: PLC0414  # said to be public

LEAST_ALIGNMENT_BYTES = 16
"""Alignment of every allocator; vectors and cache lines are wider, so that runs at multiples of it differ."""
Call = Callable[..., Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Implementation:
    """The implementation under test."""

    name: str
    """Its name in records."""
    call: Call
    """(inputs by name, **arguments of the case) → outputs by name; may take `out`, the outputs to write into."""
    is_runner: bool = False
    """Whether the name is a runner's, not a function's."""
    arrays: str = "torch"
    """Type of inputs and outputs: `torch` tensors or `numpy` arrays."""
    backward: Call | None = None
    """(inputs and `grad_<output>` by name, **arguments) → `grad_<input>` by name; PyTorch's autograd if none."""
    captured: (
        Callable[[Mapping[str, Any], Mapping[str, Any]], Callable[[Mapping[str, Any]], Mapping[str, Any]]] | None
    ) = None
    """(inputs, arguments) → a function that replays the captured graph with other inputs at the same addresses and
    returns the outputs; of runners that replay graphs."""
    concurrent: Call | None = None
    """The same call on a separate stream, while the device does other work."""
    there: Call | None = None
    """The same call with results that stay in device memory; its attribute `backward` is the gradient's rule with
    results that stay there too."""
    ledger: tuple[Mapping[str, Any], ...] | None = None
    """Rows of nodes that fell back to another backend, if the implementation was converted to one."""
    words: tuple[str, ...] = ()
    """Options of `nearpeak validate` that select it, where its name does not."""

    @property
    def takes_out(self) -> bool:
        """Whether the outputs are allocated by the caller."""
        return takes_out(self.call)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Outputs and side effects of one call."""

    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Copies of the outputs, torch tensors."""
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Strides of the outputs as returned."""
    changed: tuple[str, ...] = ()
    """Inputs that the call changed."""
    overrun: tuple[str, ...] = ()
    """Tensors outside whose bounds it wrote."""
    shared: tuple[tuple[str, str], ...] = ()
    """Outputs that alias an input, and that input."""
    error: str = ""
    """Why there are no outputs."""
    status: str = ""
    """CRASH, OOM or UNSUPPORTED where it raised."""


def columns_dense(call: Call, written: Iterable[str]) -> Call:
    """Return the call on column-major matrices, for which libraries have other kernels.

    Args:
        written: inputs that stay row-major, as the call writes to them.
    """
    fixed = frozenset(written)

    def by_columns(tensors: Mapping[str, Any], **arguments: Any) -> Mapping[str, Any]:
        turned = {k: t if k in fixed or t.dim() < 2 else t.mT.contiguous().mT for k, t in tensors.items()}
        return call(turned, **arguments)

    return by_columns


def pytorch_of(case: Case) -> Implementation:
    """Return PyTorch's own implementation of `case`."""
    return Implementation(name="PyTorch", call=OPS[case.op].torch_call)


def as_implementation(candidate: Any) -> Implementation:
    """Return `candidate` as an implementation: it is one already, or a callable on torch tensors.

    A callable may carry `arrays`, `backward`, `captured`, `concurrent`, `there` and `ledger` as attributes.
    """
    if isinstance(candidate, Implementation):
        return candidate
    if not callable(candidate):
        raise SpecError(f"validate: {candidate!r} is no callable; give a function of (inputs by name, **arguments)")
    name = f"{getattr(candidate, '__module__', '')}:{getattr(candidate, '__qualname__', type(candidate).__name__)}"
    carried = ("arrays", "backward", "captured", "concurrent", "there", "ledger")
    stated = {attribute: getattr(candidate, attribute) for attribute in carried if hasattr(candidate, attribute)}
    return Implementation(name=name, call=candidate, **stated)


def run(
    implementation: Implementation,
    tensors: Mapping[str, Any],
    arguments: Mapping[str, Any],
    *,
    outputs: Mapping[str, Any] | None = None,
    poison: str = "nan",
    shift_bytes: int = 0,
) -> RunRecord:
    """Return outputs and side effects of a call on guarded copies of `tensors`; an exception becomes a status.

    Args:
        outputs: shape and format of each output, for implementations that write into preallocated outputs.
        poison: contents of uninitialised memory: `nan` or `finite`.
        shift_bytes: offset of all tensors, so that runs differ in alignment.
    """
    inputs = {name: Guarded.holding(tensor, shift_bytes) for name, tensor in tensors.items()}
    preallocated = _outputs(implementation, outputs, poison, shift_bytes)
    return _ran(implementation, inputs, preallocated, arguments, poison)


def results_of(
    implementation: Implementation, tensors: Mapping[str, Any], arguments: Mapping[str, Any], outputs: Mapping[str, Any]
) -> tuple[Any, Mapping[str, Any]]:
    """Return the guarded inputs of a call and the tensors that it returned, not copies; exceptions pass through."""
    inputs = {name: Guarded.holding(tensor, 0) for name, tensor in tensors.items()}
    preallocated = _outputs(implementation, outputs, "nan", 0)
    with unchanged_state(imported_torch()), poisoned_memory("nan", [*inputs.values()]):
        return inputs, _called(implementation, inputs, preallocated, arguments)


def run_repeatedly(
    implementation: Implementation,
    rounds: Sequence[Mapping[str, Any]],
    arguments: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> RunRecord:
    """Return the run of the last of several calls, whose inputs have other values at the same addresses."""
    inputs = {name: Guarded.holding(tensor, 0) for name, tensor in rounds[0].items()}
    preallocated = _outputs(implementation, outputs, "nan", 0)
    ran = RunRecord()
    for tensors in rounds:
        for name, tensor in tensors.items():
            inputs[name].refill(tensor)
        ran = _ran(implementation, inputs, preallocated, arguments, "nan")
    return ran


def _outputs(
    implementation: Implementation, outputs: Mapping[str, Any] | None, poison: str, shift_bytes: int
) -> dict[str, Guarded]:
    if outputs is None or not implementation.takes_out:
        return {}
    return {name: Guarded.poisoned(tensor, poison, shift_bytes) for name, tensor in outputs.items()}


def _ran(
    implementation: Implementation,
    inputs: dict[str, Guarded],
    preallocated: dict[str, Guarded],
    arguments: Mapping[str, Any],
    poison: str,
) -> RunRecord:
    torch = imported_torch()
    try:
        with unchanged_state(torch), poisoned_memory(poison, [*inputs.values()]):
            called = _called(implementation, inputs, preallocated, arguments)
        results = {name: torch.as_tensor(value) for name, value in called.items()}
    except Exception as error:  # whatever an implementation raises is its result
        return RunRecord(error=words_of(error), status=status_of(error))
    return RunRecord(
        outputs={name: value.detach().clone() for name, value in results.items()},
        strides={name: tuple(value.stride()) for name, value in results.items()},
        changed=tuple(name for name, guarded in inputs.items() if guarded.changed()),
        overrun=tuple(name for name, guarded in (inputs | preallocated).items() if guarded.overrun()),
        shared=tuple(
            (name, input_name)
            for name, value in results.items()
            for input_name, guarded in inputs.items()
            if guarded.holds(value)
        ),
    )


def status_of(error: Exception) -> str:
    """Return the validation status of an implementation's exception."""
    if isinstance(error, ChangedStateError):
        return "CHANGED_STATE"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "OOM"
    return "UNSUPPORTED" if refuses(error) else "CRASH"


_REFUSALS = (
    "not implemented for", "compute capability", "is not supported", "are not supported", "not supported on",
    "Expected a floating point", "CUBLAS_STATUS_NOT_SUPPORTED", "Unsupported dtype", "is only supported for",
    "dtypes not supported", "of float, double, cfloat or cdouble types",
    "CUDNN_STATUS_NOT_SUPPORTED", "no kernel image is available", "compiling PyTorch with MAGMA",
    "when stream is capturing", "a previous error during capture",
)  # fmt: skip
"""Messages of PyTorch and its libraries where they have no kernel for a device or format."""


def refuses(error: Exception) -> bool:
    """Return whether an exception means that the software has no such kernel, rather than that one failed.

    >>> refuses(RuntimeError("torch._scaled_mm is only supported on devices with compute capability >= 8.9"))
    True
    >>> refuses(RuntimeError("linalg.inv: Low precision dtypes not supported. Got Half"))
    True
    >>> refuses(RuntimeError("CUDA error: operation not permitted when stream is capturing"))
    True
    >>> refuses(RuntimeError("CUDA error: an illegal memory access was encountered"))
    False
    """
    return isinstance(error, NotImplementedError) or any(sign in exception_text(error) for sign in _REFUSALS)


def words_of(error: Exception) -> str:
    r"""Return an exception in one line.

    >>> words_of(ValueError("no such kernel\nsecond line")), words_of(MemoryError())
    ('ValueError: no such kernel', 'MemoryError')
    """
    return ": ".join([type(error).__name__, *exception_text(error).splitlines()[:1]])


def _called(
    implementation: Implementation, inputs: dict[str, Guarded], preallocated: dict[str, Guarded], arguments: Any
) -> Mapping[str, Any]:
    numpy = implementation.arrays == "numpy"
    views = {name: guarded.view.numpy() if numpy else guarded.view for name, guarded in inputs.items()}
    if not preallocated:
        return implementation.call(views, **arguments)
    out = {name: guarded.view.numpy() if numpy else guarded.view for name, guarded in preallocated.items()}
    returned = implementation.call(views, **arguments, out=out)
    return {name: guarded.view for name, guarded in preallocated.items()} | dict(returned or {})


@contextmanager
def poisoned_memory(poison: str, like: list[Guarded]) -> Iterator[None]:
    """Poison uninitialised memory: tensors of PyTorch's allocating functions, and freed blocks."""
    recycled = [np.full(max(guarded.like.numel(), 1), poison_value("fp32", poison), np.float32) for guarded in like]
    del recycled
    with _poisoning()(poison):
        yield


@cache
def _poisoning() -> Any:
    """Return the mode in which functions that return uninitialised tensors fill them."""
    torch = imported_torch()
    from torch.overrides import TorchFunctionMode

    class Poisoning(TorchFunctionMode):  # type: ignore[misc]  # torch is not typed here
        def __init__(self, poison: str) -> None:
            super().__init__()
            self._poison = poison

        def __torch_function__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = call(*args, **(kwargs or {}))
            if getattr(call, "__name__", "") in _ALLOCATORS and isinstance(result, torch.Tensor):
                result.fill_(poison_value(format_name(result.dtype), self._poison))
            return result

    return Poisoning


_ALLOCATORS = ("empty", "empty_strided", "empty_like", "empty_permuted", "new_empty", "new_empty_strided")
