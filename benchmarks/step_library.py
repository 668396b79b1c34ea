"""Captures named models and writes the library of their steps: sizes as polynomials, proved at other sizes.

`python -m benchmarks.step_library llama-3-8b` writes a file, `--check` compares files with captures of today.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from math import lcm, prod
from random import Random

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.frontends.files.step_template import MONOMIALS, NUMBER, folded, instantiated, runs_of, with_patterns
from nearpeak.frontends.huggingface import step_library
from nearpeak.frontends.huggingface.published_models import MODELS
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
MOST_RUNS = 64
"""Runs of equal bits up to which a pattern is stated by them."""
_NEW_LINE = re.compile(r'(?<=[\]}]),(?=\{)|(?<="\]),(?=\[)')
"""Places in the text of a workload where a line of its template ends."""


def text_of(workload: Workload) -> str:
    """Return the text of a workload, patterns of bits by their runs where these are few."""
    data = json.loads(save_text(workload))
    for row, pattern in zip(data.get("patterns", []), workload.patterns, strict=False):
        runs = runs_of(pattern.packed, prod(pattern.shape))
        if runs.count(",") < MOST_RUNS:
            row[1] = f"runs:{runs}"
    return canonical_json(data)


class Piece:
    """A template with its polynomials, found at a few sizes."""

    def __init__(self, texts: dict[tuple[int, int], str]) -> None:
        """Find them from the texts at all pairs of some batches and some lengths.

        Raises:
            SpecError: the texts differ in more than numbers.
        """
        parts = {size: NUMBER.split(text) for size, text in texts.items()}
        words = [part[::2] for part in parts.values()]
        if any(other != words[0] for other in words[1:]):
            raise SpecError("the texts differ in more than numbers")
        sizes = list(texts)
        powers = [len({size[axis] for size in sizes}) for axis in (0, 1)]
        self._monomials = [one for one in MONOMIALS if one[0] < powers[0] and one[1] < powers[1]]
        assert len(self._monomials) == len(sizes)
        self._inverse = _inverse([[b**i * n**j for i, j in self._monomials] for b, n in sizes])
        names: dict[tuple[int, ...], int] = {}
        pieces = [words[0][0]]
        for *numbers, word in zip(*(part[1::2] for part in parts.values()), words[0][1:], strict=True):
            if all(number == numbers[0] for number in numbers):
                pieces += [numbers[0], word]
            else:
                name = names.setdefault(self._polynomial(tuple(map(int, numbers))), len(names))
                pieces += [f"@{name}", word]
        self.template, self.polynomials, self._words = "".join(pieces), tuple(names), words[0]

    def has_words_of(self, text: str) -> bool:
        """Return whether a text differs from those of the template in numbers only."""
        return NUMBER.split(text)[::2] == self._words

    def _polynomial(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Return denominator and coefficients of the polynomial with these values at the captured sizes."""
        found = {one: sum(map(Fraction.__mul__, row, map(Fraction, values)))
                 for one, row in zip(self._monomials, self._inverse, strict=True)}  # fmt: skip
        coefficients = [Fraction(found.get(one, 0)) for one in MONOMIALS]
        while coefficients and not coefficients[-1]:
            coefficients.pop()
        denominator = lcm(*(one.denominator for one in coefficients))
        return denominator, *(int(one * denominator) for one in coefficients)

    def gives(self, text: str, batch: int, length: int) -> bool:
        """Return whether the template at a size is the workload of `text`."""
        try:
            mine = instantiated(self.template, self.polynomials, batch, length)
            return mine == text or text_of(load_text(with_patterns(mine), "template")) == text
        except SpecError:
            return False


class Captures:
    """The texts of one step of a model by size, captured once each."""

    def __init__(self, name: str, step: str, dtype: str) -> None:
        """Capture it at its usual size, and find which length that is."""
        self.name, self.step, self.dtype = name, step, dtype
        self.count, self.usual_length = 0, 0
        self._texts: dict[tuple[int, int], str] = {}
        usual = self._captured(CaptureOptions(step=step, dtype=dtype))
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
        return text_of(capture_architecture(self.name, options))

    def piece(self, batches: Sequence[int], lengths: Sequence[int]) -> Piece | None:
        """Return the template of some sizes, none if there is none."""
        try:
            return Piece({(b, n): self.text(b, n) for b, n in product(batches, lengths)})
        except SpecError:
            return None

    def positions(self) -> int:
        """Return the positions that the model was published for, 0 where none are stated."""
        return int(MODELS[self.name].config.get("max_position_embeddings", 0))

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
            return piece.gives(self.text(batch, length), batch, length)
        except SpecError:
            return False


def _inverse(rows: list[list[int]]) -> list[list[Fraction]]:
    """Return the inverse of a matrix."""
    size = len(rows)
    work = [[*map(Fraction, row), *(Fraction(i == j) for j in range(size))] for i, row in enumerate(rows)]
    for column in range(size):
        pivot = next(i for i in range(column, size) if work[i][column])
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [value / work[column][column] for value in work[column]]
        for i in range(size):
            if i != column and work[i][column]:
                factor = work[i][column]
                work[i] = [a - factor * b for a, b in zip(work[i], work[column], strict=True)]
    return [row[size:] for row in work]


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
        last = _last_of(lambda n: captures.is_taken(1, n), first, last, captures.name)
    if _proved(captures, (1,), (first, last), [(1, captures.usual_length)]) is not None:
        yield first, last
        return
    for _ in range(MOST_RANGES):
        lengths = [first, first + 5, first + 11] if first + 11 < last else [first]  # masks have length × length bits
        piece = captures.piece((1,), lengths)
        end = first
        if piece is not None and len(lengths) > 1 and captures.agree(piece, 1, first + 2):
            end = _last_of(partial(captures.agree, piece, 1), lengths[-1], last, captures.name)
        yield first, end
        first = end + 1
        if first > last:
            return
    print(f"  {captures.name} {captures.step}: more than {MOST_RANGES} ranges; lengths from {first} are left out")


def _last_of(holds: Callable[[int], bool], first: int, last: int, name: str) -> int:
    """Return the last length up to which something holds, from sizes in the model's file, else by bisection."""
    if holds(last):
        return last
    stated = {value + step for value in _integers(MODELS[name].config) for step in (-2, -1, 0, 1)}
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


def regions(captures: Captures) -> Iterator[tuple[Region, str]]:
    """Yield the regions of a step with their folded templates."""
    for first, last in ranges(captures):
        middle = captures.usual_length if first < captures.usual_length < last else (first + last) // 2
        alone = _proved(captures, (1,), (first, last), [(1, middle)])
        if alone is None:
            print(f"  {captures.name} {captures.step} {first} to {last}: lengths do not follow polynomials")
            continue
        together, tokens = _of_batches(captures, first, last, middle)
        if together is not None and all(captures.agree(together, 1, length) for length in (first, last)):
            yield _region(together, (1, LARGEST_BATCH), (first, last), tokens)
            continue
        yield _region(alone, (1, 1), (first, last), (0, MOST_TOKENS))
        if together is not None:
            yield _region(together, (2, LARGEST_BATCH), (first, last), tokens)


def _of_batches(captures: Captures, first: int, last: int, middle: int) -> tuple[Piece | None, tuple[int, int]]:
    """Return the template of batches of 2 and more, and the products of batch and length + 1 for which it holds."""
    known = KNOWN_TOKENS if captures.step != "decode" and captures.usual_length else MOST_TOKENS
    most = min(last, known // 8 - 1)
    batch = 8 if known < MOST_TOKENS else LARGEST_BATCH
    proofs = [(min(7, known // (middle + 1)), middle), (min(LARGEST_BATCH, known // (first + 1)), first)]
    low = _proved(captures, (2, batch), (first, most), [size for size in proofs if size[0] > 1])
    if low is None:
        print(f"  {captures.name} {captures.step} {first} to {last}: batches do not follow polynomials")
    elif captures.agree(low, LARGEST_BATCH, last):
        known = MOST_TOKENS
    return low, (0, known)


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


def _region(
    piece: Piece, batch: tuple[int, int], length: tuple[int, int], tokens: tuple[int, int]
) -> tuple[Region, str]:
    if piece.template.count("@") != len(re.findall(r"@\d+", piece.template)):
        raise SpecError("a text with @ in it")
    template = folded(_NEW_LINE.sub(",\n", piece.template))
    line_count = template.count("\n") + 1
    return Region(
        batch=batch, length=length, token_count=tokens, line_count=line_count, polynomials=piece.polynomials
    ), template  # fmt: skip


def write(name: str, steps: Sequence[str]) -> None:
    """Write the file of a model."""
    started = time.process_time()
    found: list[Step] = []
    templates: list[str] = []
    versions: dict[str, str] = {}
    count = 0
    for step in steps:
        try:
            captures = Captures(name, step, MODELS[name].dtype)
        except NearpeakError as error:
            print(f"  {name} {step}: {error}")
            continue
        pairs = list(regions(captures))
        origin = json.loads(captures.text(1, captures.usual_length or 1))["origin"]
        versions = {package: origin[package] for package in ("torch", "transformers")}
        found.append(Step(step=step, dtype=origin["dtype"], length=captures.usual_length,
                          regions=tuple(region for region, _ in pairs)))  # fmt: skip
        templates += [template for _, template in pairs]
        count += captures.count
    contents = Contents(dimensions=step_library.dimensions_digest(MODELS[name]), versions=versions, steps=tuple(found))
    data = step_library.packed_contents(contents, templates)
    step_library.FOLDER.mkdir(exist_ok=True)
    (step_library.FOLDER / f"{name}.xz").write_bytes(data)
    step_library.contents_of.cache_clear()
    print(f"{name}: {len(data)} bytes, {count} captures, {time.process_time() - started:.0f} CPU s, "
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
