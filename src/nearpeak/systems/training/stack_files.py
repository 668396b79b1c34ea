"""The catalogue of software stacks: one TOML file each, with the source of its host times."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import reading, toml_of_file
from nearpeak.base.registry import Registry
from nearpeak.core.systems.stack import Stack
from nearpeak.errors import SpecError
from nearpeak.units import parse

_FOLDER = Path(__file__).parent / "stacks"
_TIMES = {
    "launch": "launch_s",
    "further": "further_launch_s",
    "micro_batch": "micro_batch_s",
    "step": "step_s",
    "graph_launch": "graph_launch_s",
}
_PLAIN = {
    "title": str,
    "source": str,
    "uncertainty": float,
    "backward": float,
    "captured": bool,
    "dropout": bool,
    "confirmed": bool,
    "fusions": str,
    "framework": str,
    "attention": str,
}
_NAMES = {
    "backward": "backward_ratio",
    "uncertainty": "uncertainty_ratio",
    "captured": "is_captured",
    "dropout": "has_dropout",
    "confirmed": "is_confirmed",
}

STACKS: Registry[Stack] = Registry(
    kind="stack",
    files=_FOLDER.glob("*.toml"),
    load=lambda name: parse_stack(name, toml_of_file(_FOLDER / f"{name}.toml")),
    group="nearpeak.stacks",
)
"""All shipped software stacks by name."""


@lru_cache(maxsize=64)
def stack_of(name: str) -> Stack:
    """Return the stack called `name`: a shipped one, or the path of a TOML file of the user's own.

    Raises:
        UnknownNameError: no such stack; the closest names are listed.
        SpecError: the file is malformed.

    >>> stack_of("megatron-deepspeed-2022").launch_s > stack_of("megatron-lm").launch_s
    True
    """
    if name.endswith(".toml"):
        with reading(f"stack file {name}", "stack"):
            return parse_stack(Path(name).stem, toml_of_file(Path(name), f"stack file {name}"))
    return STACKS[name]


def parse_stack(name: str, raw: Mapping[str, Any]) -> Stack:
    """Return the stack that `raw` states.

    Raises:
        SpecError: an entry is missing, unknown or of another kind.

    >>> parse_stack("mine", {"title": "Mine", "launch": "9 us", "source": "measured here"}).launch_s
    9e-06
    """
    for key in ("title", "launch", "source"):
        if key not in raw:
            raise SpecError(f"stack {name}: entry {key!r} is missing")
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _TIMES:
            values[_TIMES[key]] = parse(value, "s")
        elif key not in _PLAIN:
            raise SpecError(f"stack {name}: unknown entry {key!r}; known are {', '.join((*_TIMES, *_PLAIN))}")
        elif not isinstance(value, _PLAIN[key]):
            raise SpecError(f"stack {name}: {key} is {value!r}; it must be of type {_PLAIN[key].__name__}")
        else:
            values[_NAMES.get(key, key)] = value
    return Stack(name=name, **values)
