"""Capability tables: the operators, number formats and conditions that an inference engine documents, as data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.conversion.engine_parts import CONDITIONAL, DENIED, UNKNOWN
from nearpeak.core.work.dtype import DTYPES
from nearpeak.errors import SpecError, UnknownNameError, shown

FOLDER = Path(__file__).with_name("capabilities")
"""Tables that come with nearpeak, one file for each engine and version."""
_KEYS: Mapping[str, frozenset[str]] = {
    "rank": frozenset({"input", "least", "most"}), "ones": frozenset({"attribute"}), "results": frozenset({"most"}),
    "absent": frozenset({"attributes"}), "initializer": frozenset({"input"}), "known": frozenset({"input"}),
    "value": frozenset({"input"}), "attribute": frozenset({"attribute", "in"}), "mirrored": frozenset({"attribute"}),
    "same_directions": frozenset({"attribute"}), "static": frozenset({"input"}),
    "static_axis": frozenset({"input", "attribute"}), "all_axes": frozenset({"input", "attribute", "given"}),
    "follows": frozenset({"input", "kinds"}), "last_axes": frozenset({"input", "attribute", "count"}),
    "at_most": frozenset({"attribute", "limit"}), "not_negative": frozenset({"attribute"}),
    "operands": frozenset({"least"}), "one_format": frozenset(), "words": frozenset(),
}  # fmt: skip
"""Keys that a condition of each kind needs."""
_OPTIONAL: Mapping[str, frozenset[str]] = {"value": frozenset({"in", "most"})}
_TOP: Mapping[str, type] = {
    "engine": str, "version": str, "source": str, "licence": str, "first_opset": int, "last_opset": int,
    "operators": str, "devices": list, "preserved": list, "other_formats": str,
    "narrowed": list, "denied": list, "group": list, "typed": list, "condition": list,
}  # fmt: skip
ONNX, ATEN = "onnx", "aten"
"""Operator sets of tables: of ONNX files, or of PyTorch."""
_WORDS: Mapping[str, tuple[str, ...]] = {"operators": (ONNX, ATEN), "other_formats": (DENIED, UNKNOWN)}
"""Words that an entry may be; the first is the usual one."""
_MOST_COUNT = 10_000
"""Operands, ranks and versions of operator sets are below it."""
TENSORS = ("all", "outputs", "first")
"""Tensors whose formats a row may be about: all of a node, its results, or its first operand."""
_REQUIRED = ("engine", "version", "source", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A condition under which an operator is taken."""

    kind: str
    """Predicate that decides it; `words` where none can."""
    says: str
    """The condition in words that complete "the engine …"."""
    otherwise: str = DENIED
    """Verdict where it does not hold, `denied` or `conditional`."""
    settings: Mapping[str, Any]
    """Operand, attribute, and permitted values or ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityTable:
    """What an engine of one version documents to take."""

    engine: str
    """Engine."""
    version: str
    """Its version."""
    source: str
    """Document of the rows."""
    formats: Mapping[str, tuple[str, ...]]
    """Number formats by operator that is taken."""
    denied: frozenset[str]
    """Operators that the document lists as not taken."""
    conditions: Mapping[str, tuple[Condition, ...]]
    """Conditions by operator."""
    typed: Mapping[str, str]
    """One of TENSORS: tensors whose formats the row is about, where that is not the usual one."""
    narrowed: tuple[str, ...] = ()
    """Formats that the engine casts to narrower ones."""
    first_opset_count: int = 1
    """First version of the standard's operator set that the document covers."""
    last_opset_count: int | None = None
    """Last version that it covers; none where it does not say."""
    operators: str = ONNX
    """Operator set of its rows, `onnx` or `aten`."""
    devices: tuple[str, ...] = ()
    """Kinds of devices on which the engine runs; any where none is stated."""
    preserved: tuple[str, ...] = ()
    """Operators of PyTorch that the engine keeps whole where others are decomposed into the core set."""
    other_formats: str = DENIED
    """Verdict on formats that a row does not list, `denied` or `unknown`."""

    @property
    def name(self) -> str:
        """Engine and version."""
        return f"{self.engine} {self.version}"


def table_of(engine: str, file: Path | None = None) -> CapabilityTable:
    """Return the table of an engine written `name:version`, or that of a file of the user's own.

    Raises:
        SpecError: the table is unknown or malformed, or the file is about another engine.

    >>> table_of("tensorrt:10.1").formats["Erf"]
    ('fp32', 'fp16', 'bf16')
    """
    name, colon, version = engine.partition(":")
    if not colon or not name or not version:
        raise SpecError(f"--engine {engine!r}: is not NAME:VERSION; e.g. tensorrt:10.1")
    if file is not None:
        table = read_table(file)
        if (table.engine, table.version) != (name, version):
            raise SpecError(f"{file}: is a table of {table.engine}:{table.version}, --engine says {engine}")
        return table
    known = {path.stem: path for path in sorted(FOLDER.glob("*.toml"))}
    stem = f"{name}_{version.replace('.', '_')}"
    if stem not in known:
        names = [f"{n}:{v.replace('_', '.')}" for n, _, v in (path.partition("_") for path in known)]
        raise UnknownNameError(
            f"--engine {engine!r}: no capability table; there is {', '.join(names)}; another one is given by --table"
        )
    return read_table(known[stem])


@border("capability table")
def read_table(path: Path) -> CapabilityTable:
    """Return the table that a TOML file states; one with an unknown key or without a source is refused."""
    data = toml_of_file(path)
    _check(path, data)
    formats: dict[str, tuple[str, ...]] = {}
    for group in data["group"]:
        if not isinstance(group, dict) or set(group) != {"types", "operators"}:
            raise SpecError(f"{path}: a [[group]] states {sorted(group)}; it needs types and operators, and no more")
        for operator in _names(path, "group.operators", group["operators"]):
            if operator in formats:
                raise SpecError(f"{path}: {operator} is in two groups; state it once")
            formats[operator] = _names(path, "group.types", group["types"])
            if unknown := [name for name in formats[operator] if name not in DTYPES]:
                raise SpecError(
                    f"{path}: group.types of {operator} names {shown(unknown[0])}, which is no number format"
                )
    denied = frozenset(_names(path, "denied", data.get("denied", [])))
    if both := sorted(denied & set(formats)):
        raise SpecError(f"{path}: {both[0]} is both in a group and denied")
    conditions: dict[str, tuple[Condition, ...]] = {}
    for entry in data.get("condition", []):
        condition, operators = _condition(path, entry)
        for operator in operators:
            if operator not in formats:
                raise SpecError(f"{path}: a condition on {operator}, which is in no group")
            conditions[operator] = (*conditions.get(operator, ()), condition)
    typed: dict[str, str] = {}
    for entry in data.get("typed", []):
        tensors = entry.get("tensors")
        if tensors not in TENSORS:
            raise SpecError(f"{path}: typed.tensors is {shown(tensors)}; it is one of {', '.join(TENSORS)}")
        typed |= dict.fromkeys(_names(path, "typed.operators", entry.get("operators")), tensors)
    return CapabilityTable(
        engine=data["engine"], version=data["version"], source=data["source"], formats=formats, denied=denied,
        conditions=conditions, typed=typed, narrowed=_names(path, "narrowed", data.get("narrowed", [])),
        first_opset_count=data.get("first_opset", 1), last_opset_count=data.get("last_opset"),
        operators=data.get("operators", ONNX), devices=_names(path, "devices", data.get("devices", [])),
        preserved=_names(path, "preserved", data.get("preserved", [])),
        other_formats=data.get("other_formats", DENIED),
    )  # fmt: skip


def _check(path: Path, data: Mapping[str, Any]) -> None:
    for key, value in data.items():
        if key not in _TOP:
            raise SpecError(f"{path}: unknown entry {shown(key)}; a capability table has {', '.join(_TOP)}")
        if not isinstance(value, _TOP[key]) or isinstance(value, bool):
            raise SpecError(f"{path}: {key} is {type(value).__name__}; it must be {_TOP[key].__name__}")
        if isinstance(value, int) and not 0 < value < _MOST_COUNT:
            raise SpecError(f"{path}: {key} is {shown(value)}; it must be 1 to {_MOST_COUNT - 1}")
    for key, words in _WORDS.items():
        if data.get(key, words[0]) not in words:
            raise SpecError(f"{path}: {key} is {shown(data[key])}; it is {' or '.join(words)}")
    if missing := [key for key in _REQUIRED if not data.get(key)]:
        raise SpecError(f"{path}: lacks {missing[0]}; a capability table needs {', '.join(_REQUIRED)}")


def _names(path: Path, where: str, names: Any) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise SpecError(f"{path}: {where} must be a list of names")
    return tuple(names)


def _condition(path: Path, entry: Any) -> tuple[Condition, tuple[str, ...]]:
    """Return a condition, and the operators that it is about."""
    if not isinstance(entry, dict) or entry.get("kind") not in _KEYS:
        kind = entry.get("kind") if isinstance(entry, dict) else entry
        raise SpecError(f"{path}: condition of kind {shown(kind)}; there is {', '.join(_KEYS)}")
    kind, says = entry["kind"], entry.get("says", "")
    if not isinstance(says, str) or not says:
        raise SpecError(f"{path}: a condition of kind {kind} does not say what it means; add says = '…'")
    otherwise = entry.get("otherwise", DENIED)
    if otherwise not in (DENIED, CONDITIONAL):
        raise SpecError(f"{path}: otherwise is {shown(otherwise)}; it is {DENIED} or {CONDITIONAL}")
    settings = {key: value for key, value in entry.items() if key not in ("operators", "kind", "says", "otherwise")}
    permitted = _KEYS[kind] | _OPTIONAL.get(kind, frozenset())
    if missing := sorted(_KEYS[kind] - set(settings)):
        raise SpecError(f"{path}: a condition of kind {kind} lacks {missing[0]}")
    if extra := sorted(set(settings) - permitted):
        raise SpecError(f"{path}: a condition of kind {kind} has no {extra[0]}; it has {', '.join(sorted(permitted))}")
    wanted = {
        "input": int, "given": int, "least": int, "most": int, "attribute": str, "attributes": list, "in": list,
        "kinds": list, "limit": str, "count": int,
    }  # fmt: skip
    for key, value in settings.items():
        if not isinstance(value, wanted[key]) or isinstance(value, bool):
            raise SpecError(f"{path}: {key} of a condition of kind {kind} must be {wanted[key].__name__}")
        if isinstance(value, int) and not 0 <= value < _MOST_COUNT:
            raise SpecError(f"{path}: {key} of a condition of kind {kind} must be 0 to {_MOST_COUNT - 1}")
    condition = Condition(kind=kind, says=says, otherwise=otherwise, settings=settings)
    return condition, _names(path, "condition.operators", entry.get("operators"))
