"""Runs cases on this machine's CPU through PyTorch: cold inputs, wall time, every sample kept."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.dtype import dtype_of
from nearpeak.core.measurement import Measurement
from nearpeak.core.tensor import Tensor
from nearpeak.errors import MissingExtraError
from nearpeak.ops import OPS, work_of
from nearpeak.ops._torch_names import torch_dtype
from nearpeak.targets import CPU

LARGEST_BYTES = 2 * 2**30
"""Cases whose tensors take more are not run."""
FLUSH_BYTES = 96 * 2**20
"""Bytes written between samples, so that inputs come from memory as the bound assumes."""


class TorchCpuRunner:
    """Times one case at a time through the operator's PyTorch call."""

    name = "torch_cpu"
    target = CPU

    def __init__(self, *, budget_s: float = 0.3, least_count: int = 5, flush_bytes: int = FLUSH_BYTES) -> None:
        """Keep how long to sample each case and what to write in between; PyTorch must be installed."""
        try:
            import torch
        except ImportError:
            raise MissingExtraError("measuring on the CPU needs PyTorch; install nearpeak[torch]") from None
        self._torch, self._budget_s, self._least_count = torch, budget_s, least_count
        self._flush = np.zeros(flush_bytes // 8)

    def measure(self, case: Case) -> Measurement:
        """Return the samples of `case`, or why there are none."""
        try:
            samples_s = self._samples(self._prepared(case))
        except (RuntimeError, TypeError, ValueError, LookupError, MemoryError, AttributeError) as error:
            return self._measurement(case, (), str(error).splitlines()[0] if str(error) else type(error).__name__)
        return self._measurement(case, samples_s, "")

    def _measurement(self, case: Case, samples_s: tuple[float, ...], note: str) -> Measurement:
        timer_s = time.get_clock_info("perf_counter").resolution
        return Measurement(
            case=case, target=self.target, runner=self.name, samples_s=samples_s, timer_s=timer_s, note=note
        )

    def _samples(self, run: Callable[[], object]) -> tuple[float, ...]:
        run()
        samples: list[float] = []
        stop = time.perf_counter() + self._budget_s
        while len(samples) < self._least_count or time.perf_counter() < stop:
            self._flush += 1.0
            start = time.perf_counter()
            run()
            samples.append(time.perf_counter() - start)
        return tuple(samples)

    def _prepared(self, case: Case) -> Callable[[], object]:
        """Return a call that runs the case once on tensors of its own."""
        operator = OPS[case.op]
        forward = _forward_arguments(case)
        specs = operator.inputs(**forward)
        if sum(spec.bytes for spec in specs.values()) + work_of(case).write_bytes > LARGEST_BYTES:
            raise MemoryError(f"its tensors take more than {LARGEST_BYTES // 2**30} GiB")
        tensors = {name: self._tensor(spec) for name, spec in specs.items()}
        if case.phase == "forward":
            return self._without_gradients(lambda: operator.torch_call(tensors, **forward))
        return self._backward(operator.torch_call, tensors, forward)

    def _without_gradients(self, call: Callable[[], object]) -> Callable[[], object]:
        def run() -> object:
            with self._torch.no_grad():
                return call()

        return run

    def _backward(
        self, call: Callable[..., dict[str, Any]], tensors: dict[str, Any], arguments: dict[str, Any]
    ) -> Callable[[], object]:
        """Return a call of the gradient alone: the forward pass runs once, outside the clock."""
        leaves = [t.requires_grad_() for t in tensors.values() if t.is_floating_point()]
        outputs = [o for o in call(tensors, **arguments).values() if o.requires_grad]
        upstream = [self._torch.ones_like(output) for output in outputs]
        return lambda: self._torch.autograd.grad(outputs, leaves, upstream, retain_graph=True, allow_unused=True)

    def _tensor(self, spec: Tensor) -> Any:
        """Return random content for `spec`; integers stay small, as they are often indices."""
        torch, dtype = self._torch, torch_dtype(self._torch, spec.dtype)
        if dtype_of(spec.dtype).kind == "float":
            return torch.rand(spec.shape).to(dtype)
        return torch.zeros(spec.shape, dtype=dtype) if spec.dtype != "bool" else torch.ones(spec.shape, dtype=dtype)


def _forward_arguments(case: Case) -> dict[str, Any]:
    """Return the arguments of the forward pass that `case` is, or whose gradient it is.

    What the gradient's case leaves open stands at its default; what has a gradient is present.

    >>> from nearpeak.ops import case
    >>> gradient = case("conv", "backward", batch=1, in_channels=1, out_channels=1, w=3, kw=3, dtype="fp32",
    ...                 grad_bias=True)
    >>> _forward_arguments(gradient)["bias"]
    True
    """
    operator = OPS[case.op]
    signature = operator.signatures["forward"]
    given: dict[str, Any] = {**dict(case.axes), **dict(case.dtypes), **dict(case.attributes)}
    present = {name: given[f"grad_{name}"] for name in signature.attributes if f"grad_{name}" in given}
    known = {name: value for name, value in (present | given).items() if name in signature.names()}
    whole = operator.case("forward", **known)
    return {**dict(whole.axes), **dict(whole.dtypes), **dict(whole.attributes)}


RUNNER = TorchCpuRunner
