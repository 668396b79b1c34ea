"""Items in which a step's work is counted: tokens, images, samples."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol

_TENSOR = re.compile(r"(\w+) (\d+(?:×\d+)*)")
_CACHED = re.compile(r"(\d+) cached positions")
_IMAGES = ("pixel_values", "image", "images", "img")
"""Names of inputs whose first extent counts images."""
_CHANNELS = (1, 3)
_GENERATORS = ("ForCausalLM", "LMHeadModel")
"""Ends of the names of classes that write text token by token after they have read a prompt."""


class Step(Protocol):
    """A captured step, or its analysis."""

    @property
    def step(self) -> str:
        """Return what it is: `forward`, `decode`, `train`, or `sweep` for a list of cases."""

    @property
    def origin(self) -> Mapping[str, str]:
        """Return where it comes from; `batch` and `inputs` say what it works on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """What a step works on."""

    noun: str
    """`token`, `image`, `sample`, or `step` where the source says nothing."""
    count: int
    """Items of one step."""
    is_one_each: bool = False
    """Whether each sequence of the batch gets one item per step, so that a step lasts as long as an item: decoding."""

    def item_s(self, time_s: float) -> float:
        """Return the time of an item.

        >>> Items(noun="image", count=8).item_s(4.0), Items(noun="token", count=8, is_one_each=True).item_s(4.0)
        (0.5, 4.0)
        """
        return time_s if self.is_one_each else time_s / self.count

    def per_s(self, time_s: float) -> float:
        """Return the items per second of steps of a time; infinite where a step takes none."""
        return self.count / time_s if time_s else inf


def shapes_of(step: Step) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes of the inputs by name, as the source states them."""
    named = _TENSOR.findall(step.origin.get("inputs", ""))
    return {name: tuple(int(extent) for extent in extents.split("×")) for name, extents in named}


def sequence_of(step: Step) -> int | None:
    """Return the tokens per sequence of a step that reads whole sequences of tokens; none of others."""
    shapes = shapes_of(step)
    shape = shapes.get("input_ids", shapes.get("decoder_input_ids", ()))
    return shape[1] if len(shape) == 2 and step.step != "decode" else None


def kv_of(step: Step) -> int | None:
    """Return the cached positions of each sequence; none where nothing is cached."""
    match = _CACHED.search(step.origin.get("inputs", ""))
    return int(match.group(1)) if match else None


def whole_of(step: Step) -> str:
    """Return what a step of several items is as a whole, after its time; empty where it lasts as long as an item.

    >>> from nearpeak.core.work.workload import Workload
    >>> origin = {"batch": "1", "inputs": "input_ids 1×2048", "class": "LlamaForCausalLM"}
    >>> whole_of(Workload(name="m", step="forward", calls=(), origin=origin))
    'a prompt to its first token'
    """
    items = items_of(step)
    if items.is_one_each or items.count == 1:
        return ""
    if step.step == "train":
        return "a step"
    batch = int(step.origin.get("batch", 1))
    if items.noun != "token":
        return f"a batch of {items.count:,}"
    if step.origin.get("class", "").endswith(_GENERATORS):
        return "a prompt to its first token" if batch == 1 else f"for {batch:,} prompts to their first tokens"
    return "a sequence" if batch == 1 else f"for {batch:,} sequences"


def items_of(step: Step) -> Items:
    """Return the items of a step: tokens of decoding and of text, images, else samples of the batch."""
    shapes = shapes_of(step)
    images = [
        shape[0] for place, (name, shape) in enumerate(shapes.items())
        if name in _IMAGES or (place == 0 and len(shape) == 4 and shape[1] in _CHANNELS)  # later ones may be masks
    ]  # fmt: skip
    if step.step == "sweep" or ("batch" not in step.origin and not images):
        return Items(noun="step", count=1)
    batch = int(step.origin.get("batch", images[0] if images else 1))
    if step.step == "decode":
        return Items(noun="token", count=batch, is_one_each=True)
    if images:
        return Items(noun="image", count=batch)
    if list(shapes)[:1] == ["input_ids"] and (sequence := sequence_of(step)):
        return Items(noun="token", count=batch * sequence)
    return Items(noun="sample", count=batch)
