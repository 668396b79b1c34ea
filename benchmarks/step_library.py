"""Captures named models and writes the library of their steps: sizes as polynomials, proved at other sizes.

`python -m benchmarks.step_library llama-3-8b` writes a file, `--check` compares files with captures of today.

Ranges and polynomials are found and proved with a model of few layers; the whole model is captured at two sizes of
each range: one tells which polynomial stands where, the other proves it. Where that fails, with more layers.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random
from typing import Any

from benchmarks._step_template import Piece, Size, fitted, in_lines, text_of
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.frontends.files.step_template import folded
from nearpeak.frontends.huggingface import step_library
from nearpeak.frontends.huggingface.published_models import MODELS, Published
from nearpeak.frontends.huggingface.step_library import LENGTHS, MOST_TOKENS, Contents, Region, Step

LARGEST_BATCH = 1024
LARGEST_LENGTH = {"forward": 32_768, "decode": 131_072, "train": 8192}
MOST_RANGES = 8
"""Ranges of lengths into which a step may fall; lengths beyond are left to capturing."""
FIRST_LENGTH = 16
KNOWN_TOKENS = 2**16
"""Batch × (length + 1) up to which captures know that no sequences are packed, see `tensor_pieces.Part.block`."""
_USUAL = {"forward": r"input_ids \d+×(\d+)", "decode": r"(\d+) cached positions", "train": r"input_ids \d+×(\d+)"}
"""What the origin says of the length that was taken."""
FEW_LAYERS = 4
"""Layers with which ranges and polynomials are looked for first; as many again each time that they do not do."""
_LAYER_COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers",
                 "num_decoder_layers")  # fmt: skip
_LAYER_PERIODS = ("sliding_window_pattern", "first_k_dense_replace", "global_attn_every_n_layers")
"""Layers until each kind was there once."""


class Captures:
    """The texts of one step of a model by size, captured once each."""

    def __init__(self, model: Published, step: str) -> None:
        """Capture it at its usual size, and find which length that is."""
        self.model, self.name, self.step, self.dtype = model, model.name, step, model.dtype
        self.count, self.usual_length = 0, 0
        self._texts: dict[tuple[int, int], str] = {}
        usual = self._captured(CaptureOptions(step=step, dtype=self.dtype))
        origin = json.loads(usual)["origin"]["inputs"]
        length = re.search(_USUAL[step], origin)
        self.usual_length = int(length[1]) if length else 0
        self._texts[1, self.usual_length or 1] = usual

    def text(self, batch: int, length: int) -> str:
        """Return the text at a size."""
        if (batch, length) not in self._texts:
            lengths = {LENGTHS[self.step]: length} if self.usual_length else {}
            options = CaptureOptions(step=self.step, batch=batch, dtype=self.dtype, **lengths)
            self._texts[batch, length] = self._captured(options)
        return self._texts[batch, length]

    def _captured(self, options: CaptureOptions) -> str:
        from nearpeak.frontends.huggingface.architecture import capture_architecture

        self.count += 1
        return text_of(capture_architecture(self.model, options))

    def origin(self) -> dict[str, str]:
        """Return what the captures say of themselves."""
        origin: dict[str, str] = json.loads(next(iter(self._texts.values())))["origin"]
        return origin

    def piece(self, batches: Sequence[int], lengths: Sequence[int]) -> Piece | None:
        """Return the template of some sizes, none if there is none."""
        try:
            return fitted({(b, n): self.text(b, n) for b, n in product(batches, lengths)})
        except SpecError:
            return None

    def positions(self) -> int:
        """Return the positions that the model was published for, 0 where none are stated."""
        return int(self.model.config.get("max_position_embeddings", 0))

    def is_taken(self, batch: int, length: int) -> bool:
        """Return whether the model takes a size."""
        try:
            self.text(batch, length)
        except SpecError:
            return False
        return True

    def agree(self, piece: Piece, batch: int, length: int) -> bool:
        """Return whether a template gives what is captured at a size."""
        try:
            return piece.gives(self.text(batch, length), (batch, length))
        except SpecError:
            return False


def ranges(captures: Captures) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lengths, shortest first, in each of which one template holds at batch 1."""
    if not captures.usual_length:
        yield 1, 1
        return
    first, last = FIRST_LENGTH, LARGEST_LENGTH[captures.step]
    positions = captures.positions()
    if captures.step != "decode" and positions:
        last = min(last, positions)
    if not captures.is_taken(1, last):
        last = _last_of(lambda n: captures.is_taken(1, n), first, last, captures.model)
    if _proved(captures, (1,), (first, last), [(1, captures.usual_length)]) is not None:
        yield first, last
        return
    for _ in range(MOST_RANGES):
        lengths = [first, first + 5, first + 11] if first + 11 < last else [first]  # masks have length × length bits
        piece = captures.piece((1,), lengths)
        end = first
        if piece is not None and len(lengths) > 1 and captures.agree(piece, 1, first + 2):
            end = _last_of(partial(captures.agree, piece, 1), lengths[-1], last, captures.model)
        yield first, end
        first = end + 1
        if first > last:
            return
    print(f"  {captures.name} {captures.step}: more than {MOST_RANGES} ranges; lengths from {first} are left out")


def _last_of(holds: Callable[[int], bool], first: int, last: int, model: Published) -> int:
    """Return the last length up to which something holds, from sizes in the model's file, else by bisection."""
    if holds(last):
        return last
    stated = {value + step for value in _integers(model.config) for step in (-2, -1, 0, 1)}
    marks = sorted({first, last, *(one for one in stated if first < one < last)})
    while len(marks) > 2:
        middle = len(marks) // 2
        marks = marks[middle:] if holds(marks[middle]) else marks[: middle + 1]
    first, last = marks
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if holds(middle) else (first, middle)
    return first


def _integers(value: object) -> set[int]:
    if isinstance(value, dict):
        return set().union(*map(_integers, value.values())) if value else set()
    return {value} if isinstance(value, int) and value > 16 else set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Sizes at which one template holds."""

    piece: Piece
    """Template with its polynomials."""
    batch: tuple[int, int]
    """Least and largest batch."""
    length: tuple[int, int]
    """Least and largest length."""
    most_tokens: int = MOST_TOKENS
    """Largest product of batch and length + 1."""

    def corner(self) -> Size:
        """Return a size near the far end whose numbers are those of few layers: odd, and large in both."""
        batch = min(self.batch[1], max(7, self.batch[0]))
        length = max(self.length[0], min(self.length[1], self.most_tokens // batch - 1) - 3)
        most = min(self.batch[1], self.most_tokens // (length + 1))
        return max(self.batch[0], most - (1 - most % 2)), length  # powers of two are sizes of other kinds, too

    def inner(self, usual: int) -> Size:
        """Return a size amid the range, at the usual length where that is in it."""
        first, last = self.length
        least, most = self.batch
        length = usual if first < usual < last else (first + last) // 2
        length = max(first, min(length, self.most_tokens // max(least, 2) - 1))
        return max(least, min(most, 7, self.most_tokens // (length + 1))), length


def parts(captures: Captures) -> Iterator[Part]:
    """Yield the parts of a step, each with its proved template."""
    for first, last in ranges(captures):
        middle = captures.usual_length if first < captures.usual_length < last else (first + last) // 2
        alone = _proved(captures, (1,), (first, last), [(1, middle)])
        if alone is None:
            print(f"  {captures.name} {captures.step} {first} to {last}: lengths do not follow polynomials")
            continue
        together, tokens = _of_batches(captures, first, last, middle)
        if together is not None and all(captures.agree(together, 1, length) for length in (first, last)):
            yield Part(piece=together, batch=(1, LARGEST_BATCH), length=(first, last), most_tokens=tokens)
            continue
        yield Part(piece=alone, batch=(1, 1), length=(first, last))
        if together is not None:
            yield Part(piece=together, batch=(2, LARGEST_BATCH), length=(first, last), most_tokens=tokens)


def _of_batches(captures: Captures, first: int, last: int, middle: int) -> tuple[Piece | None, int]:
    """Return the template of batches of 2 and more, and up to which product of batch and length + 1 it holds."""
    known = KNOWN_TOKENS if captures.step != "decode" and captures.usual_length else MOST_TOKENS
    most = min(last, known // 8 - 1)
    batch = 8 if known < MOST_TOKENS else LARGEST_BATCH
    proofs = [(min(7, known // (middle + 1)), middle), (min(LARGEST_BATCH, known // (first + 1)), first)]
    low = _proved(captures, (2, batch), (first, most), [size for size in proofs if size[0] > 1])
    if low is None:
        print(f"  {captures.name} {captures.step} {first} to {last}: batches do not follow polynomials")
    elif captures.agree(low, LARGEST_BATCH, last):
        known = MOST_TOKENS
    return low, known


def _proved(
    captures: Captures, batches: Sequence[int], ends: tuple[int, int], proofs: Sequence[tuple[int, int]]
) -> Piece | None:
    """Return the template of batches and ends of a range that holds at the sizes that prove it; none without one."""
    first, last = ends
    for lengths in ([first, last], [first, (2 * first + last) // 3, last]):
        piece = captures.piece(batches, sorted({*lengths}))
        wrong = [size for size in proofs if piece is not None and not captures.agree(piece, *size)]
        if piece is not None and not wrong:
            return piece
        if piece is None or not captures.is_taken(*wrong[0]) or not piece.has_words_of(captures.text(*wrong[0])):
            return None
    return None


def shallow(model: Published, layer_count: int) -> Published:
    """Return a model with fewer layers, of each kind one among them; the model itself where it has no more."""
    few = max(layer_count, *(2 + int(model.config.get(name, 0)) for name in _LAYER_PERIODS))
    config = _shallow(model.config, few)
    return model if config == model.config else replace(model, config=config)


def _shallow(config: Mapping[str, Any], few: int) -> dict[str, Any]:
    counts = {value for name, value in config.items() if name in _LAYER_COUNTS and value > few}
    cut: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            cut[name] = _shallow(value, few)
        elif isinstance(value, list) and len(value) in counts:
            cut[name] = value[:few]
        else:
            cut[name] = few if name in _LAYER_COUNTS and value > few else value
    return cut


def whole_parts(model: Published, step: str) -> tuple[list[Part], Captures, str]:
    """Return the parts of a step of a whole model, its captures, and how many captures of which model it took.

    Raises:
        NearpeakError: the model has no such step.
    """
    layer_count = FEW_LAYERS
    while (few := shallow(model, layer_count)) is not model:
        layer_count *= 2
        try:
            captures = Captures(few, step)
            whole = Captures(model, step)
            deep = [_deeper(part, whole) for part in parts(captures)]
        except SpecError as error:
            print(f"  {model.name} {step}: {layer_count // 2} layers do not tell of all: {error}", flush=True)
            continue
        return deep, whole, f"{captures.count} + {whole.count}"
    captures = Captures(model, step)
    return list(parts(captures)), captures, str(captures.count)


def _deeper(part: Part, whole: Captures) -> Part:
    """Return a part of the whole model.

    Raises:
        SpecError: its texts are not those of more such layers.
    """
    corner, inner = part.corner(), part.inner(whole.usual_length)
    piece = part.piece.deeper(whole.text(*corner), corner)
    if corner != inner and not whole.agree(piece, *inner):
        raise SpecError(f"batch {inner[0]} and length {inner[1]} differ")
    return replace(part, piece=piece)


def _region(part: Part) -> tuple[Region, str]:
    template = part.piece.template
    if template.count("@") != len(re.findall(r"@\d+", template)):
        raise SpecError("a text with @ in it")
    lines = folded(in_lines(template))
    region = Region(batch=part.batch, length=part.length, token_count=(0, part.most_tokens),
                    line_count=lines.count("\n") + 1, polynomials=part.piece.polynomials)  # fmt: skip
    return region, lines


def write(name: str, steps: Sequence[str]) -> None:
    """Write the file of a model."""
    started = time.process_time()
    model, written, templates, counts = MODELS[name], list[Step](), list[str](), list[str]()
    versions: dict[str, str] = {}
    for step in steps:
        try:
            whole, captures, count = whole_parts(model, step)
        except NearpeakError as error:
            print(f"  {name} {step}: {error}")
            continue
        if not whole:
            continue
        pairs = [_region(part) for part in whole]
        origin = captures.origin()
        versions = {package: origin[package] for package in ("torch", "transformers") if package in origin}
        written.append(Step(step=step, dtype=origin["dtype"], length=captures.usual_length,
                            regions=tuple(region for region, _ in pairs)))  # fmt: skip
        templates += [template for _, template in pairs]
        counts.append(count)
    if not written:
        print(f"{name}: no step that polynomials describe")
        return
    contents = Contents(dimensions=step_library.dimensions_digest(model), versions=versions, steps=tuple(written))
    data = step_library.packed_contents(contents, templates)
    step_library.FOLDER.mkdir(exist_ok=True)
    (step_library.FOLDER / f"{name}.xz").write_bytes(data)
    step_library.contents_of.cache_clear()
    print(f"{name}: {len(data)} bytes, {', '.join(counts)} captures, {time.process_time() - started:.0f} CPU s, "
          f"{step_library.extent_in_words(name)}", flush=True)  # fmt: skip


def difference(name: str, options: CaptureOptions) -> str:
    """Return how the step of the library differs from the captured one; empty where it does not."""
    from nearpeak.frontends.huggingface.architecture import capture_architecture

    step = step_library.library_step(name, options)
    if step is None:
        return f"{name}: the library lacks {options}"
    ours = save_text(replace(step, assumptions=step.assumptions[:-1]))
    # Files number forms by identity, and equal ones that were read are one.
    theirs = save_text(load_text(save_text(capture_architecture(name, options)), name))
    if ours == theirs:
        return ""
    place = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), len(ours))
    around = slice(max(0, place - 80), place + 80)
    return f"{name}: {ours[around]!r} is captured as {theirs[around]!r}"


def size_within(name: str, draw: Random) -> CaptureOptions:
    """Return a size that the library has, drawn by chance."""
    step = draw.choice(step_library.contents_of(name)[0].steps)
    region = draw.choice(step.regions)
    length = draw.randint(*region.length)
    most = min(region.batch[1], region.token_count[1] // (length + 1))
    lengths = {LENGTHS[step.step]: length} if step.length else {}
    batch = draw.randint(region.batch[0], max(region.batch[0], most))
    return CaptureOptions(step=step.step, dtype=step.dtype, batch=batch, **lengths)


def main() -> int:
    """Write the files of the models that are named, or compare them with captures of today, at one drawn size each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_library", description=__doc__)
    parser.add_argument("models", nargs="*", help="all named models by default")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    options = parser.parse_args()
    differences = []
    for name in options.models or MODELS.names():
        if options.check:
            differences += [text] if (text := difference(name, size_within(name, Random(name)))) else []
        else:
            write(name, ("forward", "decode"))
    print("\n".join(differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
