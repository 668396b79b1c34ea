"""A captured training step, read for what its parallel programs need: units of parameters, their gradients, places."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.systems.rank_program import RECOMPUTED, RankCall
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Argument, Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.programs.gradient_calls import Unit
from nearpeak.systems.training.programs.rank_parameters import ParameterTensor

_BLOCK = re.compile(r"^(?:[^.]+\.)*?\d+(?=\.)")
"""Shortest start of a parameter's name that ends with a number: `bert.encoder.layer.3`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStep:
    """Calls of a captured training step by pass, and its parameters by unit."""

    name: str
    """Name of the workload."""
    forward: tuple[Call, ...]
    """Calls of the forward pass."""
    backward: tuple[Call, ...]
    """Calls of the backward pass."""
    optimizer: tuple[Call, ...]
    """Calls of the optimizer."""
    units: tuple[Unit, ...]
    """The root unit, then blocks in the order of the forward pass."""
    gradients: Mapping[int, tuple[str, ParameterTensor]]
    """Unit and tensor of each buffer that ends as a gradient."""
    gradient_dtype: str
    """Format of the gradients."""

    def unit_of(self, module: str) -> str:
        """Return the unit of a module; the root for what lies in no block."""
        return _unit_of(module, [unit.name for unit in self.units[1:]])


def captured_step(workload: Workload, blocks: Sequence[str] = ()) -> CapturedStep:
    """Return a captured training step by pass and unit.

    Args:
        blocks: module paths of the units that are sharded, gathered and placed as a whole; by default the shortest
            paths that end with a number (`encoder.layer.3`).

    Raises:
        SpecError: the workload is no training step of one device, or a block is none of its modules.
        NotModelledError: a call that no operator matches.
    """
    if workload.step != "train":
        raise SpecError(f"{workload.name}: a {workload.step} step; programs of ranks need a training step (step=train)")
    uncovered = workload.uncovered_counts()
    if uncovered:
        raise NotModelledError(f"{workload.name}: no operator matches {next(iter(uncovered))!r}; its time is unknown")
    if any(call.case is not None and call.case.op == "collective" for call in workload.calls):
        raise SpecError(f"{workload.name}: holds collectives already; capture the step of one device")
    names = [buffer.name for buffer in workload.buffers if buffer.kind == "gradient"]
    if not names:
        raise SpecError(f"{workload.name}: names no gradients of parameters; capture it with its optimizer")
    for block in blocks:
        if not any(_unit_of(name, [block]) for name in names):
            first = _blocks_of(names) or names
            raise SpecError(f"{workload.name}: module {block!r} holds no parameters; {first[0]!r} does")
    order = list(blocks) or _blocks_of(names)
    reached = (_unit_of(call.module, order) for call in workload.calls if call.phase == "forward")
    order = list(dict.fromkeys((*filter(None, reached), *order)))
    tensors, dtype = _tensors(workload)
    gradients = {place: (_unit_of(tensor.name, order), tensor) for place, tensor in tensors.items()}
    places = {buffer.name: place for place, buffer in enumerate(workload.buffers) if buffer.kind == "weight"}
    listed = sorted(gradients.values(), key=lambda pair: places.get(pair[1].name, len(places)))
    units = tuple(
        Unit(name=name or "root", tensors=tuple(tensor for unit, tensor in listed if unit == name))
        for name in ("", *order)
    )
    phases = {
        phase: tuple(call for call in workload.calls if call.phase == phase)
        for phase in ("forward", "backward", "optimizer")
    }
    return CapturedStep(name=workload.name, units=units, gradients=gradients, gradient_dtype=dtype, **phases)


def rank_call(call: Call) -> RankCall:
    """Return a captured call as one of a rank."""
    again = RECOMPUTED if is_again(call) else ""
    name = f"{again}{call.module}" if call.module else call.operator
    return RankCall(name=name, case=call.case, count=call.call_count)


def is_again(call: Call) -> bool:
    """Return whether a call is one of the forward pass that runs once more before the gradients of its block."""
    return call.operator.startswith(RECOMPUTED)


def _unit_of(path: str, blocks: Iterable[str]) -> str:
    return next((block for block in blocks if path == block or path.startswith(f"{block}.")), "")


def _blocks_of(names: Iterable[str]) -> list[str]:
    matches = (_BLOCK.match(name) for name in names)
    return list(dict.fromkeys(match[0] for match in matches if match))


def _tensors(workload: Workload) -> tuple[dict[int, ParameterTensor], str]:
    """Return the tensor of each buffer of a gradient, with the format that most of them have."""
    layouts = _layouts(workload)
    weights = {buffer.name: place for place, buffer in enumerate(workload.buffers) if buffer.kind == "weight"}
    tensors: dict[int, ParameterTensor] = {}
    used: dict[str, int] = {}
    for place, buffer in enumerate(workload.buffers):
        if buffer.kind != "gradient":
            continue
        layout = layouts.get(weights.get(buffer.name, place), layouts.get(place))
        if layout is None:
            raise SpecError(f"{workload.name}: states no format of parameter {buffer.name!r}; capture it anew")
        # The first extent as it lies in memory, whatever view of it a call takes.
        extents = sorted(zip(layout.strides, layout.shape, strict=True), reverse=True)
        written = layouts.get(place, layout).dtype
        used[written] = used.get(written, 0) + buffer.bytes
        elements = buffer.bytes * 8 // dtype_of(written).bits_count
        tensors[place] = ParameterTensor(name=buffer.name, elements=elements, rows=extents[0][1] if extents else 1)
    return tensors, max(used, key=lambda dtype: used[dtype])


def _layouts(workload: Workload) -> dict[int, Layout]:
    """Return a layout of each storage that a call states, the first one that it is seen with."""
    layouts: dict[int, Layout] = {}
    for call in workload.calls:
        for place, layout in layouts_of(call):
            layouts.setdefault(place, layout)
    return layouts


def layouts_of(call: Call) -> Iterator[tuple[int, Layout]]:
    """Yield the buffer and the layout of each tensor of a call, results last; nothing where its source states none."""
    if call.form is not None:
        layouts = [*_of_arguments(tuple(value for _, value in call.form.arguments)), *call.form.results]
        yield from zip(call.storages, layouts, strict=False)


def _of_arguments(argument: Argument) -> Iterator[Layout]:
    if isinstance(argument, Layout):
        yield argument
    elif isinstance(argument, tuple):
        for part in argument:
            yield from _of_arguments(part)
