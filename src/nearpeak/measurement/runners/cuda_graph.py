"""Runner `cuda_graph`: an operator's PyTorch call captured as CUDA graphs on the first GPU, timed as replays."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.case_tensors.memory_placement import copy_of
from nearpeak.core.runs.runner_protocols import Prepared
from nearpeak.core.work.case import Case
from nearpeak.measurement.machine import cuda_device
from nearpeak.measurement.machine.host_calls import from_host
from nearpeak.measurement.machine.torch_runner import Call, prepared
from nearpeak.ops import OPS

_WARM_CALLS = 3
"""Calls on a side stream before capture, as PyTorch asks for (torch.cuda.graphs)."""


class CudaGraph(cuda_device.OnFirstGpu):
    """The operator's PyTorch call captured once per set of inputs and replayed."""

    name, graph = "cuda_graph", True

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` captured, one graph for each set of inputs.

        A gradient runs on the stream of its forward pass, so that the forward pass runs on the capturing stream.
        """
        torch, side = self._torch, self._torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            ready = prepared(torch, case, inputs, "cuda")
        start = time.perf_counter()
        runs = tuple(self._captured(run, side) for run in ready.runs)
        plan_s = time.perf_counter() - start
        return dataclasses.replace(ready, runs=runs, algorithm="graph", phases_s={**ready.phases_s, "plan": plan_s})

    def _captured(self, run: Callable[[], object], side: Any) -> Callable[[], object]:
        torch = self._torch
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_CALLS):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # A failed capture leaves its stream current: the outer block restores the previous one.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, stream=side):
            result = run()
        torch.cuda.synchronize()

        def replay() -> object:
            graph.replay()
            return result

        return replay

    def implementation(self, case: Case) -> Call:
        """Return the call on tensors of the host; `captured` replays it with other inputs at the same addresses."""
        call: Call = OPS[case.op].torch_call

        def captured(tensors: Mapping[str, Any], arguments: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
            fixed = {name: copy_of(self._torch, tensor, "cuda") for name, tensor in tensors.items()}
            with self._torch.no_grad():
                replay = self._captured(lambda: call(fixed, **arguments), self._torch.cuda.Stream())

            def again(others: Mapping[str, Any]) -> object:
                for name, tensor in others.items():
                    fixed[name].copy_(tensor)
                return replay()

            return again

        eager = from_host(call)
        eager.captured = captured  # type: ignore[attr-defined]  # read by validation
        return eager


RUNNER = CudaGraph
