"""Plans of training runs as TOML files: what `nearpeak train-bench plan` writes and `run` reads."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import border, text_of_file, toml_table
from nearpeak.core.edge.training_matrix import TrainingMatrix
from nearpeak.core.records.record_codec import Codec
from nearpeak.errors import SpecError

_KIND = "train-bench"
_KEYS = {
    "models": "models", "batches": "batch", "workers": "worker_count", "caches": "caches", "modes": "modes",
    "repeats": "repeat_count", "epochs": "epoch_count", "items": "item_count", "seed": "seed", "device": "device",
    "threads": "thread_count", "prefetch": "prefetch_count", "norm": "norm", "pair": "pair",
    "telemetry_hz": "telemetry_hz",
}  # fmt: skip
"""Field by its key in the file."""
_HEAD = """# Training runs for 'nearpeak train-bench run': every combination below, {runs} runs.
# Repetitions are blocks in random order (A B B A where 'pair' names a field). Modes run one after the other, as a
# change needs a pause, on some boards a restart; 'here' is the present one, and nothing changes it without
# --allow-mode-changes.
"""
_CODEC = Codec(strict=True)


def plan_text(plan: TrainingMatrix) -> str:
    """Return a plan as the text of its file.

    >>> plan_of(plan_text(TrainingMatrix(repeat_count=2)), "plan.toml") == TrainingMatrix(repeat_count=2)
    True
    """
    lines = [f'kind = "{_KIND}"', "version = 1"]
    for key, name in _KEYS.items():
        value = getattr(plan, name)
        if isinstance(value, dict):
            text = "{" + ", ".join(f"{word} = {count}" for word, count in value.items()) + "}"
        else:
            text = json.dumps(list(value) if isinstance(value, tuple) else value)
        lines.append(f"{key} = {text}")
    return _HEAD.format(runs=sum(1 for _ in plan.cells())) + "\n".join(lines) + "\n"


@border("plan")
def read_plan(path: Path) -> TrainingMatrix:
    """Return the plan that a TOML file states.

    Raises:
        SpecError: it is not TOML, or states what no plan has.
    """
    return plan_of(text_of_file(path), str(path))


def plan_of(text: str, source: str) -> TrainingMatrix:
    r"""Return the plan that `text` states; keys that it leaves out have their usual values.

    >>> plan_of('kind = "train-bench"\nepoch = 3', "plan.toml")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: plan.toml: 'epoch' is no key of a plan; there are models, batches, workers, caches, ...
    """
    try:
        raw: dict[str, Any] = toml_table(text)
    except ValueError as error:
        raise SpecError(f"{source}: is not TOML: {error}") from None
    if raw.pop("kind", None) != _KIND or raw.pop("version", 1) != 1:
        raise SpecError(f"{source}: is no plan of training runs; 'nearpeak train-bench plan --out {source}' writes one")
    unknown = [key for key in raw if key not in _KEYS]
    if unknown:
        raise SpecError(f"{source}: {unknown[0]!r} is no key of a plan; there are {', '.join(_KEYS)}")
    stated = {_KEYS[key]: value for key, value in raw.items()}
    usual = _CODEC.plain(TrainingMatrix())
    plan: TrainingMatrix = _CODEC.value({**usual, **stated}, TrainingMatrix, source)
    for field in fields(plan):
        if isinstance(getattr(plan, field.name), bool):
            raise SpecError(f"{source}: {field.name} is true or false; give a number or a text")
    try:
        for _ in plan.cells():
            break  # a cell that nothing can run is refused here
    except SpecError as error:
        raise SpecError(f"{source}: {error}") from None
    return plan
