"""Graph of a model in PyTorch's core operators, as engines that take exported programs see it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nearpeak.conversion.model_graph import ModelGraph
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, SpecError
from nearpeak.frontends.child_capture import run_isolated
from nearpeak.frontends.files.saved_workload import load_text, save_text

SUFFIXES = (".py", ".pt2")
"""Files that hold such a model: a problem file, or an archive that `torch.export.save` wrote."""
_RANDOM = ("rand", "bernoulli", "dropout", "multinomial", "normal_functional")
_STEP = "node__"
"""Begin of the names of modules that run one node each, so that no module of the model has such a name."""


def exported_graph(
    path: Path, options: CaptureOptions = CaptureOptions(), preserved: Sequence[str] = ()
) -> ModelGraph:  # fmt: skip
    """Return the graph of a model after `torch.export`, decomposed into core operators, in a process of its own.

    Args:
        preserved: operators that are not decomposed, `aten.linear`.

    Raises:
        SpecError: the file is neither a problem file nor an exported program.
        CaptureError: the export fails.
    """
    if path.suffix not in SUFFIXES:
        raise SpecError(f"{path}: is neither a problem file (.py) nor an exported program (.pt2)")
    record = run_isolated(
        f"{__name__}:graph_record", {"path": str(path.resolve()), "preserved": list(preserved)}, str(path), options
    )  # fmt: skip
    nodes = record["nodes"]
    makers = {name: place for place, node in enumerate(nodes) for name in node["outputs"] if name}
    workload = load_text(record["workload"], str(path))
    return ModelGraph(
        model=path.name, opset="", protos=(), keys=tuple(node["key"] for node in nodes),
        kinds=tuple(node["kind"] for node in nodes), inputs=tuple(tuple(node["inputs"]) for node in nodes),
        outputs=tuple(tuple(node["outputs"]) for node in nodes),
        links=tuple(tuple(dict.fromkeys(makers[n] for n in node["inputs"] if n in makers)) for node in nodes),
        attributes=tuple(node["attributes"] for node in nodes),
        is_static=tuple(_statics(nodes, frozenset(record["stored"]))), stored=frozenset(record["stored"]), values={},
        tensors={
            name: Tensor(shape=tuple(shape), dtype=dtype_of(dtype).name)
            for name, (shape, dtype) in record["tensors"].items()
        },
        results=frozenset(record["results"]), workload=workload,
        calls=tuple(_calls([node["key"] for node in nodes], workload)),
    )  # fmt: skip


def _statics(nodes: Sequence[Mapping[str, Any]], stored: frozenset[str]) -> Iterator[bool]:
    """Yield for each node whether its results follow from parameters alone."""
    known = set(stored)
    for node in nodes:
        is_random = any(word in node["kind"] for word in _RANDOM)
        is_static = not is_random and known.issuperset(name for name in node["inputs"] if name)
        if is_static:
            known.update(node["outputs"])
        yield is_static


def _calls(keys: Sequence[str], workload: Workload) -> Iterator[tuple[int, ...]]:
    """Yield the calls of each node: it runs as a module of its name."""
    by_key: dict[str, list[int]] = {}
    for position, call in enumerate(workload.calls):
        by_key.setdefault(call.module.partition(".")[0].removeprefix(_STEP), []).append(position)
    yield from (tuple(by_key.get(key, ())) for key in keys)


def graph_record(path: str, preserved: Sequence[str]) -> dict[str, Any]:
    """Return nodes, tensors and the step of a model as plain data; its code runs in this process."""
    import torch

    from nearpeak.frontends.torch.module_capture import capture_torch

    program, inputs, keywords = _program(torch, Path(path))
    table = torch.export.default_decompositions()
    for name in preserved:
        table.pop(_overload(torch, name), None)
    module = program.run_decompositions(table).module()
    graph = module.graph
    for node in [node for node in graph.nodes if not node.users and node.op != "output"]:
        if node.op == "call_module" or "._assert" in _kind(node.target):
            graph.erase_node(node)  # checks of shapes and formats
    record = _record(torch, module)
    _wrap(torch, module)
    workload = capture_torch(module, (inputs, keywords), CaptureOptions(), name=Path(path).stem, as_built=True)
    return record | {"workload": save_text(workload)}


def _program(torch: Any, path: Path) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return an exported program, with the inputs that it was exported with."""
    if path.suffix == ".pt2":
        program = torch.export.load(path)
        if program.example_inputs is None:
            raise CaptureError(f"{path.name}: holds no example inputs; export it with them")
        return program, *program.example_inputs
    from nearpeak.conversion.onnx_conversion import problem_of

    model, inputs = problem_of(path)
    with torch.no_grad():
        return torch.export.export(model, inputs), inputs, {}


def _overload(torch: Any, name: str) -> Any:
    """Return the overload that `aten.linear` or `aten.mean.dim` names."""
    namespace, operator, *overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), *(overload or ["default"]))


def _kind(target: Any) -> str:
    """Return an operator as tables name it: namespace, name, and the overload unless it is the default one."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "__name__", str(target))
    name = schema.name.replace("::", ".")
    return f"{name}.{schema.overload_name}" if schema.overload_name else name


class _Bound(NamedTuple):
    """Arguments of a node, tensors apart from the rest."""

    inputs: list[str]
    attributes: dict[str, Any]


def _record(torch: Any, module: Any) -> dict[str, Any]:
    """Return nodes, tensors, parameters and results of a graph as plain data."""
    graph, tensors, stored = module.graph, dict[str, tuple[list[int], str]](), list[str]()
    picks = {node for node in graph.nodes if node.op == "call_function" and _kind(node.target) == "getitem"}
    nodes = []
    for node in graph.nodes:
        if node.op == "get_attr":
            stored.append(node.name)
        value = _attribute(module, node.target) if node.op == "get_attr" else node.meta.get("val")
        if isinstance(value, torch.Tensor):
            tensors[node.name] = list(map(int, value.shape)), str(value.dtype).removeprefix("torch.")
        if node.op != "call_function" or node in picks:
            continue
        parts = {user.args[1]: user.name for user in node.users if user in picks}
        count = len(value) if isinstance(value, tuple | list) else 0
        outputs = [parts.get(place, "") for place in range(count)] if count else [node.name]
        bound = _bound(node)
        nodes.append({
            "key": node.name, "kind": _kind(node.target), "inputs": bound.inputs, "outputs": outputs,
            "attributes": bound.attributes,
        })  # fmt: skip
    last = next(node for node in reversed(graph.nodes) if node.op == "output")
    return {
        "nodes": nodes,
        "tensors": tensors,
        "stored": stored,
        "results": [source.name for source in last.all_input_nodes],
    }


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _bound(node: Any) -> _Bound:
    """Return the tensors of a node in the order of its operator's schema, and its other arguments by name."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return _Bound([source.name for source in node.all_input_nodes], {})
    inputs, attributes = list[str](), dict[str, Any]()
    for place, argument in enumerate(schema.arguments):
        usual = argument.default_value if argument.has_default_value() else None
        value = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, usual)
        parts = list(value) if isinstance(value, list | tuple) else [value]
        if any(hasattr(part, "all_input_nodes") for part in parts):
            inputs += [getattr(part, "name", "") for part in parts]
        elif "Tensor" in str(argument.type) and value is None:
            inputs.append("")
        else:
            attributes[argument.name] = _plain(value)
    return _Bound(inputs, attributes)


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)


def _wrap(torch: Any, module: Any) -> None:
    """Let each node run as a module of its name, so that captured calls say to which they belong."""

    class Step(torch.nn.Module):  # type: ignore[misc]  # torch is a parameter
        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self.function = function

        def forward(self, *arguments: Any, **keywords: Any) -> Any:
            return self.function(*arguments, **keywords)

    graph = module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or _kind(node.target) == "getitem":
            continue
        module.add_submodule(_STEP + node.name, Step(node.target))
        with graph.inserting_before(node):
            step = graph.call_module(_STEP + node.name, node.args, node.kwargs)
        node.replace_all_uses_with(step)
        graph.erase_node(node)
    module.recompile()
