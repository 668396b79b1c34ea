"""Runner of cases on the CPU through ONNX Runtime, from the operator's PyTorch call exported to ONNX."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import forward_arguments
from nearpeak.case_tensors.torch_tensors import tensors_of, torch_or_refusal
from nearpeak.core.runs.measurement import Fallback, Timing
from nearpeak.core.runs.runner_protocols import Prepared, RunnerAbilities
from nearpeak.core.work.case import Case
from nearpeak.errors import NotModelledError
from nearpeak.measurement.machine.environment import OnCpu
from nearpeak.measurement.machine.onnx_session import assignments, exported, runtime_or_refusal, session_of
from nearpeak.ops import OPS

PROVIDER = "CPUExecutionProvider"
_NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation", "INVALID_GRAPH", "Type Error")


class OnnxRuntime(OnCpu):
    """One session per case, inputs and outputs bound, so that a call copies nothing."""

    name = "onnxruntime"
    packages = ("onnxruntime", "onnx", "torch", "numpy")
    abilities = RunnerAbilities(
        devices=("cpu",), phases=("forward",), needs=("onnxruntime", "onnx", "torch"),
        preload=("onnxruntime", "torch", "torch.onnx"), converts=True, places=True,
        dtypes=frozenset({"fp64", "fp32", "fp16", "bf16", "int64", "int32", "int16", "int8", "uint8", "bool"}),
    )  # fmt: skip

    def __init__(self, argument: str, timing: Timing) -> None:
        """Refuse without ONNX Runtime."""
        super().__init__(argument, timing)
        self._runtime = runtime_or_refusal(f"runner {self.name}")
        self._torch = torch_or_refusal(f"runner {self.name}, to export operators,")
        self._torch.set_num_threads(timing.thread_count)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` as a session; the ledger lists nodes on other providers than the CPU's.

        Inputs are bound with their memory order.
        """
        start = time.perf_counter()
        arguments, call = forward_arguments(case), OPS[case.op].torch_call
        sets = [tensors_of(self._torch, case, arrays, "cpu") for arrays in inputs]
        with self._torch.no_grad():
            names = tuple(call(sets[0], **arguments))
        orders = {name: _order(name, tensor) for name, tensor in sets[0].items()}
        stored = [{name: tensor.permute(orders[name]) for name, tensor in tensors.items()} for tensors in sets]

        def of_stored(tensors: Mapping[str, Any]) -> Any:
            turned = dict(tensors)
            for name, order in orders.items():
                if order != sorted(order):
                    turned[name] = tensors[name].permute([order.index(place) for place in range(len(order))])
            return call(turned, **arguments)

        session = self._session(exported(self._torch, of_stored, stored[0], names))
        runs = tuple(self._bound(session, tensors, names) for tensors in stored)
        ledger = tuple(
            Fallback(node=f"{kind} {name}", ran_on=provider, reason="its provider claimed it")
            for provider, kind, name in assignments(session) if provider != PROVIDER
        )  # fmt: skip
        nodes = "+".join(kind for _, kind, _ in assignments(session)[:8])
        phases_s = {"build": time.perf_counter() - start}
        return Prepared(runs=runs, outputs=_arrays, algorithm=nodes, ledger=ledger, phases_s=phases_s)

    def _session(self, model: bytes) -> Any:
        try:
            return session_of(self._runtime, model, self._timing.thread_count)
        except Exception as error:  # the runtime's classes of errors are made while it is imported
            if any(sign in str(error) for sign in _NO_KERNEL):
                raise NotModelledError(f"ONNX Runtime: {str(error).splitlines()[0][:200]}") from None
            raise

    def _bound(self, session: Any, tensors: Mapping[str, Any], names: tuple[str, ...]) -> Callable[[], object]:
        binding, known = session.io_binding(), {node.name for node in session.get_inputs()}
        for name, tensor in tensors.items():
            if name in known:  # the exporter drops inputs that no node reads
                binding.bind_ortvalue_input(name, self._value(tensor))
        for name in names:
            binding.bind_output(name, "cpu")

        def run() -> object:
            session.run_with_iobinding(binding)
            return names, binding

        return run

    def _value(self, tensor: Any) -> Any:
        make = self._runtime.OrtValue
        if tensor.dtype == self._torch.bfloat16:
            bits = tensor.view(self._torch.int16).numpy().view("uint16")
            return make.ortvalue_from_numpy_with_onnx_type(bits, 16)  # 16 is BFLOAT16 in onnx.proto
        return make.ortvalue_from_numpy(tensor.numpy())


def _order(name: str, tensor: Any) -> list[int]:
    """Return the dimensions of a tensor in memory order, the largest stride first.

    ONNX tensors are dense: the graph takes a permuted tensor in memory order and transposes it.

    Raises:
        NotModelledError: it has gaps.
    """
    dimensions = range(tensor.dim())
    if tensor.is_contiguous():
        return list(dimensions)
    order = sorted(
        dimensions, key=lambda dimension: -tensor.stride(dimension) if tensor.shape[dimension] > 1 else -math.inf
    )
    if not tensor.permute(order).is_contiguous():
        raise NotModelledError(f"ONNX Runtime takes tensors without gaps; {name} has strides {tuple(tensor.stride())}")
    return order


def _arrays(result: Any) -> dict[str, Any]:
    names, binding = result
    return {name: value.numpy() for name, value in zip(names, binding.get_outputs(), strict=True)}


RUNNER = OnnxRuntime
