"""Runner of a user's Triton kernel, `triton:module:function`: compiled on a GPU, interpreted elsewhere."""

import dataclasses
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from nearpeak.case_tensors.random_inputs import too_large
from nearpeak.case_tensors.torch_tensors import torch_or_refusal
from nearpeak.case_tensors.user_functions import function_of, own_refusal, with_named_outputs
from nearpeak.core.runs.measurement import Environment, Timing
from nearpeak.core.runs.runner_protocols import Backend, Prepared, RunnerAbilities, Timer
from nearpeak.core.work.case import Case
from nearpeak.errors import MissingExtraError
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.environment import cpu_environment
from nearpeak.measurement.machine.host_calls import from_host
from nearpeak.measurement.machine.torch_runner import Call, prepared, user_call
from nearpeak.measurement.timing.clocks import HostTimer
from nearpeak.targets import CPU

INTERPRET = "TRITON_INTERPRET"
"""Environment variable that makes Triton interpret kernels; it is read when a kernel is decorated."""


class TritonKernel(Backend):
    """`function(tensors, **arguments)` that launches kernels: outputs by name, or the only output."""

    name = "triton"
    target = CPU
    abilities = RunnerAbilities(
        devices=("cpu", "cuda"), needs=("torch", "triton"), preload=("torch",), argument="module:function", places=True
    )

    def __init__(self, argument: str, timing: Timing) -> None:
        """Choose the GPU where there is one, else the interpreter, and import the function."""
        self._torch, self._timing = torch_or_refusal("Triton"), timing
        if importlib.util.find_spec("triton") is None:
            raise MissingExtraError("runner triton: needs Triton; install triton")
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        self.target = cuda_device.target_name() if self._device == "cuda" else CPU
        if self._device == "cpu":
            os.environ[INTERPRET] = "1"
        self._function, self._argument = function_of(argument, "triton"), argument

    def refusal(self, case: Case) -> str:
        """Return why the case cannot run; the interpreter keeps bf16 as bare bits and computes nonsense with them."""
        if self._device == "cuda":
            return cuda_device.refusal(self._torch, case) or own_refusal(self._function, case)
        if "bf16" in dict(case.dtypes).values():
            return "Triton's interpreter does not compute in bf16; give fp32 or fp16, or a GPU"
        return too_large(case) or own_refusal(self._function, case)

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run."""
        ready = prepared(self._torch, case, inputs, self._device, user_call(self._torch, case, self._function))
        how = "compiled" if self._device == "cuda" else "interpreted: its times say nothing of a GPU"
        return dataclasses.replace(ready, algorithm=how)

    def implementation(self, case: Case) -> Call:
        """Return the function on tensors of the host."""
        named = with_named_outputs(case, self._function)
        return from_host(named) if self._device == "cuda" else named

    def timer(self) -> Timer:
        """Return the clock of the device."""
        if self._device == "cuda":
            return cuda_device.EventTimer(self._torch, cold=self._timing.cache == "cold")
        return HostTimer(thread_count=self._timing.thread_count, flush_bytes=self._timing.swept_bytes)

    def environment(self) -> Environment:
        """Return device and software."""
        return (
            cuda_device.environment(self._torch)
            if self._device == "cuda"
            else cpu_environment("triton", "torch", "numpy")
        )


RUNNER = TritonKernel
