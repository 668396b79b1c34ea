"""Library of captured steps of named models: they are read without PyTorch, at any batch and length that it covers."""

import lzma
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.base.input_files import json_value
from nearpeak.core.records.record_codec import Codec
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.frontends.files.saved_workload import load_text
from nearpeak.frontends.files.step_template import instantiated, unfolded, with_patterns
from nearpeak.frontends.huggingface.published_models import MODELS, Published

FOLDER = Path(__file__).parent / "steps"
LENGTHS = {"forward": "sequence", "decode": "kv", "train": "sequence"}
"""Option that states the length of a step: tokens, or cached positions."""
MOST_TOKENS = 2**40
"""End of a product of sizes without a limit of its own."""
_TAKEN = {"step", "batch", "sequence", "kv", "dtype", "timeout_s", "memory_bytes"}
"""Options with which a step may be one of the library."""

Polynomial = tuple[int, ...]
"""Denominator and coefficients, see `instantiated`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """Sizes between which the numbers of a step are polynomials, both ends included."""

    batch: tuple[int, int]
    """Least and largest batch."""
    length: tuple[int, int]
    """Least and largest length."""
    token_count: tuple[int, int]
    """Least and largest product of batch and length + 1."""
    line_count: int
    """Lines of its template; the templates of a file follow its first line in the order of the regions."""
    polynomials: tuple[Polynomial, ...]
    """Denominator and coefficients of each, see `instantiated`."""

    def holds(self, batch: int, length: int) -> bool:
        """Return whether a size is in the region."""
        sizes = ((self.batch, batch), (self.length, length), (self.token_count, batch * (length + 1)))
        return all(least <= size <= most for (least, most), size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a model in one format."""

    step: str
    """`forward`, `decode` or `train`."""
    dtype: str
    """Format of its weights and activations."""
    length: int
    """Length that a capture takes where none is stated; 0 where the step has none, as of images."""
    regions: tuple[Region, ...]
    """Where its numbers are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """First line of a file: the steps of one model."""

    dimensions: str
    """Digest of the dimensions that were captured."""
    versions: Mapping[str, str]
    """Version of each package that captured them."""
    steps: tuple[Step, ...]
    """Its steps."""


_CODEC = Codec()


def library_step(name: str, options: CaptureOptions) -> Workload | None:
    """Return the step of a named model at the sizes that the options state; none where the library lacks it.

    Its last assumption says where it comes from.

    >>> step = library_step("llama-3-8b", CaptureOptions(step="decode", batch=8, kv=1000))
    >>> step.origin["inputs"]
    'input_ids 8×1, 1000 cached positions'
    """
    if not covers_model(name) or not {*options.stated()} <= _TAKEN:
        return None
    contents, templates = contents_of(name)
    stated = {option: getattr(options, option) for option in ("sequence", "kv")}
    stated_length = stated.pop(LENGTHS[options.step])
    wanted = dtype_of(options.dtype or MODELS[name].dtype or "fp32").name
    for (step, region), template in zip(_regions(contents), templates, strict=True):
        if (step.step, step.dtype) != (options.step, wanted) or any(stated.values()):
            continue
        if stated_length and not step.length:
            continue
        length = stated_length or step.length or 1
        if region.holds(options.batch_count, length):
            text = instantiated(unfolded(template), region.polynomials, options.batch_count, length)
            workload = load_text(with_patterns(text), f"{name}, step of the library")
            return replace(workload, assumptions=(*workload.assumptions, provenance(contents)))
    return None


def covers_model(name: str) -> bool:
    """Return whether the library has steps of a model."""
    return (FOLDER / f"{name}.xz").is_file()


@lru_cache(maxsize=8)
def contents_of(name: str) -> tuple[Contents, tuple[str, ...]]:
    """Return what the file of a model holds: its first line, and a folded template for each region."""
    packed = (FOLDER / f"{name}.xz").read_bytes()
    head, *lines = lzma.decompress(packed).decode().split("\n")
    contents: Contents = _CODEC.value(json_value(head), Contents, f"{name}.xz")
    templates, start = [], 0
    for _, region in _regions(contents):
        templates.append("\n".join(lines[start : start + region.line_count]))
        start += region.line_count
    return contents, tuple(templates)


def packed_contents(contents: Contents, templates: Sequence[str]) -> bytes:
    """Return the file that `contents_of` reads."""
    text = "\n".join([canonical_json(_CODEC.plain(contents)), *templates])
    return lzma.compress(text.encode(), check=lzma.CHECK_CRC32, preset=9 | lzma.PRESET_EXTREME)


def extent_in_words(name: str) -> str:
    """Return which steps of a model the library has, with their sizes.

    >>> extent_in_words("llama-3-8b").partition(",")[0]
    'forward in bf16 at batch 1 to 1024 and sequence 16 to 8192 (65536 tokens at most)'
    """
    words = []
    for step in contents_of(name)[0].steps:
        ranges = [f"batch {_range([region.batch for region in step.regions])}"]
        if step.length:
            ranges.append(f"{LENGTHS[step.step]} {_range([region.length for region in step.regions])}")
        tokens = min(region.token_count[1] for region in step.regions)
        limit = f" ({tokens} tokens at most)" if tokens < MOST_TOKENS else ""
        words.append(f"{step.step} in {step.dtype} at {' and '.join(ranges)}{limit}")
    return ", ".join(words)


def provenance(contents: Contents) -> str:
    """Return the assumption of each step of a file."""
    packages = " and ".join(f"{name} {version}" for name, version in contents.versions.items())
    return f"The step comes with nearpeak, which captured it with {packages}."


def dimensions_digest(model: Published) -> str:
    """Return what tells whether the dimensions of a model are those that were captured."""
    names = [*model.class_names, model.training_class]
    return digest([model.model_type, names, model.dtype, dict(model.config), dict(model.inputs)])


def _regions(contents: Contents) -> Iterator[tuple[Step, Region]]:
    """Yield the regions in the order of their templates."""
    return ((step, region) for step in contents.steps for region in step.regions)


def _range(pairs: Sequence[tuple[int, int]]) -> str:
    return f"{min(first for first, _ in pairs)} to {max(last for _, last in pairs)}"
