"""Fusion groups of TorchInductor: operators that its scheduler would run as one kernel."""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import CaptureError, SpecError
from nearpeak.frontends.torch.call_attribution import shown_path
from nearpeak.frontends.torch.fake_tensors import replaced

NOTE = (
    "the calls are those of TorchInductor's graph after its decompositions, and {count} kernels are what its CPU "
    "scheduler would launch: a proxy for what it launches on a GPU"
)
_ROOT, _WORD = re.compile(r"^L\['\w+'\]"), re.compile(r"\w+")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


class Graph(NamedTuple):
    """What Inductor makes of a model's forward pass."""

    module: Any
    """FX module of ATen operators."""
    kernels: tuple[frozenset[str], ...]
    """Names of the nodes that one kernel computes, kernel by kernel."""
    weights: tuple[bool, ...]
    """For each input of the graph, whether it is a parameter or buffer."""


class _ScheduledError(Exception):
    """Ends the compilation once the scheduler has decided."""


def inductor_graph(mode: Any, model: Any, args: Sequence[Any], kwargs: Any, name: str) -> Graph:
    """Return the graph and kernels of one forward pass of a fake model.

    Raises:
        CaptureError: Inductor is not there, or cannot compile the model as one graph.
    """
    import torch

    try:
        from torch._inductor import compile_fx
        from torch._inductor.scheduler import Scheduler
    except ImportError as error:
        raise CaptureError(f"{name}: TorchInductor is not available here ({error}); leave --fusion out") from None
    compiled_parts: dict[str, Any] = {}

    def scheduled(scheduler: Any, *_args: Any, **_kwargs: Any) -> None:
        parts = [[part.node for part in kernel.get_nodes() if part.node is not None] for kernel in scheduler.nodes]
        compiled_parts["kernels"] = tuple(
            frozenset(origin.name for node in nodes for origin in node.origins) for nodes in parts
        )
        raise _ScheduledError

    def compiled(module: Any, inputs: Any) -> Any:
        compiled_parts["weights"] = tuple(isinstance(tensor, torch.nn.Parameter) for tensor in inputs)
        return compile_fx.compile_fx(module, inputs, inner_compile=inner, config_patches={"force_disable_caches": True})

    def inner(module: Any, *args: Any, **kwargs: Any) -> Any:
        compiled_parts["module"] = module
        return compile_fx.compile_fx_inner(module, *args, **kwargs)

    with replaced(Scheduler, "codegen", scheduled), _fresh(), mode, torch.no_grad():
        try:
            torch.compile(model, backend=compiled, fullgraph=True)(*args, **kwargs)
        except Exception as error:
            if "kernels" not in compiled_parts:
                reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]
                raise CaptureError(f"{name}: TorchInductor cannot compile it as one graph: {reason}") from None
    if "kernels" not in compiled_parts:
        raise CaptureError(f"{name}: TorchInductor launches no kernel for it; leave --fusion out")
    inputs = sum(node.op == "placeholder" for node in compiled_parts["module"].graph.nodes)
    weights = compiled_parts["weights"] if len(compiled_parts["weights"]) == inputs else (False,) * inputs
    return Graph(compiled_parts["module"], compiled_parts["kernels"], weights)


@contextmanager
def _fresh() -> Iterator[None]:
    """Leave no compiled code behind, and none from before in the way."""
    import torch
    from torch import _dynamo
    from torch._inductor import utils

    fast = torch.backends.mha.get_fastpath_enabled()
    _dynamo.reset()
    torch.backends.mha.set_fastpath_enabled(False)
    with tempfile.TemporaryDirectory(prefix="nearpeak-") as folder, replaced(utils.log, "disabled", True):
        before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            yield
        finally:
            os.environ.pop("TORCHINDUCTOR_CACHE_DIR")
            if before is not None:
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = before
            torch.backends.mha.set_fastpath_enabled(fast)
            _dynamo.reset()


def runnable(graph: Graph) -> Any:
    """Return a module that runs the graph node by node, each node as a module of its own, named after it."""
    import torch

    class Step(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self, target: Callable[..., Any]) -> None:
            super().__init__()
            self.target = target

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return self.target(*args, **kwargs)

    class Steps(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            for node in graph.module.graph.nodes:
                if node.op == "call_function":
                    self.add_module(node.name, Step(node.target))

        def forward(self, *args: Any) -> Any:
            steps = self._modules

            class Runner(torch.fx.Interpreter):  # type: ignore[misc]  # torch is untyped here
                def run_node(self, node: Any) -> Any:
                    if node.op != "call_function":
                        return super().run_node(node)
                    positional, named = self.fetch_args_kwargs_from_env(node)
                    return steps[node.name](*positional, **named)

            return Runner(graph.module).run(*args)

    return Steps()


def inputs_of(graph: Graph) -> tuple[tuple[Any, ...], dict[str, Any], list[tuple[Any, str, str]]]:
    """Return inputs for the graph, and which of them are weights."""
    import torch

    nodes = [node for node in graph.module.graph.nodes if node.op == "placeholder"]
    values = [node.meta["val"] for node in nodes]
    tensors = [torch.empty_strided(v.shape, v.stride(), dtype=v.dtype) if hasattr(v, "shape") else v for v in values]
    rows = zip(tensors, nodes, graph.weights, strict=True)
    return tuple(tensors), {}, [(tensor, "weight", node.name) for tensor, node, weight in rows if weight]


def grouped(workload: Workload, graph: Graph) -> Workload:
    """Return the workload with its kernels as groups, and the user's modules and lines in place of nodes' names."""
    nodes = {node.name: node for node in graph.module.graph.nodes}
    home: dict[str, int] = {}
    for number, names in enumerate(graph.kernels):
        for name in names:
            home.setdefault(name, number)  # kernels also name what made their inputs
    groups: dict[Any, list[int]] = {}
    for position, call in enumerate(workload.calls):
        groups.setdefault(home.get(call.module, call.module), []).append(position)
    return replace(
        workload, calls=tuple(_placed(call, nodes) for call in workload.calls),
        groups=tuple(tuple(members) for members in groups.values()),
        assumptions=(*workload.assumptions, NOTE.format(count=len(groups))),
    )  # fmt: skip


def _placed(call: Call, nodes: Any) -> Call:
    """Return the call with module and line of the model's own code."""
    node = nodes.get(call.module)
    if node is None:
        return call
    paths = [str(entry[0]) for entry in node.meta.get("nn_module_stack", {}).values()]
    module = ".".join(part for part in _WORD.findall(_ROOT.sub("", paths[-1])) if part != "_modules") if paths else ""
    lines = [f"{shown_path(file)}:{line}" for file, line in _FRAME.findall(node.meta.get("stack_trace") or "")]
    user_lines = [line for line in lines if not line.startswith(("torch/", ":"))]
    return replace(call, module=module, source=(user_lines or lines or [""])[-1])


def check_fusion(name: str, fusion: str | None, step: str) -> None:
    """Refuse a fusion that is not known, or for a step that it does not know."""
    if fusion not in (None, "inductor"):
        raise SpecError(f"fusion {fusion!r}: is not known; use inductor")
    if fusion is not None and step != "forward":
        raise SpecError(f"{name}: fusion groups are there for step 'forward' only, got {step!r}")
