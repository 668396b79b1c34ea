"""Proofs that a mutant is equivalent from the traced PyTorch program: unread inputs, earlier casts, equal graphs."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.validation.mutants.mutant import Mutant, right_call
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import Draw, draw_inputs
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF, format_name
from nearpeak.validation.running.implementation_run import Call, imported_torch

_KEPT_BITS = {"fp64": 26, "fp32": 12, "bf16": 4, "fp16": 5}
"""Significant bits that the mutant `bits lost` keeps."""
_SAME_VALUES = ("detach", "alias", "clone", "expand", "view", "reshape", "_unsafe_view", "permute", "transpose", "t")
"""Functions whose results are their argument's numbers, possibly rearranged."""
_EXACT_CASTS = ("_to_copy", "to")


def of_unread(case: Case, mutant: Mutant) -> str:
    """Inputs whose values no step of the program reads cannot change the results."""
    changed = _changed_inputs(case, mutant)
    graph = _graph(case)
    if not changed or graph is None:
        return ""
    unread = [name for name in changed if not _users(graph, name)]
    if len(unread) == len(changed):
        return f"no step of PyTorch's program reads the values of {', '.join(unread)}"
    return ""


def of_casts(case: Case, mutant: Mutant) -> str:
    """Rounding an input to a format to which the program rounds it first changes nothing: rounding is idempotent."""
    graph = _graph(case)
    changed = _changed_inputs(case, mutant)
    if mutant.row != "computed in fewer bits" or graph is None or not changed:
        return ""
    draw = draw_inputs(case, 0, "normal")
    assert draw is not None  # the case has been traced
    narrower = {"torch.float64": "torch.float32", "torch.float32": "torch.bfloat16"}
    for name in changed:
        wanted = narrower.get(str(draw.tensors[name].dtype))
        users = _users(graph, name)
        if not users or any(_cast(user) != wanted for user in users):
            return ""
    return f"the program rounds {', '.join(changed)} to that format first, and rounding again changes nothing"


def of_stored(case: Case, mutant: Mutant) -> str:
    """An output widened from a narrower format at the end has no low bits to lose."""
    graph = _graph(case)
    if mutant.row != "bits lost" or graph is None:
        return ""
    output = next(node for node in graph.nodes if node.op == "output")
    node = output.args[0].get(mutant.where) if isinstance(output.args[0], dict) else None
    casts = [] if node is None else _selected_from(node)
    names = {format_name(cast.args[0].meta["val"].dtype) for cast in casts}
    if node is None or not names or not names <= UNIT_ROUNDOFF.keys():
        return ""
    if any(UNIT_ROUNDOFF[name] < 2.0 ** -_KEPT_BITS.get(format_name(node.meta["val"].dtype), 0) for name in names):
        return ""
    return f"{mutant.where} is widened from {' and '.join(sorted(names))}, whose numbers keep all their bits"


_SELECTS = (
    "amax", "amin", "max", "min", "maximum", "minimum", "neg", "abs", "stack", "cat", "view", "reshape", "_unsafe_view",
    "slice", "select", "t", "transpose", "permute", "unsqueeze", "squeeze", "expand", *_SAME_VALUES,
)  # fmt: skip
"""Functions whose results are numbers of their arguments, or their negatives."""


def _selected_from(node: Any) -> list[Any]:
    """Return the casts from whose results `node` selects; none where it may hold other numbers."""
    casts, reached, seen = [], [node], set()
    while reached:
        step = reached.pop()
        if step in seen:
            continue
        seen.add(step)
        name = getattr(getattr(step, "target", None), "__name__", "").partition(".")[0]
        if _cast(step) is not None and hasattr(step.args[0], "meta"):
            casts.append(step)
        elif step.op == "call_function" and name in _SELECTS:
            reached += step.all_input_nodes
        else:
            return []
    return casts


def of_same_program(case: Case, mutant: Mutant) -> str:
    """A mutant with the same traced program gives the same results."""
    if mutant.inputs is not None or (mutant.row not in _OTHER_ARGUMENTS and not mutant.ignores):
        return ""
    draw = draw_inputs(case, 0, "normal")
    right = _graph(case)
    if draw is None or right is None or draw.tensors.keys() & draw.expected.keys():
        return ""
    other = _traced(mutant.make(), draw)
    if other is None or _text(other) != _text(right):
        return ""
    return "PyTorch runs the same program, step by step"


_OTHER_ARGUMENTS = (
    "mean for sum", "sum for mean", "sum_square for var", "min_index for max_index", "ceil mode dropped",
)  # fmt: skip


def _changed_inputs(case: Case, mutant: Mutant) -> list[str]:
    draw = draw_inputs(case, 0, "normal")
    if mutant.inputs is None or mutant.of_gradient or draw is None:
        return []
    return sorted(mutant.inputs({name: tensor.clone() for name, tensor in draw.tensors.items()}))


@lru_cache(maxsize=8)
def _graph(case: Case) -> Any:
    """Return the program of the case's PyTorch call as a graph; none where it cannot be traced."""
    draw = draw_inputs(case, 0, "normal")
    return None if draw is None else _traced(right_call(case), draw)


def _traced(call: Call, draw: Draw) -> Any:
    """Return the graph of a call with its constants; none where control flow depends on values."""
    from torch.fx.experimental.proxy_tensor import make_fx

    arguments = arguments_of(draw.case)
    names = list(draw.tensors)

    def program(*tensors: Any) -> dict[str, Any]:
        return dict(call(dict(zip(names, tensors, strict=True)), **arguments))

    try:
        with imported_torch().no_grad():
            traced = make_fx(program)(*(draw.tensors[name].clone() for name in names))
    except Exception:  # the call cannot be traced
        return None
    for node, name in zip(
        (placeholder for placeholder in traced.graph.nodes if placeholder.op == "placeholder"), names, strict=True
    ):
        node.meta["input"] = name
    return traced.graph


def _users(graph: Any, name: str) -> list[Any]:
    """Return the steps that read the values of an input; all steps where it is not found."""
    node = next((candidate for candidate in graph.nodes if candidate.meta.get("input") == name), None)
    if node is None:
        return list(graph.nodes)
    steps: list[Any] = []
    reached = list(node.users)
    while reached:
        user = reached.pop()
        same = user.op == "call_function" and user.target.__name__.partition(".")[0] in _SAME_VALUES
        (reached.extend(user.users) if same and user.users else steps.append(user))
    return steps


def _cast(node: Any) -> str | None:
    """Return the format of a step that only casts; none of other steps."""
    name = getattr(getattr(node, "target", None), "__name__", "")
    if node.op != "call_function" or not any(name.startswith(cast) for cast in _EXACT_CASTS):
        return None
    return str(node.kwargs.get("dtype"))


def _text(graph: Any) -> str:
    """Return steps, arguments and constants of a graph as text."""
    owner = graph.owning_module
    constants = [
        f"{node.target}={getattr(owner, node.target)!r}" for node in graph.nodes if node.op == "get_attr"
    ]  # fmt: skip
    return "\n".join([str(graph), *constants])


ARGUMENTS: tuple[Callable[[Case, Mutant], str], ...] = (of_unread, of_casts, of_stored, of_same_program)
