"""Faults planted into the engine and its metrics are detected by runs whose figures are known by hand."""

import importlib
import importlib.util
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from nearpeak.base.compilation import Kernel

ROOM = "nearpeak.systems.serving"
MUTANTS = {
    "a prefix is computed again": ("step_plan", "computed = reused * rules[HASH_TOKENS]", "computed = 0"),
    "blocks are rounded down": ("block_cache", "(token_count + rules[BLOCK] - 1) //", "token_count //"),
    "time to first token leaves the queue out": (
        "latency_metrics", "outcome.first_s - requests.arrival_s", "outcome.first_s - outcome.scheduled_s",
    ),
    "time per output token is divided by all tokens": (
        "latency_metrics", "(requests.output_count - 1)", "requests.output_count",
    ),
    "price counts seconds for hours": ("serving_cost", "HOUR_S = 3600.0", "HOUR_S = 1.0"),
    "ranks take their mean instead of the slowest": (
        "step_loop", "slowest = max(slowest, time)", "slowest += time / state.rules[RANKS]",
    ),
    "a preempted request does not compute its output again": (
        "step_plan", "left = requests[INPUT][request] + requests[GENERATED][request] - computed",
        "left = requests[INPUT][request] - computed",
    ),
    "a finished request keeps its blocks": ("step_loop", "release(state, rank, request)\n", "pass\n"),
    "the newest block is evicted": ("block_cache", "oldest = ranks[OLDEST][rank]", "oldest = ranks[NEWEST][rank]"),
    "prompts of a rank wait for no other rank": ("rank_balance", "ready == rules[RANKS]", "ready > 0"),
    "equal steps run past an arrival": ("step_loop", "units[CLOCK][unit] < until):", "True):"),
}  # fmt: skip


@contextmanager
def room(module="", old="", new=""):
    """The room's modules, imported afresh with one text in one of them replaced; those of before come back."""
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(ROOM)}

    class Finder:
        def find_spec(self, name, path, target=None):
            if name != f"{ROOM}.{module}":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            source = spec.loader.get_source(name)
            assert source.count(old) >= 1, f"{module} no longer holds {old!r}"
            spec.loader.get_code = lambda _name: compile(source.replace(old, new, 1), spec.origin, "exec")
            return spec

    finder = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield lambda name: importlib.import_module(f"{ROOM}.{name}")
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(ROOM)]:
            del sys.modules[name]
        sys.modules.update(before)


def figures(load):
    """Figures of small runs, of which each is known by hand."""
    from nearpeak.core.systems.serving_engine import Engine

    requests, run, grid = load("request_columns").Requests, load("serving_run").serve, load("step_grid").linear_grid
    metric, cost = load("latency_metrics").request_metric, load("serving_cost").price_per_million_tokens
    two = requests(arrival_s=np.array([0, 0.5]), input_count=np.array([6, 5]), output_count=np.array([3, 2]))
    engine, time = Engine(policy="vllm", kv_block_count=4, block_token_count=4), grid(fixed_s=1.0, token_s=0.1)
    outcome = run(two, engine, time, is_logged=True)
    same = requests(
        arrival_s=np.array([0.0, 10, 20]), input_count=np.full(3, 8), output_count=np.ones(3, np.int64),
        hash_token_count=4, hash_ids=np.array([0, 1, 2, 3, 0, 1]), hash_starts=np.array([0, 2, 4, 6]),
    )  # fmt: skip
    shared = run(same, Engine(policy="vllm", kv_block_count=3, block_token_count=4), time)
    ranks = run(two, Engine(policy="vllm", kv_block_count=4, block_token_count=4, rank_count=2), time)
    scarce = run(two, Engine(policy="vllm", kv_block_count=3, block_token_count=4), time, is_logged=True)
    pair = requests(arrival_s=np.zeros(2), input_count=np.full(2, 4), output_count=np.full(2, 4))
    preempted = run(pair, Engine(policy="vllm", kv_block_count=3, block_token_count=4), time, is_logged=True)
    late = requests(arrival_s=np.array([0, 2.0]), input_count=np.full(2, 4), output_count=np.array([6, 1]))
    joined = run(late, engine, time)
    apart = requests(arrival_s=np.array([0, 0, 2.0]), input_count=np.full(3, 4), output_count=np.array([9, 9, 1]))
    waits = Engine(policy="vllm", kv_block_count=9, block_token_count=4, rank_count=2, rank_wait_step_count=5)
    gathered = run(apart, waits, grid(fixed_s=1.0))
    return [
        *metric(outcome, "ttft"), *metric(outcome, "tpot"), *outcome.steps.block_count, *outcome.unused_block_count,
        *metric(shared, "ttft"), *shared.reused_count, *ranks.last_s, *scarce.last_s, scarce.steps.prompt_count.sum(),
        *joined.last_s, gathered.scheduled_s[2],
        *preempted.first_s, *preempted.last_s, preempted.steps.prompt_count.sum(),
        cost(8, 2.5, 2000, utilisation=0.6),
    ]  # fmt: skip


BY_HAND = [
    *(1.6, 2.7), *(1.4, 1.2), *(2, 4, 4), 4,  # steps of [A 6], [A 1, B 5], [A 1, B 1] tokens
    *(1.8, 1.8, 1.4), *(0, 0, 4),  # the second prompt evicts the end of the first, of which the third finds the start
    *(4.2, 4.2),  # 1.6, then the slower of 1.1 and 1.5, then 1.1
    *(3.8, 6.4), 11,  # B waits for A's blocks: 1.6 + 1.1 + 1.1, then 1.5 + 1.1
    *(7.3, 4.0),  # 1.4, 1.1, then 1.5 with the second prompt, and three times 1.1
    5,  # the second step and every fifth after it starts what there is
    *(1.8, 1.8), *(5.1, 8.8), 13,  # B loses its block, and computes 4 + 1 tokens again when A has finished
    4.6296,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setattr(Kernel, "is_plain_for", lambda _kernel, _count: True)


def test_the_engine_gives_the_figures_by_hand():
    with room() as load:
        assert figures(load) == pytest.approx(BY_HAND, abs=1e-4)


@pytest.mark.parametrize("fault", MUTANTS)
def test_a_planted_fault_changes_a_figure(fault):
    with room(*MUTANTS[fault]) as load:
        try:
            changed = figures(load)
        except Exception:
            return
        assert changed != pytest.approx(BY_HAND, abs=1e-4)
