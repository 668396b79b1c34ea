"""Pipeline files in TOML: functions and models that a page goes through."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, toml_of_file
from nearpeak.core.edge.stage_pipeline import PipelineStage, StagePipeline
from nearpeak.errors import SpecError

_TEXTS = {"name": "name", "call": "call", "model": "model", "buckets": "order"}
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
        wrong = f"no key {unknown[0]}" if unknown else "no [[stage]] table"
        raise SpecError(f"{path}: {wrong}; it holds name, input and [[stage]] with name and call or model")
    try:
        stages = tuple(_stage(path.parent, table, place) for place, table in enumerate(tables, 1))
        return StagePipeline(name=str(data.get("name", path.stem)), stages=stages, page=str(data.get("input", "")))
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None


def _stage(folder: Path, table: Mapping[str, Any], place: int) -> PipelineStage:
    where = f"stage {table.get('name', place)}"
    unknown = sorted(set(table) - set(_KEYS))
    if unknown:
        raise SpecError(f"{where}: no key {unknown[0]}; there are {', '.join(_KEYS)}")
    wrong = [key for key in _TEXTS if not isinstance(table.get(key, ""), str)]
    if wrong or not table.get("name"):
        raise SpecError(f"{where}: {wrong[0] if wrong else 'name'} is {table.get(wrong[0] if wrong else 'name')!r}; "
                        "a text is right")  # fmt: skip
    inputs, batch = table.get("inputs", []), table.get("batch", 0)
    if not isinstance(inputs, list) or not all(isinstance(name, str) for name in inputs):
        raise SpecError(f"{where}: inputs is {inputs!r}; a list of stages before it is right")
    if isinstance(batch, bool) or not isinstance(batch, int):
        raise SpecError(f"{where}: batch is {batch!r}; a whole number is right")
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
        raise SpecError(f"{where}: model {text!r}: no package {package!r} is installed; a path has no colon")
    return str(Path(places[0]) / rest)
