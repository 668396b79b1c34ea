"""Parameters of an operator and their levels for directed cases, derived from its signature."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from nearpeak.base.covering_arrays import Level
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError
from nearpeak.ops import LAYOUTS, OPS

USUAL = "usual"
EDGES = {"0": 0, "1": 1, "2": 2, "odd": 7, "below_tile": 31, "tile": 32, "above_tile": 33}
"""Boundary classes of an extent, each with the extent that stands for it."""
SIZES = {"vector": 8, "1": 1, "odd": 7}
"""Coarser classes that are combined with those of other parameters."""
FORMATS = ("bf16", "fp16", "fp32")
WIDER_FORMATS = ("fp64",)
"""Formats of which one case is enough."""
TILE, VECTOR = 32, 8
OFFSETS_BYTES = (1, 2, 4, 8, 16)
"""Bytes by which an input starts after an aligned address."""
_AXIS, _FORMAT, _CHOICE, _MEMORY = "axis", "format", "choice", "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of an operator."""

    name: str
    """Name in the operator's rule."""
    role: str
    """Axis, format, choice, or how an input lies in memory."""
    combined: tuple[str, ...]
    """Levels that occur together with those of every other parameter, the usual one first; none where each level only
    has to occur."""
    edges: tuple[str, ...]
    """Levels that occur at least once."""
    default: Level | None = None
    """Value when it is left out; none when it must be given or repeats another axis."""
    same: str = ""
    """Axis that it repeats when it is left out."""

    @property
    def is_flag(self) -> bool:
        """Whether it is true or false."""
        return isinstance(self.default, bool)

    def value(self, level: str) -> Level | None:
        """Return the value that stands for a level; none to leave the parameter out."""
        if level == USUAL:
            return SIZES["vector"] if self.role == _AXIS and self.default is None and not self.same else None
        if self.role == _AXIS:
            return SIZES[level] if level in SIZES else EDGES[level]
        if self.role == _MEMORY:
            return int(level) if level.isdigit() else level
        return level == "true" if self.is_flag else level

    def levels_of(self, case: Case) -> Iterator[str]:
        """Yield the levels at which `case` has it: the usual one, or a boundary class and a coarser one."""
        if self.role == _MEMORY:
            yield str(dict(case.memory).get(self.name, USUAL))
            return
        if self.role != _AXIS:
            value = dict((*case.dtypes, *case.attributes))[self.name]
            yield str(value).lower() if self.is_flag else str(value)
            return
        axes = dict(case.axes)
        extent = axes[self.name]
        if extent == (axes[self.same] if self.same else self.default):
            yield USUAL
        yield from filter(None, (edge_of(extent), size_of(extent)))


def edge_of(extent: int) -> str:
    """Return the boundary class of an extent; empty for one that is at no boundary.

    >>> [edge_of(extent) for extent in (0, 1, 2, 127, 128, 129, 49, 48)]
    ['0', '1', '2', 'below_tile', 'tile', 'above_tile', 'odd', '']
    """
    if extent <= 2:
        return str(extent)
    rest = {0: "tile", TILE - 1: "below_tile", 1: "above_tile"}.get(extent % TILE)
    return rest or ("odd" if extent % 2 else "")


def size_of(extent: int) -> str:
    """Return the coarser class of an extent; empty for even extents that no vector divides.

    >>> [size_of(extent) for extent in (1, 7, 64, 6)]
    ['1', 'odd', 'vector', '']
    """
    if extent <= 1:
        return str(extent) if extent else ""
    return "odd" if extent % 2 else ("" if extent % VECTOR else "vector")


@cache
def parameters_of(op: str, phase: str) -> tuple[Parameter, ...]:
    """Return the parameters of an operator: axes (data axes excepted), its first format, all choices, memory layouts.

    Memory parameters are layout and offset of each input of the usual case.

    >>> [one.name for one in parameters_of("softmax", "forward")]
    ['rows', 'columns', 'dtype', 'log', 'x.layout', 'x.offset']
    """
    operator = OPS[op]
    signature = operator.signatures[phase]
    stated = choices().get(op, {})
    axes = [name for name in signature.axes if name not in operator.data_axes]
    parameters = []
    for name in axes:
        default, same = signature.defaults.get(name), signature.same.get(name, "")
        optional = default is not None or bool(same)
        sizes = tuple(level for level, extent in SIZES.items() if optional and extent != default)
        combined = (USUAL, *sizes) if optional else tuple(SIZES)
        parameters.append(
            Parameter(name=name, role=_AXIS, combined=combined, edges=tuple(EDGES), default=default, same=same)
        )
    for name in signature.dtypes[:1]:
        formats = tuple(stated.get(name, FORMATS))
        parameters.append(Parameter(name=name, role=_FORMAT, combined=formats, edges=(*formats, *WIDER_FORMATS)))
    for name, kind in signature.attributes.items():
        default = signature.defaults.get(name)
        usual = default if default is not None else False if kind is bool else None
        parameters.append(_choice(name, usual, tuple(stated.get(name, ())), tuple(operator.listed.get(name, ()))))
    return (*parameters, *_memory(op, phase, parameters))


def _memory(op: str, phase: str, parameters: list[Parameter]) -> Iterator[Parameter]:
    """Yield layout and offset of each input of the case at usual levels; nothing where there is no such case."""
    usual = {
        parameter.name: value
        for parameter in parameters
        if (value := parameter.value(parameter.combined[0])) is not None
    }
    try:
        inputs = OPS[op].inputs(**OPS[op].forward_arguments(OPS[op].case(phase, **usual)))
    except NearpeakError:
        return
    for name, tensor in inputs.items():
        layouts = tuple(layout for layout, rank in LAYOUTS.items() if len(tensor.shape) >= rank)
        for what, edges in (("layout", layouts), ("offset", tuple(map(str, OFFSETS_BYTES)))):
            yield Parameter(name=f"{name}.{what}", role=_MEMORY, combined=(), edges=edges)


@cache
def choices() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the values of choices by operator and name."""
    return tomllib.loads((files("nearpeak.suites") / "choices.toml").read_text(encoding="utf-8"))


def _choice(name: str, default: Level | None, stated: tuple[str, ...], listed: tuple[str, ...]) -> Parameter:
    if isinstance(default, bool):
        stated = (str(default).lower(), str(not default).lower())
    elif not stated:
        stated = (str(default or ""),)
    edges = (*stated, *(value for value in listed if value not in stated))
    return Parameter(name=name, role=_CHOICE, combined=stated, edges=edges, default=default)
