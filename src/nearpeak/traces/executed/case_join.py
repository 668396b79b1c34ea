"""Join of executed operators with their cases, bounds and expected times, or the reason why a join fails."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from nearpeak.base.identity_key import Same
from nearpeak.core.traces.executed_run import NOTHING, ExecutedOperator, QueueItem, Times
from nearpeak.core.traces.trace import Family
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Call
from nearpeak.errors import MissingExtraError, NearpeakError
from nearpeak.traces import Trace
from nearpeak.traces.timeline.trace_columns import listed

if TYPE_CHECKING:
    from nearpeak.frontends.torch.plain_operators import Recorded

_TILE = 64
"""Elements to which axes of products are padded: whole tiles of every kernel."""
_PRODUCTS = ("gemm", "grouped_gemm")


class Key(NamedTuple):
    """Identity of an operator's calls: its name and its recorded argument lists."""

    name: str
    shapes: str
    dtypes: str
    strides: str
    concrete: str
    results: str
    """Formats and shapes of what it returns, which nodes of onnxruntime state; empty elsewhere."""

    @classmethod
    def of(cls, trace: Trace, row: int) -> "Key":
        """Return the identity of the operator of an event."""
        columns = ("shapes", "dtypes", "strides", "concrete", "output_type_shape")
        name = trace.text_of("op_name", row) or trace.name_of(row)
        return cls(name, *(trace.text_of(column, row) for column in columns))


def can_be_joined(name: str) -> bool:
    """Say whether the catalogue knows an operator of a framework by its name without overload."""
    return name in _known_names()


@lru_cache(maxsize=1)
def _known_names() -> frozenset[str]:
    from nearpeak.ops import aten_matchers

    return frozenset("::".join(name.split(".", 2)[:2]) for name in aten_matchers())


def operators_of(
    trace: Trace, items: Sequence[QueueItem], rows: Sequence[int], kernel_names: Sequence[str], target: Target | None
) -> tuple[tuple[ExecutedOperator, ...], tuple[int, ...]]:
    """Return the operators of the items, and for each item its place among them.

    Args:
        rows: for each item the row of its operator; NOTHING where none is known.
    """
    keys: dict[int, tuple[Key, frozenset[str]]] = {}
    numbers: dict[tuple[Key, frozenset[str]], int] = {}
    links = _links(items, rows)
    members: dict[int, list[int]] = defaultdict(list)
    places = []
    for index, (item, row) in enumerate(zip(items, rows, strict=True)):
        if NOTHING in (row, item.event):
            places.append(NOTHING)
            continue
        key = keys[row] if row in keys else keys.setdefault(row, (Key.of(trace, row), frozenset(links[row])))
        number = numbers.setdefault(key, len(numbers))
        members[number].append(index)
        places.append(number)
    known = _known_cases(list(dict.fromkeys(key for key, _ in numbers)))
    calls = Counter(numbers[key] for key in keys.values())
    operators = []
    for (operator, _), number in numbers.items():
        group = [items[i] for i in members[number]]
        times = _times(_with_transfers(known[operator], operator, group, calls[number]), target)
        operators.append(_operator(trace, operator, times, group, calls[number], kernel_names))
    return tuple(operators), tuple(places)


def _links(items: Sequence[QueueItem], rows: Sequence[int]) -> dict[int, set[str]]:
    """Return the directions in which each operator copies over a link: those of another direction are other work."""
    links: dict[int, set[str]] = defaultdict(set)
    for item, row in zip(items, rows, strict=True):
        if direction := _DIRECTIONS.get(item.copy.partition(" ")[0]):
            links[row].add(direction)
    return links


def _operator(
    trace: Trace, key: Key, times: Times, items: Sequence[QueueItem], call_count: int, kernel_names: Sequence[str]
) -> ExecutedOperator:  # fmt: skip
    families: Counter[str] = Counter()
    for item in items:
        families[Family(int(trace.family[item.event])).name.lower()] += item.device_ns
    names = dict.fromkeys(kernel_names[item.kernel] for item in items if item.kernel != NOTHING)
    shapes, dtypes = _tensors(key)
    return ExecutedOperator(
        name=key.name, shapes=shapes, dtypes=dtypes, call_count=call_count,
        device_ns=sum(work_item.device_ns for work_item in items),
        kernel_count=sum(work_item.kernel != NOTHING for work_item in items), kernels=tuple(names),
        family=families.most_common(1)[0][0] if families else "unknown", 
        **{field.name: getattr(times, field.name) for field in fields(times)},
    )  # fmt: skip


def _tensors(key: Key) -> tuple[tuple[tuple[int, ...], ...], tuple[str, ...]]:
    if not key.shapes:
        return (), ()
    from nearpeak.frontends.torch.plain_operators import format_of

    named: Callable[[str], str | None] = format_of
    if key.results:  # a node of onnxruntime, whose formats load what captures models
        from nearpeak.frontends.onnx.profiled_nodes import node_format

        named = node_format
    tensors = [
        (tuple(shape), dtype_of(name).name)
        for shape, kind in zip(listed(key.shapes), listed(key.dtypes), strict=False)
        if isinstance(kind, str) and isinstance(shape, tuple) and all(isinstance(n, int) for n in shape)
        and (name := named(kind)) is not None
    ]  # fmt: skip
    return tuple(shape for shape, _ in tensors), tuple(name for _, name in tensors)


def _known_cases(keys: Sequence[Key]) -> Mapping[Key, tuple[Case, ...] | str]:
    """Return the cases of each recorded operator, or why it has none; the world without memory is entered once."""
    from nearpeak.frontends.torch.plain_operators import Recorded, plain_cases

    nodes = [key for key in keys if key.shapes and key.results]
    rows = {
        key: Recorded(key.name, *map(parsed_list, key[1:5]))
        for key in keys
        if key.shapes not in ("", "[]") and not key.results
    }
    plain = {key: cases for key, row in rows.items() if (cases := plain_cases(row)) is not None}
    others = {key: row for key, row in rows.items() if key not in plain}
    known = _known_calls(others) | dict(zip(nodes, _calls_of_nodes(nodes), strict=True))
    return {key: plain[key] if key in plain else _cases(known.get(key, "its shapes were not recorded")) for key in keys}


def _cases(calls: tuple[Call, ...] | str) -> tuple[Case, ...] | str:
    if isinstance(calls, str):
        return calls
    if unknown := sorted({call.operator for call in calls if call.case is None}):
        return f"no rule for {', '.join(unknown)}"
    return tuple(call.case for call in calls if call.case is not None) or "it launches no kernel as recorded"


_DIRECTIONS = {"h2d": "h2d", "d2h": "d2h", "p2p": "d2d_out"}
"""Direction of the case `transfer` by that of a copy; copies within one memory are the operator's own."""


def _with_transfers(
    cases: tuple[Case, ...] | str, key: Key, items: Sequence[QueueItem], call_count: int
) -> tuple[Case, ...] | str:
    """Return the cases of an operator with its copies over a link as such, whatever shapes say: they know no devices.

    Where an operator launches no kernel, its copies are all that it does.
    """
    from nearpeak.ops import case

    copies = [(direction, item) for item in items if (direction := _DIRECTIONS.get(item.copy.partition(" ")[0]))]
    if not copies:
        return cases
    if any(item.size < 0 for _, item in copies):
        return "it copies over a link, and the trace does not state the bytes"
    sizes: Counter[str] = Counter()
    for direction, item in copies:
        sizes[direction] += item.size
    transfers = tuple(
        case("transfer", direction=direction, **_elements(key, round(size / call_count)))
        for direction, size in sizes.items()
        if size >= call_count
    )
    launches = any(item.kernel != NOTHING for item in items)
    if not launches:
        return transfers or "it copies nothing"
    return cases if isinstance(cases, str) else (*cases, *transfers)


def _elements(key: Key, size_bytes: int) -> dict[str, Any]:
    """Return elements and format of a copy: those of a recorded tensor of that size, or else bytes."""
    for shape, dtype in zip(*_tensors(key), strict=True):
        if prod(shape) * dtype_of(dtype).bits_count == 8 * size_bytes:
            return {"elements": prod(shape), "dtype": dtype}
    return {"elements": size_bytes, "dtype": "uint8"}


def _known_calls(rows: Mapping[Key, "Recorded"]) -> dict[Key, tuple[Call, ...] | str]:
    """Return what operators of PyTorch dispatch."""
    if not rows:  # what runs operators takes a while to load
        return {}
    try:
        from nearpeak.frontends.torch.profiled_calls import recorded_calls

        calls = recorded_calls(list(rows.values()))
    except MissingExtraError as error:
        return dict.fromkeys(rows, str(error))
    return dict(zip(rows, calls, strict=True))


def _calls_of_nodes(keys: Sequence[Key]) -> list[tuple[Call, ...] | str]:
    """Return what nodes of onnxruntime are."""
    if not keys:  # what captures models takes a while to load
        return []
    from nearpeak.frontends.onnx.profiled_nodes import RecordedNode, recorded_nodes
    from nearpeak.traces.formats.onnxruntime_profile import tensors_of

    def pairs(dtypes: Sequence[Any], shapes: Sequence[Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple(zip(map(str, dtypes), map(tuple, shapes), strict=True))

    return recorded_nodes(
        [
            RecordedNode(key.name, pairs(listed(key.dtypes), listed(key.shapes)), pairs(*tensors_of(key.results)))
            for key in keys
        ]
    )


def parsed_list(text: str) -> tuple[Any, ...]:
    """Return a recorded list; nothing where there is none."""
    return listed(text) if text else ()


def _times(cases: tuple[Case, ...] | str, target: Target | None) -> Times:
    if isinstance(cases, str):
        return Times(reason=cases)
    from nearpeak.ops import label_of

    label = label_of(cases[0]) + (f" and {len(cases) - 1} more" if len(cases) > 1 else "")
    if target is None:
        return Times(label=label, cases=cases, reason="the target is unknown; pass --target")
    return _on(target, label, cases)


def _on(target: Target, label: str, cases: tuple[Case, ...]) -> Times:
    from nearpeak.ops import OPS

    device = Same(target)
    bounds, expected = [_bound_s(case, device) for case in cases], [_predicted_s(case, device) for case in cases]
    padded = [_padded(case) for case in cases]
    same = all(padded_case is case for padded_case, case in zip(padded, cases, strict=True))
    single = any(
        dict(case.dtypes).get("dtype") == "fp32" and OPS[case.op].family in ("product", "convolution") for case in cases
    )
    wider = None if same else _sum([_predicted_s(padded_case, device) for padded_case in padded])
    return Times(
        label=label, cases=cases, bound_s=_sum(bounds), predicted_s=_sum(expected), padded_s=wider,
        tensor_s=_sum([_in_tf32_s(case, device) for case in cases]) if single else None,
        reason=next((bound for bound in (*bounds, *expected) if isinstance(bound, str)), ""),
    )  # fmt: skip


def _sum(values: Sequence[float | str | None]) -> float | None:
    """Return the sum of times; none where one is not known."""
    times = [value for value in values if isinstance(value, float)]
    return sum(times) if len(times) == len(values) else None


@lru_cache(maxsize=65536)
def _bound_s(case: Case, target: "Same[Target]") -> float | str:
    """Return the bound of a case, or why it has none."""
    from nearpeak.bounds.case_bound import case_bound

    try:
        return case_bound(case, target.held).time_s
    except NearpeakError as error:
        return str(error)


@lru_cache(maxsize=65536)
def _predicted_s(case: Case, target: "Same[Target]") -> float | str:
    """Return the expected time of a case, or why it has none."""
    from nearpeak.prediction.case_prediction import predict_case

    try:
        return predict_case(case, target.held).time_s
    except NearpeakError as error:
        return str(error)


def _in_tf32_s(case: Case, device: "Same[Target]") -> float | None:
    """Return the expected time of an fp32 product in TF32.

    It is its bound there at the distance from the bound that the predictor expects of the product in bf16: the same
    kernels on the same matrix units.
    """
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.core.answers.bound import Policy

    narrow = replace(case, dtypes=tuple((name, "bf16" if dtype == "fp32" else dtype) for name, dtype in case.dtypes))
    expected, bound = _predicted_s(narrow, device), _bound_s(narrow, device)
    if "tensor.tf32" not in device.held.peaks or isinstance(expected, str) or isinstance(bound, str) or not bound:
        return None
    try:
        return case_bound(case, device.held, Policy(dtype="tf32")).time_s * expected / bound
    except NearpeakError:
        return None


def _padded(case: Case) -> Case:
    """Return a product of 16-bit or 8-bit numbers with its axes padded to whole tiles; other cases unchanged."""
    if case.op not in _PRODUCTS or dtype_of(dict(case.dtypes)["dtype"]).bits_count > 16:
        return case
    needed = 8 if dtype_of(dict(case.dtypes)["dtype"]).bits_count == 16 else 16
    axes = dict(case.axes)
    if all(axes[name] % needed == 0 or axes[name] == 1 for name in ("m", "n", "k") if name in axes):
        return case
    padded = {n: (ceil(v / _TILE) * _TILE if n in ("n", "k") and v % needed else v) for n, v in axes.items()}
    if axes["m"] % needed and axes["m"] > 1:
        padded["m"] = ceil(axes["m"] / needed) * needed
    return Case(
        op=case.op, phase=case.phase, axes=tuple(padded.items()), dtypes=case.dtypes, attributes=case.attributes
    )
