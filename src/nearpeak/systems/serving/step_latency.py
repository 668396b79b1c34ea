"""Time of one step of a serving engine, from tables of predicted kernel times."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.core.work.case import Case
from nearpeak.systems.serving.adapter_calls import adapter_calls, step_adapter_count
from nearpeak.systems.serving.step_calls import (
    SHARED,
    Rank,
    StepCall,
    decode_calls,
    prompt_calls,
    row_calls,
    token_calls,
)  # fmt: skip

KernelTimes = Callable[[Sequence[Case]], Any]
"""Times of cases: expected, low and high ends of the interval, seconds [cases, 3]."""
FAMILIES = ("product", "attention", "pointwise", "collective")
_PRODUCTS = frozenset({"gemm", "scaled_gemm", "grouped_gemm"})
_ENDS = 3
"""Expected time, low end, high end."""
_UNKNOWN = np.zeros((len(FAMILIES), _ENDS))
FINE, MIDDLE = 64, 512
"""Tokens up to which each number is predicted by itself, and up to which multiples of 8 are."""
KEYS_PER_OCTAVE = 4
"""Knots of cached tokens per sequence between two powers of two; times in between are interpolated."""
PROMPT_KEYS_PER_OCTAVE = 16
"""Likewise for mean keys of new tokens, whose times are taken in proportion to them from the nearest knot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeconds:
    """Time of one step and its parts."""

    time_s: float
    """Expected time of the step."""
    low_s: float
    """Low end of its 90 % interval by the kernels' own intervals."""
    high_s: float
    """High end."""
    device_s: float
    """Kernels, collectives included."""
    host_s: float
    """Host time that the device does not hide."""
    collective_s: float
    """Collectives."""
    attention_s: float
    """Attention."""


class StepTable:
    """Times of steps of one rank of a replica.

    Args:
        rank: the model, its layout and the engine.
        kernel_times: times of cases, all of a table at once.
        product_ratio: times of the engine's products over these.
    """

    def __init__(self, rank: Rank, kernel_times: KernelTimes, product_ratio: float = 1.0) -> None:
        """Predict nothing yet: each table is built when the first step needs it."""
        self.rank = rank
        self._kernel_times, self._product_ratio = kernel_times, product_ratio
        self._sums: dict[tuple[str, float, float], Any] = {}
        self._foreseen: dict[tuple[str, float, float], None] | None = None
        calls = token_calls(rank, 1, is_prompt=True)
        self.kernel_count = sum(call.times * call.kernel_count for call in calls) + rank.shape.layer_count
        self.kernel_count += sum(call.times for call in adapter_calls(rank, 1, 1))

    def __call__(self, batch: StepBatch, /) -> float:
        """Return the seconds of a step (the protocol `TimeSource`)."""
        return self.seconds(batch).time_s

    def prepare(self, batches: Iterable[StepBatch]) -> None:
        """Predict what steps of these batches need, the kernels of all of them together.

        A copy notes what the steps would ask for: others may ask this table meanwhile.
        """
        seer, foreseen = copy(self), dict[tuple[str, float, float], None]()
        seer._foreseen = foreseen
        for batch in batches:
            seer.parts_s(batch)
        self._known(list(foreseen))

    def seconds(self, batch: StepBatch) -> StepSeconds:
        """Return the time of a step and its parts."""
        costs, dp = self.rank.costs, self.rank.layout.attention_dp
        parts = self.parts_s(batch)
        is_graph = not batch.prompt_sequences and costs.has_graph(-(-batch.decode_sequences // dp))
        launched_s = 0.0 if is_graph else self.kernel_count * costs.host_call_s
        # groups that attend apart have hosts of their own
        sequences = (batch.decode_sequences + batch.prompt_sequences) / dp
        host_s, sequences_s = costs.host_step_s, costs.host_sequence_s * sequences
        if costs.hides_sequences:
            launched_s = max(launched_s, sequences_s)
        else:
            host_s += sequences_s
        if batch.prompt_sequences:
            launched_s += costs.hidden_prompt_ratio * costs.host_prompt_s
            host_s += (1 - costs.hidden_prompt_ratio) * costs.host_prompt_s
        middle, low, high = _interval(parts)
        time_s = max(middle, launched_s) + host_s
        by_family = dict(zip(FAMILIES, parts[:, 0], strict=True))
        return StepSeconds(
            time_s=time_s, low_s=time_s - middle + low, high_s=time_s - middle + high, device_s=middle,
            host_s=time_s - middle, collective_s=by_family["collective"], attention_s=by_family["attention"],
        )  # fmt: skip

    def parts_s(self, batch: StepBatch) -> Any:
        """Return the kernels' time of a step by family, with both ends: seconds [families, 3]."""
        costs, dp = self.rank.costs, self.rank.layout.attention_dp
        decoding = batch.decode_tokens
        if decoding and not batch.prompt_sequences:
            padded = dp * costs.padded(-(-batch.decode_sequences // dp))  # each rank that attends apart has its graph
            decoding = padded * (batch.decode_tokens // batch.decode_sequences)
        is_prompt = batch.prompt_sequences > 0
        parts = self.token_s(batch.prompt_tokens + decoding, is_prompt=is_prompt)
        parts = parts + self.row_s(batch.prompt_sequences + decoding)
        if self.rank.layout.adapter_rank and self.rank.layout.adapter_count:
            sequences = (batch.prompt_sequences + batch.decode_sequences) / dp
            parts = parts + self.adapter_s((batch.prompt_tokens + decoding) / dp, sequences)
        if batch.decode_sequences:
            rank_sequences = max(1, batch.decode_sequences / dp)
            even = self.decode_s(rank_sequences, batch.decode_kv / batch.decode_sequences)
            longest = self.decode_s(1, batch.longest_kv)
            parts = parts + (longest if longest[:, 0].sum() > even[:, 0].sum() else even)
        if batch.prompt_sequences:
            parts = parts + self.prompt_s(batch.prompt_tokens / min(dp, batch.prompt_sequences),
                                          batch.prompt_pairs / batch.prompt_tokens)  # fmt: skip
        return parts

    def token_s(self, tokens: float, *, is_prompt: bool = False) -> Any:
        """Return the time of all kernels but attention and the head: exact at knots, linear between them."""
        name = "prompt_token" if is_prompt and self.rank.shape.latent is not None else "token"
        return self._line(name, tokens)

    def shared_s(self, tokens: int) -> float:
        """Return the time of the experts' products, which follow the tokens of all attention groups, seconds."""
        return float(self._line("experts", tokens)[:, 0].sum())

    def row_s(self, rows: float) -> Any:
        """Return the time of the output head and of sampling."""
        return self._line("row", rows) if rows else np.zeros((len(FAMILIES), _ENDS))

    def adapter_s(self, tokens: float, sequences: float) -> Any:
        """Return the time of the products of adapters of all layers over the tokens of one attention group."""
        return self._line("adapter", tokens, step_adapter_count(self.rank.layout, sequences))

    def decode_s(self, sequences: float, mean_keys: float) -> Any:
        """Return the time of decode attention of all layers over the sequences of one attention group."""
        low, high = _sequence_knots(sequences)
        few, many = _key_knots(mean_keys)
        corners = [("decode", float(count), float(keys)) for count in (low, high) for keys in (few, many)]
        parts = self._known(corners)
        share = 0.0 if many == few else (mean_keys - few) / (many - few)
        rows = [parts[0] + share * (parts[1] - parts[0]), parts[2] + share * (parts[3] - parts[2])]
        return rows[0] if high == low else rows[0] + (sequences - low) / (high - low) * (rows[1] - rows[0])

    def prompt_s(self, tokens: float, mean_keys: float) -> Any:
        """Return the time of prefill attention of all layers over the chunks of a step.

        Args:
            mean_keys: keys that a new token sees, in the mean.
        """
        keys = 2 ** (round(PROMPT_KEYS_PER_OCTAVE * math.log2(mean_keys)) / PROMPT_KEYS_PER_OCTAVE)
        return self._known([("prompt", float(_token_knots(tokens)[1]), keys)])[0] * (mean_keys / keys)

    def _line(self, name: str, place: float, beside: float = 0.0) -> Any:
        low, high = _token_knots(place)
        first, last = self._known([(name, float(low), beside), (name, float(high), beside)])
        return first if high == low else first + (place - low) / (high - low) * (last - first)

    def _known(self, knots: Sequence[tuple[str, float, float]]) -> list[Any]:
        """Return the times at knots by family, seconds [families, 3]; new ones are predicted together, or foreseen."""
        if self._foreseen is not None:
            self._foreseen |= dict.fromkeys(knots)
            return [_UNKNOWN] * len(knots)
        new = [knot for knot in dict.fromkeys(knots) if knot not in self._sums]
        if new:
            lists = [list(self._calls(*knot)) for knot in new]
            cases = list(dict.fromkeys(call.case for calls in lists for call in calls))
            times = dict(zip(cases, self._kernel_times(cases), strict=True))
            for knot, calls in zip(new, lists, strict=True):
                total = self._sums[knot] = np.zeros((len(FAMILIES), _ENDS))
                for call in calls:
                    op = call.case.op
                    family = 0 if op in _PRODUCTS else 1 if "attention" in op else 3 if op == "collective" else 2
                    total[family] += call.times * times[call.case]
                total[0] *= self._product_ratio
        return [self._sums[knot] for knot in knots]

    def _calls(self, name: str, first: float, second: float) -> Iterator[StepCall]:
        if name == "row":
            return row_calls(self.rank, int(first))
        if name == "adapter":
            return adapter_calls(self.rank, int(first), min(int(first), int(second)))
        if name == "decode":
            return decode_calls(self.rank, int(first), max(int(first), round(first * second)))
        if name == "prompt":
            return prompt_calls(self.rank, int(first), second)
        calls = token_calls(self.rank, int(first), is_prompt=name == "prompt_token")
        return (call for call in calls if name != "experts" or call.name in SHARED)


def _interval(parts: Any) -> tuple[float, float, float]:
    """Return time and interval of a step: errors of one family go together, those of families are independent."""
    middle = float(parts[:, 0].sum())
    low = float(np.sqrt(((parts[:, 0] - parts[:, 1]) ** 2).sum()))
    high = float(np.sqrt(((parts[:, 2] - parts[:, 0]) ** 2).sum()))
    return middle, max(0.0, middle - low), middle + high


def _token_knots(tokens: float) -> tuple[int, int]:
    """Return the knots around a number of tokens: tiles of products end at multiples, so that times step behind them.

    >>> _token_knots(40), _token_knots(70), _token_knots(1000), _token_knots(9000.5)
    ((40, 40), (65, 72), (961, 1024), (8961, 9216))
    """
    if tokens <= FINE:
        return max(1, math.floor(tokens)), max(1, math.ceil(tokens))
    width = 8 if tokens <= MIDDLE else FINE if tokens <= 8 * MIDDLE else 4 * FINE
    last = math.ceil(tokens / width)
    return (last - 1) * width + 1, last * width


def _sequence_knots(sequences: float) -> tuple[int, int]:
    """Return the knots around a number of decoding sequences: powers of two up to 16, then multiples of 16 and 64.

    >>> _sequence_knots(3), _sequence_knots(16), _sequence_knots(100), _sequence_knots(300)
    ((2, 4), (16, 16), (96, 112), (256, 320))
    """
    if sequences <= 16:
        exponent = math.log2(max(1.0, sequences))
        return 2 ** math.floor(exponent), 2 ** math.ceil(exponent)
    width = 16 if sequences <= 128 else 64
    return width * math.floor(sequences / width), width * math.ceil(sequences / width)


def _key_knots(keys: float) -> tuple[float, float]:
    """Return the knots around a mean number of cached tokens.

    >>> _key_knots(16.0), _key_knots(1024.0), _key_knots(1100.0)
    ((1, 64), (1024.0, 1024.0), (1024.0, 1218.0))
    """
    if keys <= FINE:
        return 1, FINE
    octave = KEYS_PER_OCTAVE * math.log2(keys)
    low, high = math.floor(octave + 1e-9), math.ceil(octave - 1e-9)
    return float(round(2 ** (low / KEYS_PER_OCTAVE))), float(round(2 ** (high / KEYS_PER_OCTAVE)))
