"""Export of a case as a kernel definition with one workload; its reference is the traced PyTorch call."""

import re
import uuid
from collections.abc import Mapping
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.errors import MissingExtraError, NotModelledError
from nearpeak.exchange.kernel_definition import FORMATS, Definition, TensorSpec
from nearpeak.exchange.workload_lines import WorkloadLine, check_flavour
from nearpeak.ops import OPS, label_of
from nearpeak.ops.shared.torch_names import TORCH_NAMES, torch_dtype

_NAMES = {ours: theirs for theirs, ours in FORMATS.items() if theirs != "float4_e2m1fn_x2"}
_NAMESPACE = uuid.NAMESPACE_OID


def definition_of(case: Case, flavour: str = "sol") -> tuple[Definition, WorkloadLine]:
    """Return `case` as a definition whose axes are all constant, and its one workload of random inputs.

    Raises:
        NotModelledError: the operator has no such tensors or its PyTorch call cannot be written as source.

    >>> from nearpeak.ops import case
    >>> definition, line = definition_of(case("gemm", m=4, n=8, k=2, dtype="bf16"))
    >>> definition.inputs["a"].shape, line.axes
    (('1', '4', '2'), {})
    """
    check_flavour(flavour)
    traced_inputs, traced_outputs, source = _traced(case)
    inputs, outputs = _specs(traced_inputs), _specs(traced_outputs)
    name = f"{case.op}_{case.phase}_{case.digest[:12]}"
    record: dict[str, Any] = {
        "name": name, "op_type": case.op, "description": label_of(case), "tags": [f"phase:{case.phase}"],
        "axes": {axis: {"type": "const", "value": extent} for axis, extent in case.axes},
        "inputs": {key: {"shape": list(spec.shape or ()), "dtype": spec.dtype} for key, spec in inputs.items()},
        "outputs": {key: {"shape": list(spec.shape or ()), "dtype": spec.dtype} for key, spec in outputs.items()},
        "reference": source,
    }  # fmt: skip
    if flavour == "sol":
        record = {key: value for key, value in record.items() if key not in ("op_type", "tags")}
    axes = {name: extent for name, extent in record["axes"].items() if name not in (*inputs, *outputs)}
    record["axes"] = axes
    definition = Definition(
        name=name, axes=axes, inputs=inputs, outputs=outputs, reference=source, record=record,
    )  # fmt: skip
    made = {key: {"type": "random"} for key in inputs}
    name = str(uuid.uuid5(_NAMESPACE, case.digest))
    return definition, WorkloadLine(uuid=name, axes={}, inputs=made, record={"uuid": name, "axes": {}, "inputs": made})


def _specs(tensors: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    for tensor in tensors.values():
        if tensor.dtype not in _NAMES:
            raise NotModelledError(f"export: the files have no number format for {tensor.dtype}")
    return {
        key: TensorSpec(shape=tuple(map(str, tensor.shape)), dtype=_NAMES[tensor.dtype])
        for key, tensor in tensors.items()
    }


def _traced(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor], str]:
    """Return inputs, outputs and source of the operator's PyTorch call, which runs on tensors without memory."""
    operator = OPS[case.op]
    forward = operator.forward_arguments(case)
    inputs = dict(operator.inputs(**forward))
    if not inputs:
        raise NotModelledError(f"export: {label_of(case)} has no input tensor")
    outputs, lines = _graph(inputs, lambda tensors: operator.torch_call(tensors, **forward), label_of(case))
    if case.phase == "forward":
        return inputs, outputs, _SOURCE.format(parameters=", ".join(inputs), lines="\n".join(lines))
    leaves = [name for name, tensor in inputs.items() if _has_gradient(tensor)]
    upstream = {f"grad_{name}": tensor for name, tensor in outputs.items() if _has_gradient(tensor)}
    source = _GRADIENT_SOURCE.format(
        forward=", ".join(inputs), lines="\n".join(lines), parameters=", ".join((*inputs, *upstream)),
        leaves=", ".join(leaves), upstream=", ".join(upstream),
        live=", ".join(f"outputs[{place}]" for place, tensor in enumerate(outputs.values()) if _has_gradient(tensor)),
    )  # fmt: skip
    return {**inputs, **upstream}, {f"grad_{name}": inputs[name] for name in leaves}, source


_SOURCE = """import torch


def run({parameters}):
{lines}
"""

_GRADIENT_SOURCE = """import torch


def forward({forward}):
{lines}


def run({parameters}):
    with torch.enable_grad():
        {leaves}, = (leaf.detach().requires_grad_() for leaf in ({leaves},))
        outputs = forward({forward})
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return torch.autograd.grad(({live},), ({leaves},), ({upstream},), materialize_grads=True)
"""


def _graph(inputs: Mapping[str, Tensor], call: Any, label: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the outputs of `call` by name, and the ATen calls that make them from tensors called as the inputs."""
    try:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        from torch.fx.experimental.proxy_tensor import make_fx
    except ImportError:
        raise MissingExtraError("export: PyTorch is not installed; install nearpeak[torch]") from None
    results: dict[str, Any] = {}

    def traced(*tensors: Any) -> tuple[Any, ...]:
        results.update(call(dict(zip(inputs, tensors, strict=True))))
        return tuple(results.values())

    try:
        with FakeTensorMode(), torch.no_grad():
            arguments = [
                torch.empty(tensor.shape, dtype=torch_dtype(torch, tensor.dtype)) for tensor in inputs.values()
            ]
            graph = make_fx(traced, pre_dispatch=True)(*arguments)
            outputs = dict(zip(results, graph(*arguments), strict=True))
    except (RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError, AssertionError) as error:
        raise NotModelledError(f"export: {label} cannot be traced: {str(error).splitlines()[0]}") from None
    if any(node.op == "get_attr" for node in graph.graph.nodes):
        raise NotModelledError(f"export: {label} holds constants that cannot be written as source")
    names = {torch_dtype(torch, name): name for name in _NAMES if hasattr(torch, TORCH_NAMES.get(name, name))}
    tensors = {key: Tensor(shape=tuple(y.shape), dtype=names[y.dtype]) for key, y in outputs.items()}
    return tensors, _lines(graph, inputs)


def _lines(graph: Any, inputs: Mapping[str, Tensor]) -> list[str]:
    """Return the body of the traced function, on whatever device the first input is."""
    placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
    renamed = {node.name: name for node, name in zip(placeholders, inputs, strict=True)}
    body = graph.code.split("):\n", 1)[1].rstrip()
    body = re.sub(r";  (\w+ = )+None", "", body)
    body = re.sub(r"\b(" + "|".join(renamed) + r")\b", lambda match: renamed[match.group(1)], body)
    body = re.sub(r"device = device\(type='cpu'\)", f"device = {next(iter(inputs))}.device", body)
    body = re.sub(r"return \((\w+),\)$", r"return \1", body)
    body = re.sub(r"(?<![\w.])(inf|nan)\b", r'float("\1")', body)
    return [line for line in body.splitlines() if line.strip()]


def _has_gradient(tensor: Tensor) -> bool:
    return dtype_of(tensor.dtype).kind == "float"
