"""Files of tuning spaces: TOML with parameters and constraints, T1 JSON of kernel_tuner, Triton Config lists."""

import ast
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, json_value, reading, text_of_file, toml_of_file
from nearpeak.core.tuning.space import Parameter, Setting, TuningSpace
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError, shown
from nearpeak.exchange.axis_expression import names_in
from nearpeak.tuning.configuration_bound import LeastWork

_KEYS = (
    "name", "function", "runner", "case", "check", "parameters", "constraints", "default", "bound", "evaluate",
    "objectives",
)  # fmt: skip
_BOUND_KEYS = ("dram_bytes", "flop", "unit", "blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile:
    """What a file of a tuning space states."""

    space: TuningSpace
    """The space."""
    function: str = ""
    """Kernel as `module:function` or `file.py:function`; empty where the file states none."""
    runner: str = "callable"
    """Runner of the kernel."""
    case: Case | None = None
    """Case that is timed."""
    checks: tuple[Case, ...] = ()
    """Smaller cases on which every configuration is validated."""
    work: LeastWork = field(default_factory=LeastWork)
    """Least work of a configuration."""
    evaluate: str = ""
    """Function from a configuration to its objectives, instead of a kernel."""
    objectives: tuple[str, ...] = ()
    """Names of what it returns and is minimised."""


@border("tuning space")
def read_space_file(path: Path, case_of: Callable[[list[str]], Case]) -> SpaceFile:
    """Return the space of a file: TOML, T1 `.json`, or a Python file whose `Config(…)` calls are a list of Triton's.

    Args:
        case_of: turns the words of a case into it.

    Raises:
        SpecError: the file is malformed; the message names the key.
    """
    if path.suffix == ".json":
        return SpaceFile(space=_t1_space(json_value(text_of_file(path)), path))
    if path.suffix == ".py":
        return SpaceFile(space=_triton_space(text_of_file(path), path))
    data = toml_of_file(path)
    unknown = sorted(set(data) - set(_KEYS))
    if unknown:
        raise SpecError(f"{path}: no key {unknown[0]}; there are {', '.join(_KEYS)}")
    texts = {key: data.get(key, "") for key in ("name", "function", "runner", "case", "evaluate")}
    for key, text in texts.items():
        if not isinstance(text, str) or not text.isprintable():
            raise SpecError(f"{path}: {key} is {shown(text)}; a text of one line is right")
    work = _table(data, "bound", path)
    if set(work) - set(_BOUND_KEYS) or not all(isinstance(text, str) for text in work.values()):
        raise SpecError(f"{path}: bound holds texts: {', '.join(_BOUND_KEYS)}")
    if work.get("flop") and not work.get("unit"):
        raise SpecError(f"{path}: bound: flop needs the unit that executes it, e.g. unit = 'vector.fp32'")
    objectives = _texts(data, "objectives", path)
    if len(set(objectives)) < len(objectives) or not all(objectives):
        raise SpecError(f"{path}: objectives is {shown(list(objectives))}; different names are right")
    if bool(texts["evaluate"]) != bool(objectives) or (texts["evaluate"] and texts["function"]):
        raise SpecError(f"{path}: give function, or evaluate and objectives, e.g. objectives = ['latency_s', 'error']")
    return SpaceFile(
        space=_space(data, texts["name"] or path.stem, path), runner=texts["runner"] or "callable",
        function=_beside(texts["function"], path), evaluate=_beside(texts["evaluate"], path), objectives=objectives,
        case=case_of(texts["case"].split()) if texts["case"] else None, work=LeastWork(**work),
        checks=tuple(case_of(words.split()) for words in _texts(data, "check", path)),
    )  # fmt: skip


def _space(data: Mapping[str, Any], name: str, path: Path) -> TuningSpace:
    table = _table(data, "parameters", path)
    if not table:
        raise SpecError(f"{path}: has no parameters; e.g. [parameters] block = [16, 32, 64]")
    parameters = tuple(_parameter(key, values, str(path)) for key, values in table.items())
    space = TuningSpace(name=name, parameters=parameters, constraints=_texts(data, "constraints", path))
    for text in space.constraints:
        try:
            names_in(text)  # one that is no expression is refused before anything runs
        except SpecError as error:
            raise SpecError(f"{path}: constraints: {error}") from None
    if data.get("evaluate") and "seed" in table:
        raise SpecError(f"{path}: parameter seed: the search passes a seed of its own; rename the parameter")
    default = _table(data, "default", path)
    if not default:
        return space
    return TuningSpace(
        name=name, parameters=parameters, constraints=space.constraints,
        default=space.configuration_of(default, f"{path}: default"),
    )  # fmt: skip


def _parameter(name: str, values: Any, where: str) -> Parameter:
    if not isinstance(values, list) or not all(isinstance(value, int | float | str) for value in values):
        raise SpecError(f"{where}: {name} is {shown(values)}; a list of numbers, texts or truths is right")
    try:
        return Parameter(name=name, settings=tuple(values))
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None


def _texts(data: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...]:
    texts = data.get(key, [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise SpecError(f"{path}: {key} is {shown(texts)}; a list of texts is right")
    return tuple(texts)


def _table(data: Mapping[str, Any], key: str, path: Path) -> dict[str, Any]:
    table = data.get(key, {})
    if not isinstance(table, dict):
        raise SpecError(f"{path}: {key} is {shown(table)}; a table is right")
    return table


def _beside(function: str, path: Path) -> str:
    """Return `file.py:function` with a file beside the space's own as a path from the working folder."""
    file, _, name = function.rpartition(":")
    if file.endswith(".py") and (path.parent / file).is_file():
        return f"{os.path.relpath(path.parent / file)}:{name}"
    return function


def _t1_space(data: Any, path: Path) -> TuningSpace:
    """Return the space of T1 JSON: `ConfigurationSpace` with `TuningParameters` and `Conditions`.

    Source: the T1 format of the kernel tuning community, github.com/KernelTuner/kernel_tuner, `schemas/T1`.
    """
    if not isinstance(data, dict) or not isinstance(data.get("ConfigurationSpace"), dict):
        raise SpecError(f"{path}: is no T1 file; it has no ConfigurationSpace")
    stated = data["ConfigurationSpace"]
    parameters = list[Parameter]()
    for number, row in enumerate(stated["TuningParameters"]):
        where = f"{path}: TuningParameters[{number}]"
        with reading(where, "parameter"):
            values = json_value(row["Values"]) if isinstance(row["Values"], str) else row["Values"]
            parameters.append(_parameter(str(row["Name"]), values, where))
    with reading(f"{path}: Conditions", "list of expressions"):
        conditions = tuple(str(row["Expression"]) for row in stated.get("Conditions", []))
    name = data.get("KernelSpecification", {}).get("KernelName") or path.stem
    return TuningSpace(name=str(name), parameters=tuple(parameters), constraints=conditions)


def _triton_space(text: str, path: Path) -> TuningSpace:
    """Return the configurations of all `Config({…}, num_warps=…, num_stages=…)` calls with literal values."""
    rows: list[dict[str, Setting]] = []
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) == "Config"
            and node.args
            and isinstance(node.args[0], ast.Dict)
        ):
            pairs = [*zip(node.args[0].keys, node.args[0].values, strict=True)]
            pairs += [(ast.Constant(word.arg), word.value) for word in node.keywords if word.arg]
            rows.append({str(_literal(key, path)): _literal(value, path) for key, value in pairs})
    if not rows:
        raise SpecError(f"{path}: has no Config({{…}}) of literal values")
    names = list(dict.fromkeys(name for row in rows for name in row))
    lacking = [name for name in names if any(name not in row for row in rows)]
    if lacking:
        raise SpecError(f"{path}: {lacking[0]} is stated in some Config calls only; state it in each")
    parameters = tuple(
        _parameter(name, sorted({row[name] for row in rows}, key=lambda value: (str(type(value)), value)), str(path))
        for name in names
    )
    listed = tuple(dict.fromkeys(tuple(row[name] for name in names) for row in rows))
    return TuningSpace(name=path.stem, parameters=parameters, listed=listed)


def _literal(node: ast.expr | None, path: Path) -> Setting:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
        return node.value
    line = "" if node is None else f" in line {node.lineno}"
    raise SpecError(f"{path}: a Config holds a value that is not literal{line}; write numbers and texts")
