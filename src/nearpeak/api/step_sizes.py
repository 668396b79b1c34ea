"""A shipped step at other batch sizes, lengths and formats."""

import dataclasses
from collections.abc import Sequence
from itertools import product
from typing import Any

from nearpeak.api.questions import analyze
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.items import items_of, kv_of, sequence_of
from nearpeak.core.answers.size_grid import GridAnswer, SizeGrid
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.judgement.step_answer import expected_of

BATCHES = (1, 8, 64)
"""Batch sizes beside the one that is asked for."""
LENGTHS: dict[str, tuple[int, ...]] = {"decode": (1024, 8192), "forward": (512, 2048), "train": ()}
"""Lengths likewise, by step. Each size costs about a third of a second, half of it for its least work."""
_LENGTH_NAMES = {"decode": "Cached positions", "forward": "Tokens per sequence", "train": "Tokens per sequence"}
Format = tuple[str | None, str | None]
"""Format of the weights and of the cache of keys and values; none for that of the step."""
FORMATS: dict[str, tuple[Format, ...]] = {
    "decode": ((None, None), ("fp8", "fp8")),
    "forward": ((None, None), ("fp8", None)),
}
"""Formats beside the one that is asked for, by step; a training step has its own alone."""


def step_grid(
    model: str, options: CaptureOptions, targets: Sequence[Target], policy: Policy = Policy(), *, execution: str = "",
    software: str = "best",
) -> SizeGrid | None:  # fmt: skip
    """Return the answers of a named model at other sizes and in other formats; none where its step is not shipped.

    Sizes beyond the shipped step, and formats that a target does not take, have no answer.

    >>> from nearpeak.targets import target_of
    >>> grid = step_grid("bert-base", CaptureOptions(), [target_of("l4")])
    >>> grid.lengths, grid.formats[0], len(grid.answers[0])
    ((128, 512, 2048), 'fp32', 18)
    """
    from nearpeak.frontends.source_types import shipped_step

    shipped = shipped_step(model, options)
    if shipped is None:
        return None
    length = kv_of(shipped) if options.step == "decode" else sequence_of(shipped)
    own_format = options.weights, options.kv_cache
    batches = tuple(sorted({options.batch_count, *BATCHES}))
    lengths = tuple(sorted({length, *LENGTHS[options.step]})) if length else (0,)
    formats = tuple(dict.fromkeys((own_format, *(FORMATS.get(options.step, ()) if length else ()))))
    length_option = "kv" if options.step == "decode" else "sequence"
    answers: list[list[GridAnswer | None]] = [[] for _ in targets]
    for (weights, kv_cache), tokens, batch in product(formats, lengths, batches):
        sizes: dict[str, Any] = {length_option: tokens} if length else {}
        dtype = options.dtype if (weights, kv_cache) == own_format or not (weights or kv_cache) else None
        changed = dataclasses.replace(
            options, batch=batch, dtype=dtype, weights=weights, kv_cache=kv_cache,
            activations=options.activations if weights == options.weights else None, **sizes,
        )  # fmt: skip
        step = shipped_step(model, changed)
        for place, target in enumerate(targets):
            answers[place].append(None if step is None else _answer(step, target, policy, execution, software))
    return SizeGrid(
        noun=items_of(shipped).noun, length_name=_LENGTH_NAMES[options.step] if length else "", batches=batches,
        lengths=lengths, formats=tuple(_format_in_words(name, shipped.origin["dtype"]) for name in formats),
        own=(batches.index(options.batch_count), lengths.index(length or 0), 0),
        answers=tuple(map(tuple, answers)),
    )  # fmt: skip


def _answer(step: Workload, target: Target, policy: Policy, execution: str, software: str) -> GridAnswer | None:
    """Return the answer of one step on one target; none where the target does not take it."""
    try:
        analysis = analyze(step, [target], policy, execution=execution, software=software)
    except (SpecError, NotModelledError):
        return None
    items, answer = items_of(analysis), analysis.targets[0]
    expected = expected_of(analysis, answer)
    limit_s = items.item_s(answer.bound_s)
    if expected is None:
        return GridAnswer(limit_s, None, None, None, items.per_s(answer.bound_s), answer.fit.fits)
    return GridAnswer(
        limit_s, items.item_s(expected.time_s), items.item_s(expected.low_s), items.item_s(expected.high_s),
        items.per_s(expected.time_s), answer.fit.fits,
    )  # fmt: skip


def _format_in_words(stored: Format, dtype: str) -> str:
    """Return a format as the page names it.

    >>> _format_in_words(("fp8", "fp8"), "bf16"), _format_in_words((None, None), "bf16")
    ('fp8 weights, fp8 KV cache', 'bf16')
    """
    weights, cache = stored
    parts = [f"{weights} weights"] * bool(weights) + [f"{cache} KV cache"] * bool(cache)
    return ", ".join(parts) or dtype
