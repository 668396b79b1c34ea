"""Pipeline files in TOML: Python functions and ONNX models that one input page goes through."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.core.edge.stage_pipeline import PipelineStage, StagePipeline
from nearpeak.errors import SpecError, shown

_TEXTS = {"name": "name", "call": "call", "model": "model", "buckets": "order"}
MOST_STAGES, MOST_NAME, MOST_BATCH = 100, 100, 65_536
"""Stages, characters of a name and items of a batch beyond which a file is taken for damaged."""
_KEYS = (*_TEXTS, "inputs", "each", "batch")


@border("pipeline")
def pipeline_of(path: Path) -> StagePipeline:
    """Return the stages of a file.

    Each `[[stage]]` has a `name`, and `call` ("module:function" or "file.py:function") or `model`, an ONNX file beside
    the pipeline or in a package ("package:models/detector.onnx");
    `inputs` names the stages whose results it takes, `each = true` calls it for every item of a list, and `batch` runs
    a model on so many items at once, in the order of `buckets` ("given" or "sorted" by width).

    Raises:
        SpecError: the file is missing or malformed; the message names stage and key.
    """
    data = toml_of_file(path)
    tables, unknown = data.get("stage"), sorted(set(data) - {"name", "stage", "input"})
    if not isinstance(tables, list) or not tables or unknown:
        wrong = f"no key {shown(unknown[0], str)}" if unknown else "no [[stage]] table"
        raise SpecError(f"{path}: {wrong}; it holds name, input and [[stage]] with name and call or model")
    for key in ("name", "input"):
        if not isinstance(data.get(key, ""), str):
            raise SpecError(f"{path}: {key} is {shown(data[key])}; a text is right")
    if len(tables) > MOST_STAGES:
        raise SpecError(f"{path}: has {len(tables):,} stages; at most {MOST_STAGES} are right")
    try:
        stages = tuple(_stage(path.parent, table, place) for place, table in enumerate(tables, 1))
        return StagePipeline(name=str(data.get("name", path.stem)), stages=stages, page=str(data.get("input", "")))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def _stage(folder: Path, table: Mapping[str, Any], place: int) -> PipelineStage:
    if not isinstance(table, dict):
        raise SpecError(f"stage {place}: is {shown(table)}; a table with name and call or model is right")
    name = table.get("name", place)
    where = (
        f"stage {name}" if isinstance(name, str) and name.isprintable() and len(name) <= MOST_NAME else f"stage {place}"
    )
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SpecError(f"{where}: no key {shown(unknown[0], str)}; there are {', '.join(_KEYS)}")
    wrong = [key for key in _TEXTS if not isinstance(table.get(key, ""), str)]
    if wrong or not table.get("name"):
        key = wrong[0] if wrong else "name"
        raise SpecError(f"{where}: {key} is {shown(table.get(key))}; a text is right")
    if len(table["name"]) > MOST_NAME or not table["name"].isprintable():
        raise SpecError(f"{where}: name is {shown(name)}; text of one line with 1 to {MOST_NAME} characters is right")
    if not isinstance(table.get("each", False), bool):
        raise SpecError(f"{where}: each is {shown(table['each'])}; true or false is right")
    inputs, batch = table.get("inputs", []), table.get("batch", 0)
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise SpecError(f"{where}: inputs is {shown(inputs)}; a list of stages before it is right")
    if isinstance(batch, bool) or not isinstance(batch, int) or not 0 <= batch <= MOST_BATCH:
        raise SpecError(f"{where}: batch is {shown(batch)}; a whole number from 1 to {MOST_BATCH:,} is right")
    texts: dict[str, Any] = {field: table[key] for key, field in _TEXTS.items() if key in table}
    if texts.get("model"):
        texts["model"] = _model_path(where, folder, texts["model"])
    return PipelineStage(inputs=tuple(inputs), is_each=bool(table.get("each")), batch=batch, **texts)


def _model_path(where: str, folder: Path, text: str) -> str:
    """Return the path of a model, which may be in an installed package."""
    package, sign, rest = text.partition(":")
    if not sign or (folder / text).exists():
        return str(folder / text)
    spec = find_spec(package) if package.isidentifier() else None
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise SpecError(f"{where}: model {shown(text)}: no package {shown(package)} is installed; a path has no colon")
    return str(Path(places[0]) / rest)
