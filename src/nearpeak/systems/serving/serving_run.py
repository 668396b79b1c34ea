"""Simulation of requests on replicas of a serving engine."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.core.systems.serving_engine import Engine
from nearpeak.errors import SpecError, UnknownNameError
from nearpeak.systems.serving import engine_state as layout
from nearpeak.systems.serving.policies import POLICIES
from nearpeak.systems.serving.replica_loop import LEAST_KV, PREFIX_AWARE, ROUND_ROBIN, serve_arrivals
from nearpeak.systems.serving.request_columns import Ints, Requests
from nearpeak.systems.serving.scheduling_policy import RESERVATIONS, VICTIMS, SchedulingPolicy
from nearpeak.systems.serving.serving_outcome import Outcome, StepLog
from nearpeak.systems.serving.step_grid import StepGrid
from nearpeak.systems.serving.step_plan import UNLIMITED

ROUTERS = {"round_robin": ROUND_ROBIN, "least_kv": LEAST_KV, "prefix_aware": PREFIX_AWARE}
"""Router policies: the next replica in turn; the one with the fewest KV blocks in use and asked for; the one with the
fewest of these and of the blocks that the prompt would have to compute there (as NVIDIA Dynamo's KV router at weight 1,
docs/architecture/kv_cache_routing.md)."""
LOG_ROWS = 100_000
"""Most steps that are recorded before the record is emptied."""
DRAWS = 65_537
"""Random numbers of speculation, taken in a circle."""
SGLANG_RATIO = (0.7, 0.14, 600)
"""Share of outputs that SGLang's admission starts with, factor of its least value, and decode steps until then.
Source: sglang/global_config.py (default_init_new_token_ratio, default_min_new_token_ratio_factor, decay_steps)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """Replicas that follow the load, looked at whenever a request arrives."""

    least_count: int = 1
    """Replicas that are always there."""
    most_count: int
    """Most replicas."""
    request_count: float
    """Requests running and waiting that one replica is meant to have."""
    start_s: float = 0.0
    """Time from the decision to start a replica until it takes requests."""
    hold_s: float = 60.0
    """Time that a replica takes requests at least before it may be drained."""

    def __post_init__(self) -> None:
        """Refuse limits that no cluster can keep."""
        if not 1 <= self.least_count <= self.most_count or self.request_count <= 0:
            raise SpecError(
                f"autoscaling: {self.least_count} to {self.most_count} replicas at {self.request_count:g} requests "
                "each; there must be at least 1, no more at least than at most, and more than 0 requests"
            )


def serve(
    requests: Requests, engine: Engine, table: StepGrid, *, replica_count: int = 1, router: str = "round_robin",
    autoscaling: Autoscaling | None = None, seed: int = 0, is_logged: bool = False, skips: bool = True,
    has_cache: bool = False,
) -> Outcome:  # fmt: skip
    """Return what replicas of an engine make of requests.

    Args:
        seed: of the draws of speculation.
        is_logged: whether every step is recorded.
        skips: whether equal decode steps are counted in one go; the outcome is the same to the last bit.
        has_cache: whether requests come with the cache of their prompt and their first token, as they do to the
            decoding side of disaggregated serving.

    Raises:
        SpecError: a request is longer than the context, no cache holds it, or the policy can never start it.
    """
    policy = POLICIES[engine.policy]
    if router not in ROUTERS:
        raise UnknownNameError(f"router {router!r}: not known; known: {', '.join(ROUTERS)}")
    units = autoscaling.most_count if autoscaling else replica_count
    if units < 1:
        raise SpecError(f"serving: {units} replicas; at least 1")
    rules, rates = _rules(requests, engine, policy), _rates(engine, autoscaling)
    _check(requests, engine, policy, rules)
    rules[layout.ROUTER], rules[layout.LOGS], rules[layout.SKIPS] = ROUTERS[router], is_logged, skips
    if autoscaling:
        rules[layout.SCALES], rules[layout.LEAST] = 1, autoscaling.least_count
    if has_cache and requests.output_count.min() < 2:
        raise SpecError("serving: a request that comes with its first token must have more to generate")
    state = _state(requests, engine, units, rules, rates, seed, is_logged)
    if has_cache:
        rules[layout.DELAYS] = 0  # their first tokens have left already
        state.requests[layout.IS_READY] = state.requests[layout.GENERATED] = 1
    if autoscaling:
        state.units[layout.STATUS][autoscaling.least_count :] = layout.ABSENT
    if requests.concurrency_count:
        state.times[layout.ARRIVED][requests.concurrency_count :] = np.inf
    return _outcome(requests, engine, state, _run(state, table))


def _run(state: layout.State, table: StepGrid) -> StepLog | None:
    """Run the loop to its end; the log is emptied whenever it is full."""
    plain = serve_arrivals.is_plain_for(len(state.times[layout.ARRIVED]))
    used, arrays = (_listed(state), _listed(table.arrays)) if plain else (state, table.arrays)
    call = serve_arrivals.plain if plain else serve_arrivals.machine_code
    parts, status = [], layout.FULL
    while status == layout.FULL:
        used.marks[layout.ROWS] = 0
        status = call(used.times[layout.ARRIVED], used, arrays)
        parts.append(np.array(used.log[: used.marks[layout.ROWS]], np.float64).reshape(-1, layout.LOG_COLUMNS))
    if plain:
        for name, array in state._asdict().items():
            if array.size and name != "log":
                array[...] = getattr(used, name)
    if status == layout.STUCK:
        raise SpecError("serving: the first waiting request can never start under this policy and these limits")
    if not state.rules[layout.LOGS]:
        return None
    columns = np.concatenate(parts).T
    return StepLog(
        start_s=columns[0], duration_s=columns[1], prompt_count=columns[2], decode_count=columns[3],
        kv_count=columns[4], block_count=columns[5], running_count=columns[6], waiting_count=columns[7],
        replica=columns[8].astype(np.int64),
    )  # fmt: skip


def _listed(value: Any) -> Any:
    """Return a tuple of arrays with lists instead, which plain Python reads faster."""
    if isinstance(value, tuple):
        return type(value)(*map(_listed, value))
    return value.tolist()


def _rules(requests: Requests, engine: Engine, policy: SchedulingPolicy) -> np.ndarray:
    """Return limits and switches by place."""
    sequences = engine.sequence_count or policy.sequence_count
    if not sequences:
        raise SpecError(f"engine: policy {policy.name!r} has no default of sequence_count; state it")
    rules = np.zeros(layout.RULES, np.int64)
    hashed = requests.hash_token_count if engine.has_prefix_cache and requests.hash_ids is not None else 0
    if hashed % engine.block_token_count:
        raise SpecError(
            f"engine: hash blocks of {hashed} tokens are no multiple of block_token_count={engine.block_token_count}"
        )
    for place, value in (
        (layout.STEP_TOKENS, engine.step_token_count or policy.step_token_count or UNLIMITED),
        (layout.SEQUENCE_LIMIT, sequences),
        (layout.BLOCK, engine.block_token_count),
        (layout.BLOCKS, engine.kv_block_count),
        (layout.HASH_TOKENS, hashed),
        (layout.HASH_BLOCKS, hashed // engine.block_token_count),
        (layout.PROMPTS_FIRST, policy.puts_prompts_first),
        (layout.MIXES, policy.mixes),
        (layout.CUTS, policy.is_chunked if engine.is_chunked is None else engine.is_chunked),
        (layout.RESERVES, RESERVATIONS.index(policy.reservation)),
        (layout.VICTIM, VICTIMS.index(policy.victim)),
        (layout.WHOLE_BATCH, policy.is_whole_batch),
        (layout.RANKS, engine.rank_count),
        (layout.RANK_WAIT, engine.rank_wait_step_count),
        (layout.RANK_GATHER, engine.rank_gather_step_count),
        (layout.DRAFTED, engine.draft_token_count),
        (layout.ADAPTERS, engine.adapter_count),
        (layout.DELAYS, engine.reply_delay_count),
        (layout.OPEN, requests.concurrency_count or len(requests)),
    ):
        rules[place] = value
    return rules


def _rates(engine: Engine, autoscaling: Autoscaling | None) -> np.ndarray:
    """Return what is no whole number, by place."""
    start, factor, steps = SGLANG_RATIO
    rates = np.zeros(layout.RATES)
    rates[layout.ACCEPTED], rates[layout.DRAFT_S] = engine.acceptance_ratio, engine.draft_s
    rates[layout.LOAD_S] = engine.adapter_load_s
    rates[layout.REQUEST_S], rates[layout.TURNAROUND_S] = engine.request_s, engine.turnaround_s
    rates[layout.RATIO_START], rates[layout.RATIO_LEAST] = start, start * factor
    rates[layout.RATIO_DECAY] = start * (1 - factor) / steps
    if autoscaling:
        rates[layout.START_S], rates[layout.HOLD_S] = autoscaling.start_s, autoscaling.hold_s
        rates[layout.PER_REPLICA] = autoscaling.request_count
    return rates


def _check(requests: Requests, engine: Engine, policy: SchedulingPolicy, rules: np.ndarray) -> None:
    """Refuse requests that can never be served."""
    total = requests.input_count + requests.output_count
    longest = int(total.argmax())
    words = f"request {longest} has {requests.input_count[longest]} + {requests.output_count[longest]} tokens"
    if engine.context_token_count and total[longest] > engine.context_token_count:
        raise SpecError(f"requests: {words}; the context holds {engine.context_token_count}")
    need = -(-int(total[longest] + engine.draft_token_count) // engine.block_token_count)
    if need > engine.kv_block_count:
        raise SpecError(f"engine: {words}, which take {need} KV blocks; the cache has {engine.kv_block_count}")
    held = total if policy.reservation == "step" else requests.input_count
    if not rules[layout.CUTS] and held.max() > rules[layout.STEP_TOKENS]:
        raise SpecError(
            f"engine: request {int(held.argmax())} needs {held.max()} tokens in one step; step_token_count is "
            f"{rules[layout.STEP_TOKENS]} and prompts are not cut: raise it, or set is_chunked"
        )


def _state(
    requests: Requests, engine: Engine, units: int, rules: np.ndarray, rates: np.ndarray, seed: int,
    is_logged: bool,
) -> layout.State:  # fmt: skip
    """Return replicas that have served nothing."""
    count, ranks, sequences = len(requests), units * engine.rank_count, int(rules[layout.SEQUENCE_LIMIT])
    columns = np.zeros((layout.REQUEST_ROWS, count), np.int64)
    columns[layout.INPUT], columns[layout.OUTPUT] = requests.input_count, requests.output_count
    columns[layout.ADAPTER] = layout.NONE if requests.adapters is None else requests.adapters
    columns[layout.CLASS] = 0 if requests.classes is None else requests.classes
    hashes = np.zeros(0, np.int64)
    if rules[layout.HASH_TOKENS] and requests.hash_ids is not None and requests.hash_starts is not None:
        hashes = np.unique(_hash_keys(requests, requests.hash_ids), return_inverse=True)[1].astype(np.int64)
        columns[layout.HASHES] = np.minimum(requests.hash_counts(), requests.input_count // requests.hash_token_count)
        columns[layout.HASH_START] = requests.hash_starts[:-1]
    blocks, classes = int(hashes.max(initial=-1)) + 1, int(columns[layout.CLASS].max()) + 1
    adapters = int(columns[layout.ADAPTER].max()) + 1
    lanes = np.zeros((layout.RANK_ROWS, ranks), np.int64)
    lanes[layout.FREE] = engine.kv_block_count
    lanes[[layout.OLDEST, layout.NEWEST, layout.NEXT_COMER, layout.LAST_COMER]] = layout.NONE
    replicas = np.zeros((layout.UNIT_ROWS, units))
    replicas[layout.STATUS] = layout.ACTIVE
    times = np.full((layout.TIME_ROWS, count), np.nan)
    times[layout.ARRIVED] = requests.arrival_s
    marks = np.zeros(layout.GROWTH + engine.block_token_count, np.int64)
    marks[layout.POOL] = rules[layout.OPEN]

    def absent(parts: int, width: int) -> np.ndarray:
        return np.full((parts, ranks, width), layout.NONE, np.int64)

    users = absent(2, adapters)
    users[layout.IN_USE] = 0
    rows = min(LOG_ROWS, 2 * count + int(requests.output_count.sum())) if is_logged else 0
    draws = np.random.default_rng(seed).random(DRAWS if rules[layout.DRAFTED] else 1)
    return layout.State(
        rules=rules, rates=rates, draws=draws, hashes=hashes, requests=columns, times=times, ranks=lanes,
        rank_values=np.zeros((2, ranks)), units=replicas, slots=np.zeros((2, ranks, sequences), np.int64),
        queues=absent(2, classes), cache=absent(3, blocks), adapters=users, log=np.zeros((rows, layout.LOG_COLUMNS)),
        marks=marks,
    )  # fmt: skip


def _hash_keys(requests: Requests, hash_ids: Ints) -> Ints:
    """Return hash blocks that differ where adapters do, as the cache of a prompt is that of its adapter.

    Source: vllm-project/vllm, v1/core/kv_cache_utils.py (generate_block_hash_extra_keys: the adapter is a part of the
    hash).
    """
    if requests.adapters is None:
        return hash_ids
    numbers = np.unique(hash_ids, return_inverse=True)[1].astype(np.int64)
    adapters = np.repeat(requests.adapters + 1, requests.hash_counts())
    keys: Ints = numbers * (int(adapters.max(initial=0)) + 1) + adapters
    return keys


def _outcome(requests: Requests, engine: Engine, state: layout.State, steps: StepLog | None) -> Outcome:
    """Return what the run left in its arrays, requests by their arrival."""
    units, status, times = state.units, state.units[layout.STATUS], state.times
    end_s = np.nanmax(times[layout.LAST])
    until = np.where(status == layout.DRAINED, np.maximum(units[layout.DRAINED_AT], units[layout.CLOCK]), end_s)
    rented = units[layout.RENTED] + np.where(status == layout.ABSENT, 0.0, until - units[layout.STARTED_AT])
    columns = state.requests
    if requests.concurrency_count:
        order = np.argsort(times[layout.ARRIVED], kind="stable")
        times, columns = times[:, order], columns[:, order]
        requests = replace(requests.in_order(order), arrival_s=times[layout.ARRIVED], concurrency_count=0)
    return Outcome(
        engine=engine, requests=requests,
        queued_s=times[layout.QUEUED], scheduled_s=times[layout.SCHEDULED],
        first_s=times[layout.FIRST], last_s=times[layout.LAST],
        preempted_count=columns[layout.PREEMPTED], reused_count=columns[layout.REUSED],
        rank=columns[layout.RANK], step_count=units[layout.STEPS].astype(np.int64), busy_s=units[layout.BUSY],
        rented_s=rented, evicted_count=state.ranks[layout.EVICTED],
        unused_block_count=state.ranks[layout.FREE] + state.ranks[layout.EVICTABLE], steps=steps,
    )  # fmt: skip
