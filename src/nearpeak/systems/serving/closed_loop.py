"""Service of clients that each wait for their answer before they ask again: TTFT and TPOT at constant concurrency."""

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from nearpeak.core.systems.step_batch import StepBatch, TimeSource
from nearpeak.errors import SpecError

GOLDEN = (5**0.5 - 1) / 2
"""Multiples of it spread evenly over an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedLoop:
    """Equal requests at constant concurrency, from a cold start."""

    concurrency: int
    """Clients, each with one request under way."""
    input_tokens: int
    """Prompt tokens of a request."""
    output_tokens: int
    """Generated tokens of a request."""
    requests_per_client: int = 10
    """Requests that each client makes; the first of all clients arrive at once."""
    token_budget: int = 8192
    """Most tokens of a step."""
    sequence_limit: int = 256
    """Most sequences that run."""
    kv_tokens: float = float("inf")
    """Tokens that the cache holds."""
    reserves_output: bool = True
    """Whether a request starts only when the cache can hold all of its tokens; otherwise half of its output."""
    output_spread: float = 0.0
    """Half width of the even spread of generated tokens about their mean, as a share of it."""
    reply_delay_steps: int = 0
    """Steps by which tokens leave the engine late, as where the host works one step behind the device."""
    reply_tokens: int = 1
    """Tokens of one message to the client, which sees its first token with the others of the first message."""
    turnaround_s: float = 0.0
    """Time from a client's last token to its next request in the engine's queue; half of it is the request's way."""

    def __post_init__(self) -> None:
        """Refuse loads that no engine serves."""
        for name in ("concurrency", "input_tokens", "output_tokens", "requests_per_client", "token_budget"):
            if getattr(self, name) < 1:
                raise SpecError(f"closed loop: {name}={getattr(self, name)} must be at least 1")
        if self.kv_tokens < self.input_tokens + self.output_tokens:
            raise SpecError(
                f"closed loop: the cache holds {self.kv_tokens:.0f} tokens; one request needs "
                f"{self.input_tokens + self.output_tokens}"
            )


class ServiceTimes(NamedTuple):
    """Latencies of served requests, means over all of them."""

    ttft_s: float
    """Arrival to first token."""
    tpot_s: float
    """First to last token over the tokens after the first."""
    duration_s: float
    """First arrival to last token."""
    mean_batch: float
    """Decoding sequences of a step, weighted by time."""
    queued_share: float
    """Share of the time to first token spent before any of its prompt ran."""


class _Request:
    """A request under way."""

    __slots__ = ("arrival_s", "done", "end_s", "first_s", "prefilled", "start_s", "total")

    def __init__(self, arrival_s: float, total: int) -> None:
        self.arrival_s, self.start_s, self.first_s, self.end_s = arrival_s, -1.0, -1.0, -1.0
        self.prefilled, self.done, self.total = 0, 0, total


class _Steps:
    """Step times by prompt tokens, their prefix, decoding sequences; linear in the cached tokens."""

    def __init__(self, step_s: TimeSource) -> None:
        self._step_s = step_s
        self._lines: dict[tuple[tuple[tuple[int, int], ...], int], tuple[float, float, float]] = {}

    def __call__(self, prefills: tuple[tuple[int, int], ...], count: int, kv_tokens: float) -> float:
        key = (prefills, count)
        line = self._lines.get(key)
        if line is None or not 0.5 * line[0] <= kv_tokens <= 2 * line[0]:
            line = self._lines[key] = self._line(prefills, count, kv_tokens)
        return line[1] + line[2] * (kv_tokens - line[0])

    def _line(self, prefills: tuple[tuple[int, int], ...], count: int, kv_tokens: float) -> tuple[float, float, float]:
        prompts = StepBatch(
            prompt_tokens=sum(new for new, _ in prefills), prompt_sequences=len(prefills),
            prompt_pairs=sum(new * cached + new * (new + 1) // 2 for new, cached in prefills),
        )  # fmt: skip
        if not count:
            return 0.0, self._step_s(prompts), 0.0
        least, most = max(count, int(kv_tokens * 0.9)), max(count + 1, int(kv_tokens * 1.1))
        low, high = (
            self._step_s(prompts._replace(
                decode_tokens=count, decode_sequences=count, decode_kv=kv, longest_kv=-(-kv // count)
            ))
            for kv in (least, most)
        )  # fmt: skip
        slope = (high - low) / (most - least)
        return kv_tokens, low + slope * (kv_tokens - least), slope


def closed_loop_times(loop: ClosedLoop, step_s: TimeSource) -> ServiceTimes:
    """Return the latencies of a closed loop, step by step; decode steps without a change are passed in one jump.

    >>> loop = ClosedLoop(concurrency=1, input_tokens=10, output_tokens=5, requests_per_client=3)
    >>> closed_loop_times(loop, lambda batch: 1.0 if batch.decode_sequences else 2.0)
    ServiceTimes(ttft_s=2.0, tpot_s=1.0, duration_s=18.0, mean_batch=0.6666666666666666, queued_share=0.0)
    """
    return _Engine(loop, _Steps(step_s)).run()


class _Engine:
    """State of the engine between two steps."""

    def __init__(self, loop: ClosedLoop, steps: _Steps) -> None:
        self.loop, self.steps = loop, steps
        self.now_s, self.busy_s = 0.0, 0.0
        self.made, self.requests_left = 0, loop.concurrency * loop.requests_per_client
        self.waiting: deque[_Request] = deque()
        self._ask(loop.concurrency, 0.0)
        self.prefilling: list[_Request] = []
        self.decoding: list[_Request] = []
        self.finished: list[_Request] = []
        self.replies: deque[tuple[int, float, int]] = deque()
        self.firsts: deque[tuple[int, _Request]] = deque()
        self.step_number = 0
        self.reserved = loop.input_tokens + (loop.output_tokens if loop.reserves_output else loop.output_tokens / 2)

    def run(self) -> ServiceTimes:
        """Serve all requests."""
        total = self.loop.concurrency * self.loop.requests_per_client
        while len(self.finished) < total:
            self._receive()
            self._admit()
            chunks = self._chunks()
            if chunks or not self.decoding:
                self._step(chunks)
            else:
                self._jump()
        ttft = fmean(request.first_s - request.arrival_s for request in self.finished)
        tpot = fmean((request.end_s - request.first_s) / max(1, request.total - 1) for request in self.finished)
        ttft += (self.loop.reply_tokens - 1) * tpot
        queued = fmean(request.start_s - request.arrival_s for request in self.finished)
        return ServiceTimes(ttft, tpot, self.now_s, self.busy_s / self.now_s, queued / ttft)

    def _ask(self, count: int, arrival_s: float) -> None:
        """Let clients make their next requests."""
        for _ in range(min(count, self.requests_left)):
            share = 2 * (self.made * GOLDEN % 1) - 1
            total = round(self.loop.output_tokens * (1 + self.loop.output_spread * share))
            self.waiting.append(_Request(arrival_s, max(1, total)))
            self.made += 1
            self.requests_left -= 1

    def _receive(self) -> None:
        """Take the next requests of clients whose replies have left the engine, and wait for one if nothing runs."""
        while self.replies:
            step, ready_s, count = self.replies[0]
            is_idle = not (self.decoding or self.prefilling or self.waiting)
            if not is_idle and (step > self.step_number or ready_s > self.now_s):
                return
            self.replies.popleft()
            self.now_s = max(self.now_s, ready_s)
            self._ask(count, ready_s - self.loop.turnaround_s / 2)

    def _admit(self) -> None:
        """Start waiting requests while a sequence and room in the cache are free."""
        loop = self.loop
        running = len(self.prefilling) + len(self.decoding)
        while self.waiting and running < loop.sequence_limit and (running + 1) * self.reserved <= loop.kv_tokens:
            request = self.waiting.popleft()
            self.prefilling.append(request)
            running += 1

    def _chunks(self) -> tuple[tuple[_Request, int], ...]:
        """Return the prompt tokens of the next step by request, in order of arrival."""
        left, chunks = self.loop.token_budget - len(self.decoding), []
        for request in self.prefilling:
            tokens = min(left, self.loop.input_tokens - request.prefilled)
            if tokens <= 0:
                break
            chunks.append((request, tokens))
            left -= tokens
        return tuple(chunks)

    def _step(self, chunks: tuple[tuple[_Request, int], ...]) -> None:
        loop = self.loop
        prefills = tuple((tokens, request.prefilled) for request, tokens in chunks)
        for request, _ in chunks:
            if request.start_s < 0:
                request.start_s = self.now_s
        self._advance(prefills, 1)
        for request, tokens in chunks:
            request.prefilled += tokens
            if request.prefilled == loop.input_tokens:
                self.prefilling.remove(request)
                request.done = 1
                self.firsts.append((self.step_number + loop.reply_delay_steps, request))
                self.decoding.append(request)
        self._finish()

    def _release(self) -> None:
        """Send first tokens to clients."""
        while self.firsts and self.firsts[0][0] <= self.step_number:
            self.firsts.popleft()[1].first_s = self.now_s

    def _jump(self) -> None:
        """Pass the decode steps up to the next completion or late reply."""
        steps = min(request.total - request.done for request in self.decoding)
        if self.firsts:
            steps = min(steps, max(1, self.firsts[0][0] - self.step_number))
        if self.replies:
            step, ready_s, _ = self.replies[0]
            each_s = self._step_s((), 1)
            late = max(step - self.step_number, math.ceil((ready_s - self.now_s) / each_s))
            steps = min(steps, max(1, late))
        self._advance((), max(1, steps))
        self._finish()

    def _advance(self, prefills: tuple[tuple[int, int], ...], steps: int) -> None:
        spent_s = steps * self._step_s(prefills, steps)
        self.now_s += spent_s
        self.busy_s += spent_s * len(self.decoding)
        self.step_number += steps
        for request in self.decoding:
            request.done += steps

    def _step_s(self, prefills: tuple[tuple[int, int], ...], steps: int) -> float:
        """Return the mean time of the next steps."""
        count = len(self.decoding)
        cached = sum(request.done for request in self.decoding) + count * (self.loop.input_tokens + (steps - 1) / 2)
        return self.steps(prefills, count, cached)

    def _finish(self) -> None:
        """Take finished requests out of the batch."""
        self._release()
        ended = [request for request in self.decoding if request.done >= request.total]
        if ended:
            self.decoding = [request for request in self.decoding if request.done < request.total]
            self.finished += ended
            for request in ended:
                request.end_s = self.now_s
                request.first_s = request.first_s if request.first_s >= 0 else self.now_s
            loop = self.loop
            self.replies.append((self.step_number + loop.reply_delay_steps, self.now_s + loop.turnaround_s, len(ended)))
