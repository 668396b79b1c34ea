"""Shared base of the PyTorch runners: a case's call on a device, and its gradient alone."""

import operator
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from nearpeak.case_tensors.empty_cases import refuse_empty
from nearpeak.case_tensors.global_state import unchanged_state
from nearpeak.case_tensors.memory_placement import dense
from nearpeak.case_tensors.output_shapes import output_names
from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.case_tensors.torch_tensors import as_arrays, tensors_of
from nearpeak.case_tensors.user_functions import EndedError, takes_out, with_named_outputs
from nearpeak.core.runs.measurement import Outcome
from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.measurement.machine.recorded_calls import recorded_call
from nearpeak.ops import OPS

Call = Callable[..., dict[str, Any]]


def prepared(
    torch: Any,
    case: Case,
    inputs: tuple[Mapping[str, Any], ...],
    device: str,
    wrap: Callable[[Call], Call] | None = None,
) -> Prepared:
    """Return `case` ready to run through its operator's PyTorch call.

    Args:
        wrap: turns the call into the one that is timed, e.g. by compiling it; none leaves it as it is.
    """
    refuse_empty(case)
    arguments = forward_arguments(case)
    call: Call = OPS[case.op].torch_call if wrap is None else wrap(OPS[case.op].torch_call)
    start = time.perf_counter()
    sets = [tensors_of(torch, case, arrays, device) for arrays in inputs]
    build_s = time.perf_counter() - start
    phases_s = {"build": build_s}
    if not any(sets):
        call = on_device(torch, device, call)
    if case.phase == "forward":
        lean = device == "cpu" and wrap is None
        runs = tuple(_forward(torch, call, tensors, arguments, lean=lean) for tensors in sets)
        refresh = _refresh(torch, sets, inputs) if device == "cpu" else None
        outputs = partial(as_arrays, torch)
        return Prepared(runs=runs, outputs=outputs, phases_s=phases_s, refresh=refresh)
    both = [_backward(torch, case, call, tensors) for tensors in sets]
    runs, upstream = tuple(run for run, _ in both), tuple(as_arrays(torch, gradients) for _, gradients in both)
    above = [gradients for _, gradients in both]
    return Prepared(
        runs=runs, outputs=partial(as_arrays, torch), upstream=upstream, phases_s=phases_s,
        refresh=_refresh(torch, above, upstream) if device == "cpu" else None,
    )  # fmt: skip


def _refresh(
    torch: Any, sets: list[dict[str, Any]], inputs: tuple[Mapping[str, Any], ...]
) -> Callable[[int, str, int], None]:
    """Return a function that copies a changed element of an input or upstream gradient into its tensor.

    Tensors that share the array's memory need no copy.
    """
    written = {
        (number, name): _written(torch, tensor, np.asarray(inputs[number][name]))
        for number, tensors in enumerate(sets)
        for name, tensor in tensors.items()
    }
    return lambda number, name, at: written[number, name](at)


def _written(torch: Any, tensor: Any, array: Any) -> Callable[[int], None]:
    """Return a function that copies an element of `array` into `tensor`, rounded to nearest; fast for dense tensors."""
    flat = array.reshape(-1)
    if tensor.data_ptr() == array.ctypes.data:
        return lambda _: None
    if tensor.dtype == torch.float16 and dense(tensor):
        numbers = tensor.numpy().reshape(-1)
        return lambda at: operator.setitem(numbers, at, flat[at])
    if tensor.dtype == torch.bfloat16 and dense(tensor):
        bits = tensor.view(torch.int16).numpy().view(np.uint16).reshape(-1)
        return partial(_copy_as_bf16, bits, flat.view(np.uint32))

    def write(at: int) -> None:
        tensor[np.unravel_index(at, array.shape)] = torch.as_tensor(flat[at : at + 1]).to(tensor.dtype)[0]

    return write


def _copy_as_bf16(bits: Any, of: Any, at: int) -> None:
    wide = int(of[at])
    bits[at] = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16  # to nearest, ties to even; inputs are finite


def on_device(torch: Any, device: str, call: Call) -> Call:
    """Return the call of an operator without inputs, with `device` as the default device."""

    def run(tensors: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
        with torch.device(device):
            return call(tensors, **arguments)

    return call if device == "cpu" else run


def user_call(torch: Any, case: Case, function: Callable[..., Any]) -> Callable[[Call], Call]:
    """Return a wrapper that replaces PyTorch's call by a user's function, with preallocated outputs for `out`."""
    call = with_named_outputs(case, function)
    if not takes_out(function):
        return lambda _: call

    def wrapped(pytorch_call: Call) -> Call:
        run = _given_outputs(torch, pytorch_call, call)
        if (rule := getattr(call, "backward", None)) is not None:
            run.backward = rule  # type: ignore[attr-defined]  # a function attribute
        return run

    return wrapped


def _given_outputs(torch: Any, pytorch_call: Call, call: Call) -> Call:
    """Return the call with outputs allocated once, in the shapes and formats of PyTorch's own.

    With gradients enabled they are allocated in each call, as outputs of an autograd graph must not be overwritten.
    """
    held: dict[str, Any] = {}

    def run(tensors: Mapping[str, Any], **arguments: Any) -> dict[str, Any]:
        if not held:
            with torch.no_grad():
                held.update({name: torch.empty_like(y) for name, y in pytorch_call(dict(tensors), **arguments).items()})
        graph = torch.is_grad_enabled()
        out = {name: torch.empty_like(y) for name, y in held.items()} if graph else dict(held)
        return out | call(tensors, **arguments, out=out)

    return run


def _forward(
    torch: Any, call: Call, tensors: dict[str, Any], arguments: dict[str, Any], *, lean: bool
) -> Callable[[], object]:
    """Return the call without arguments.

    Args:
        lean: replay PyTorch's functions without the operator's Python code, which would be timed too.
    """
    only: Callable[[], dict[str, Any]] = partial(call, tensors, **arguments)
    if lean:
        with torch.no_grad():
            only = recorded_call(torch, only)

    def run() -> object:
        with torch.no_grad():
            return only()

    return run


def _backward(
    torch: Any, case: Case, call: Call, tensors: dict[str, Any]
) -> tuple[Callable[[], object], dict[str, Any]]:
    """Return a call of the gradient alone, and its upstream gradients: the forward pass runs once, untimed.

    The upstream gradient is random: a uniform one would hide wrong scales and transpositions.

    Raises:
        EndedError: a gradient is missing that the case requires and PyTorch's own call has.
        NotModelledError: PyTorch's own call has no gradient.
    """
    if (rule := getattr(call, "backward", None)) is not None:
        return _by_rule(torch, case, call, rule, tensors)
    names = _leaves_of(case, tensors)
    leaves = [tensors[name].requires_grad_() for name in names]
    with unchanged_state(torch):
        called = call(tensors, **forward_arguments(case))
    live = {name: y for name, y in called.items() if y.requires_grad}
    outputs = list(live.values())
    generator = torch.Generator(device=outputs[0].device if outputs else "cpu").manual_seed(0)
    upstream = [_random_like(torch, output, generator) for output in outputs]

    def gradients() -> dict[str, Any]:
        grads = torch.autograd.grad(outputs, leaves, upstream, retain_graph=True, allow_unused=True)
        return {f"grad_{name}": grad for name, grad in zip(names, grads, strict=True) if grad is not None}

    if not live:
        _refuse_missing(torch, case, tensors, {})
    whole_count = len(names)

    def run() -> object:
        nonlocal whole_count
        grads = gradients()
        if len(grads) < whole_count:
            _refuse_missing(torch, case, tensors, grads)
            whole_count = len(grads)  # as many as PyTorch's own call gives
        return grads

    return run, {f"grad_{name}": grad for name, grad in zip(live, upstream, strict=True)}


def _by_rule(
    torch: Any, case: Case, call: Call, rule: Call, tensors: dict[str, Any]
) -> tuple[Callable[[], object], dict[str, Any]]:
    """Return a call of the function's own gradient rule, and its upstream gradients."""
    arguments = forward_arguments(case)
    with torch.no_grad(), unchanged_state(torch):
        outputs = {name: y for name, y in call(tensors, **arguments).items() if y.is_floating_point()}
    device = next((y.device for y in outputs.values()), "cpu")
    generator = torch.Generator(device=device).manual_seed(0)
    upstream = {f"grad_{name}": _random_like(torch, y, generator) for name, y in outputs.items()}

    def gradients() -> dict[str, Any]:
        with torch.no_grad():
            return dict(rule({**tensors, **upstream}, **arguments))

    leaves = {name: tensors[name].detach().requires_grad_() for name in _leaves_of(case, tensors)}
    _refuse_missing(torch, case, {**tensors, **leaves}, gradients())
    return gradients, upstream


def _leaves_of(case: Case, tensors: Mapping[str, Any]) -> list[str]:
    """Return the inputs that have a gradient: no integers, and no state that is updated in place."""
    updated = output_names(case)
    return [name for name, tensor in tensors.items() if tensor.is_floating_point() and name not in updated]


def _refuse_missing(torch: Any, case: Case, tensors: Mapping[str, Any], grads: Mapping[str, Any]) -> None:
    """Refuse gradients that lack one which the case requires and PyTorch's own call has."""
    stated = dict(case.attributes)
    names = [name for name in _leaves_of(case, tensors) if stated.get(f"grad_{name}", True)]
    left = [name for name in names if f"grad_{name}" not in grads]
    with torch.enable_grad():
        outputs_by_name = OPS[case.op].torch_call({**tensors}, **forward_arguments(case))
    outputs = [output for output in outputs_by_name.values() if output.requires_grad]
    if not outputs:
        raise NotModelledError(f"{case.op}: PyTorch has no gradient of this case")
    above, leaves = [torch.ones_like(output) for output in outputs], [tensors[name] for name in left]
    usual = torch.autograd.grad(outputs, leaves, above, allow_unused=True) if left else ()
    missing = [name for name, grad in zip(left, usual, strict=True) if grad is not None]
    if missing:
        raise EndedError(f"no gradient of {', '.join(missing)}", Outcome.INCORRECT)


def _random_like(torch: Any, output: Any, generator: Any) -> Any:
    wide = torch.float64 if output.dtype == torch.float64 else torch.float32
    return torch.randn(output.shape, generator=generator, device=output.device, dtype=wide).to(output.dtype)
