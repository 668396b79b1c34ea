"""Elements of operands that the program fixes: masked scores, zeros, constant conditions."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nearpeak.core.work.workload import Known, Pattern
from nearpeak.frontends.known_values.constant_patterns import (
    LARGEST_ELEMENTS,
    distinct_extents,
    one_run,
    pieces_of,
)
from nearpeak.frontends.known_values.live_masks import HIDDEN, one_thread
from nearpeak.frontends.known_values.tensor_origins import Origins
from nearpeak.frontends.known_values.tensor_pieces import (
    Given,
    Made,
    Origin,
    Part,
    Patched,
    Result,
    TooLargeError,
)
from nearpeak.frontends.known_values.value_spans import high_of, low_of

_MOST_ELEMENTS = 2**27
"""Most distinct elements examined in one capture, about two to three seconds."""
_FACTORS = ("zero", "no_product")
_DECISIONS = ("true", "false")
_ASKED: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("_softmax", "_safe_softmax", "exp", "exp2", "sigmoid", "amax", "max", "logsumexp", "argmax"),
                    (("self", "hidden"),)),
    **dict.fromkeys(("mm", "bmm"), tuple((name, says) for name in ("self", "mat2") for says in _FACTORS)),
    "addmm": tuple((name, says) for name in ("mat1", "mat2") for says in _FACTORS),
    "baddbmm": tuple((name, says) for name in ("batch1", "batch2") for says in _FACTORS),
    "mv": tuple((name, says) for name in ("self", "vec") for says in _FACTORS),
    "mul": tuple((name, says) for name in ("self", "other") for says in _FACTORS),
    "masked_fill": (("mask", "true"),),
    "index": (("indices[0]", "false"), ("indices[1]", "false")),
    "index_put": (("indices[0]", "true"),),
    "where": tuple(("condition", says) for says in _DECISIONS),
}  # fmt: skip
"""Facts to examine, by operator: argument and fact."""


class _Question(NamedTuple):
    """A fact to examine for one operand of one call."""

    call: int
    """Position of the call."""
    tensor: int
    """Position among the call's tensors."""
    says: str
    """One of SAYINGS."""
    part: Part
    """The view whose values are examined."""


class _Alike:
    """Numbers origins; origins with the same operators on the same values, such as those of layers, share a number."""

    def __init__(self) -> None:
        self._of_object: dict[int, int] = {}
        self._of_kind: dict[Any, int] = {}

    def number(self, origin: Origin) -> int:
        """Return the number; all data-dependent origins count as equal."""
        number = self._of_object.get(id(origin))
        if number is None:
            try:
                key = self._key(origin)
            except RecursionError:  # a tensor written piece by piece in thousands of steps is like no other
                key = id(origin)
            number = self._of_object[id(origin)] = self._of_kind.setdefault(key, len(self._of_kind))
        return number

    def _key(self, origin: Origin) -> Any:
        if isinstance(origin, Given):
            return "given", id(origin.real)
        if isinstance(origin, Result):
            return origin._replace(args=self._plain(origin.args), kwargs=self._plain(sorted(origin.kwargs.items())))
        if isinstance(origin, Patched):
            return "patched", self._plain(origin.before), self.number(origin.after)
        return type(origin), origin

    def _plain(self, value: Any) -> Any:
        """Return arguments with numbers in place of origins."""
        if isinstance(value, Part):
            return (Part, self.number(value.origin), *value[1:])
        if isinstance(value, (list, tuple)):
            return tuple(self._plain(item) for item in value)
        return (type(value), value)  # 1 and True are not alike


class Facts:
    """Collects operands with partly known values, and examines each once at the end of the step."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._questions: list[_Question] = []
        self._large = 0

    def asks(self, packet: str) -> bool:
        """Return whether facts of an operator's arguments are examined."""
        return packet in _ASKED or packet.removesuffix("_") in _ASKED

    def note(self, packet: str, call: int, tensors: Sequence[tuple[str, Any]]) -> None:
        """Note the facts to examine for a call.

        Args:
            tensors: argument names and tensors in the order of the call's form, none in place of what it overwrites.
        """
        for name, says in _ASKED.get(packet) or _ASKED[packet.removesuffix("_")]:
            for position, (argument, tensor) in enumerate(tensors):
                is_question = argument == name and tensor is not None
                if not is_question or (name.startswith("indices[") and str(tensor.dtype) != "torch.bool"):
                    continue
                part = self._origins.of(tensor)
                if part is not None and (prod(part.shape) > 1 or says in _DECISIONS):
                    self._questions.append(_Question(call, position, says, part))

    def answers(self) -> tuple[tuple[Known, ...], tuple[Pattern, ...]]:
        """Return the known facts, and the element patterns that they refer to."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        numbers: dict[Pattern, int] = {}
        alike = _Alike()
        answered: dict[Any, Pattern | None] = {}
        known, left = [], _MOST_ELEMENTS
        with _disable_current_modes(), torch.no_grad(), one_thread():
            for call, tensor, says, part in self._questions:
                key = (alike.number(part.origin), *part[1:], says)
                if key not in answered:
                    size = prod(distinct_extents(part))
                    small = size <= min(left, LARGEST_ELEMENTS)
                    answered[key] = self._pattern(part, says) if small else None
                    self._large += not small
                    left -= size if small else 0
                pattern = answered[key]
                if pattern is not None:
                    known.append(Known(call, tensor, says, numbers.setdefault(pattern, len(numbers))))
        return tuple(known), tuple(numbers)

    def assumptions(self) -> tuple[str, ...]:
        """Return a note on operands that were too large to examine."""
        return (f"{self._large} known operands are too large to look at: all of them counts",) if self._large else ()

    def _pattern(self, part: Part, says: str) -> Pattern | None:
        """Return the elements for which the fact holds, none if there are none."""
        if says == "no_product" and part.origin.mixed:
            return None
        try:
            holds = _said(part, says)
        except (TooLargeError, RecursionError):
            self._large += 1
            return None
        return Pattern(holds.shape, zlib.compress(np.packbits(holds).tobytes(), 1)) if holds.any() else None


def _said(part: Part, says: str) -> Any:
    """Return for each distinct element of a view whether the fact holds."""
    extents, made = distinct_extents(part), Made()
    if says == "no_product":
        return _plain(part.block([0] * len(extents), extents, made))
    holds = np.zeros(extents, dtype=bool)
    for starts, sizes in pieces_of(extents):
        place = tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))
        holds[place] = _SAID[says](part.block(starts, sizes, made))
    return holds


def _hidden(block: Any) -> Any:
    import torch

    high = high_of(block)
    if not high.dtype.is_floating_point:
        return np.zeros(tuple(high.shape), dtype=bool)
    return (high <= max(HIDDEN, torch.finfo(high.dtype).min / 2)).numpy()


_SAID: Mapping[str, Callable[[Any], Any]] = {
    "hidden": _hidden,
    "zero": lambda block: ((low_of(block) == 0) & (high_of(block) == 0)).numpy(),
    "true": lambda block: (low_of(block) != 0).numpy(),
    "false": lambda block: (high_of(block) == 0).numpy(),
}
"""Test of each fact on a piece with lower and upper bounds."""


def _plain(values: Any) -> Any:
    """Return whether no element needs a product: along one dimension each line is one run of a number, else zeros.

    Sums over such runs are differences of running sums, each multiplied once at most: identities, permutations,
    what picks rows, means over windows or over all tokens so far.
    """
    numbers = values.double().numpy()
    return np.full(numbers.shape, any(one_run(numbers, axis) for axis in (-1, -2)[: numbers.ndim]))
