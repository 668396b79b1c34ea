"""Random requests, engines and policies, small enough for plain Python, from a seed."""

import dataclasses

import numpy as np

from nearpeak.core.systems.serving_engine import Engine
from nearpeak.systems.serving.loads.arrival_process import closed_load, open_load
from nearpeak.systems.serving.policies import POLICIES
from nearpeak.systems.serving.serving_run import Autoscaling
from nearpeak.systems.serving.step_grid import linear_grid

GRID = linear_grid(fixed_s=6e-3, token_s=2e-5, sequence_s=1e-5, kv_s=2e-8, pair_s=1e-9)
COLUMNS = (
    "queued_s", "scheduled_s", "first_s", "last_s", "preempted_count", "reused_count", "rank", "step_count", "busy_s",
    "rented_s", "evicted_count", "unused_block_count",
)  # fmt: skip
STEPS = (
    "start_s", "duration_s", "prompt_count", "decode_count", "kv_count", "block_count", "running_count",
    "waiting_count", "replica",
)  # fmt: skip


def random_run(seed, *, policy=None):
    """Requests, engine and options of one run; blocks are scarce, prompts share prefixes, arrivals come in bursts."""
    draw = np.random.default_rng(seed)
    count, is_closed = int(draw.integers(5, 40)), draw.random() < 0.3
    lengths = {
        "input_count": draw.integers(1, 300, 7),
        "output_count": draw.integers(1, 60, 7) + int(draw.random() < 0.3),
    }
    if is_closed:
        requests = closed_load(int(draw.integers(1, count)), count, seed=seed, **lengths)
    else:
        rate, cv = float(draw.choice([1, 10, 100])), float(draw.choice([0, 1, 3]))
        requests = open_load(rate, count, cv=cv, seed=seed, **lengths)
    if draw.random() < 0.5:
        requests = with_prefixes(requests, draw)
    if draw.random() < 0.3:
        requests = dataclasses.replace(requests, classes=draw.integers(0, 3, count))
    if draw.random() < 0.3:
        requests = dataclasses.replace(requests, adapters=draw.integers(-1, 5, count))
    policy = policy or str(draw.choice(list(POLICIES)))
    options = {
        "router": str(draw.choice(["round_robin", "least_kv", "prefix_aware"])),
        "replica_count": int(draw.choice([1, 1, 3])), "seed": seed, "is_logged": True,
        "has_cache": bool(draw.random() < 0.15 and requests.output_count.min() > 1),
    }  # fmt: skip
    if draw.random() < 0.2 and not is_closed:
        options["autoscaling"] = Autoscaling(most_count=4, request_count=3, start_s=0.5, hold_s=1)
    return requests, random_engine(requests, policy, draw), options


def random_engine(requests, policy, draw):
    block = int(draw.choice([1, 4, 16, 32]))
    need = -(-int((requests.input_count + requests.output_count).max() + 8) // block)
    return Engine(
        policy=policy, kv_block_count=int(need * draw.choice([1, 1.5, 3, 10])), block_token_count=block,
        step_token_count=int(draw.choice([400, 64])) if POLICIES[policy].is_chunked else 500,
        sequence_count=int(draw.choice([1, 4, 32])), rank_count=int(draw.choice([1, 1, 2])),
        draft_token_count=int(draw.choice([0, 0, 0, 3])), acceptance_ratio=float(draw.choice([0, 0.7, 1])),
        draft_s=1e-3, adapter_count=int(draw.choice([0, 1, 2])), adapter_load_s=0.05,
        request_s=float(draw.choice([0, 0.02])), turnaround_s=float(draw.choice([0, 0.013])),
        reply_delay_count=int(draw.choice([0, 0, 1])),
        rank_wait_step_count=int(draw.choice([0, 1, 6])), rank_gather_step_count=int(draw.choice([0, 0, 2])),
    )  # fmt: skip


def with_prefixes(requests, draw):
    """Prompts in hash blocks of 32 tokens that begin like one of three and end by themselves."""
    counts, numbers = -(-requests.input_count // 32), []
    for count in counts.tolist():
        shared, stem = int(draw.integers(0, count + 1)), int(draw.integers(0, 3)) * 1000
        numbers += [stem + place for place in range(shared)]
        numbers += [int(number) for number in draw.integers(10**6, 10**9, count - shared)]
    starts = np.concatenate([[0], np.cumsum(counts)])
    return dataclasses.replace(requests, hash_token_count=32, hash_ids=np.array(numbers), hash_starts=starts)


def differences(first, second):
    """Names of the columns in which two outcomes differ by a bit; steps in order of replica and start."""
    names = [
        name for name in COLUMNS if not np.array_equal(getattr(first, name), getattr(second, name), equal_nan=True)
    ]
    orders = [np.lexsort((outcome.steps.start_s, outcome.steps.replica)) for outcome in (first, second)]
    for name in STEPS:
        columns = [getattr(outcome.steps, name)[order] for outcome, order in zip((first, second), orders, strict=True)]
        names += [] if np.array_equal(*columns) else [name]
    return names
