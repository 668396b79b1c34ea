"""No schedule of a small graph moves less than a proved term says: exhaustive search over all of them."""

import random
from itertools import chain, combinations, count, islice, product
from math import inf

import pytest
from tests.brute_force.check import WORD_BYTES, beaten, tiny
from tests.brute_force.graphs import Graph, random_graph
from tests.brute_force.machine import Program, TooLargeError, Way, least_moves

import nearpeak
from nearpeak.bounds.terms.storage_capacity import moved_words
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.structure import Contraction
from nearpeak.ops import work_of


def searched(seeds):
    """Give (seed, machine, terms that a schedule beats, whether one word more would be beaten) of random graphs."""
    for seed in seeds:
        program, workload = random_graph(seed)
        draw = random.Random(~seed)
        storage, credit = draw.choice([3, 4]), draw.choice([0, 1, 2])
        bound = nearpeak.bound(workload, tiny(storage, credit), Policy())
        try:
            found = list(beaten(program, bound, storage, credit, inner=storage - credit >= 3))
            claimed = bound.terms_s["dram"] / WORD_BYTES
            tight = least_moves(program, storage, credit, below=claimed + 1) == claimed
        except TooLargeError:
            continue
        yield seed, (storage, credit), found, tight


def test_no_schedule_of_200_random_graphs_beats_a_proved_term():
    results = list(islice(searched(count()), 200))
    assert {seed: found for seed, _, found, _ in results if found} == {}
    assert sum(tight for *_, tight in results) > 100, "bounds this loose would hide a wrong rule"


@pytest.mark.slow
def test_no_schedule_of_250_further_random_graphs_beats_a_proved_term():
    """Of as many as a test run has time for; `python -m benchmarks.run brute_force` searches 2,500 others."""
    results = list(islice(searched(count(10_000)), 250))
    assert {seed: found for seed, _, found, _ in results if found} == {}
    assert len(results) == 250


def gemm(m, n, k):
    graph = Graph()
    return graph, graph.gemm(graph.tensor(m * k), graph.tensor(k * n, "weight"), m, n, k)


def one_call(name, size, **more):
    graph = Graph()
    return graph, getattr(graph, name)(graph.tensor(size), **more)


def conv(size, taps, stride):
    graph = Graph()
    return graph, graph.conv(graph.tensor(size), graph.tensor(taps, "weight"), stride)


MACHINES = ((3, 0, Policy()), (3, 1, Policy()), (4, 1, Policy()), (4, 2, Policy(output_credit=False)))
"""Words on chip, those of them in the last cache, and what a program may do."""
SINGLE = {
    **{f"gemm {m}x{n}x{k}": (gemm, (m, n, k)) for m, n, k in product((1, 2), repeat=3) if m * n * k < 8},
    "gemm 1x1x3": (gemm, (1, 1, 3)),
    "softmax of 2": (one_call, ("softmax", 2)),
    "softmax of 3": (one_call, ("softmax", 3)),
    "root mean square of 2": (one_call, ("normalised", 2)),
    "root mean square of 3": (one_call, ("normalised", 3)),
    "root mean square of 4": (one_call, ("normalised", 4)),
    "sum of 4": (one_call, ("sum", 4)),
    "recurrence of 1 step": (one_call, ("recurrent", 1)),
    "recurrence of 3 steps": (one_call, ("recurrent", 3)),
    "recurrence of 4 steps": (one_call, ("recurrent", 4)),
    "conv of 3 by 2": (conv, (3, 2, 1)),
    "conv of 4 by 2, stride 2": (conv, (4, 2, 2)),
}


@pytest.mark.parametrize("name", SINGLE)
def test_no_schedule_of_a_single_operator_beats_a_proved_term(name):
    make, arguments = SINGLE[name]
    for storage, credit, policy in MACHINES:
        graph, made = make(*arguments)
        program, workload = graph.finished([made])
        bound = nearpeak.bound(workload.calls[0].case, tiny(storage, credit), policy)
        allowed = credit if policy.output_credit else 0
        found = list(beaten(program, bound, storage, allowed, inner=credit == 0, limit=3_000_000))
        assert found == [], (storage, credit, policy)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 1, 2), (1, 3, 2)])
def test_no_schedule_of_a_larger_product_beats_a_proved_term(shape):
    graph, made = gemm(*shape)
    program, workload = graph.finished([made])
    bound = nearpeak.bound(workload.calls[0].case, tiny(3, 0))
    assert list(beaten(program, bound, 3, 0, limit=3_000_000)) == []


def test_the_barrier_term_says_how_much_of_a_group_is_read_again():
    graph, made = one_call("normalised", 3)
    program, workload = graph.finished([made])
    terms = nearpeak.bound(workload.calls[0].case, tiny(2, 0)).terms_s
    assert (terms["dram"], terms["barrier"]) == (24.0, 28.0)
    assert least_moves(program, 2, 0) * WORD_BYTES >= 28.0
    assert least_moves(program, 5, 0) * WORD_BYTES == 24.0, "with room for the group nothing is read again"


def test_a_step_that_divides_a_tensor_by_its_own_sum_reads_part_of_it_again():
    graph = Graph()
    x = graph.tensor(4)
    program, workload = graph.finished([graph.map2(x, graph.map1(graph.sum(x)))])
    bound = nearpeak.bound(workload, tiny(3, 0))
    assert (bound.limiter, bound.terms_s["barrier"], bound.terms_s["dram"]) == ("barrier", 36.0, 32.0)
    assert list(beaten(program, bound, 3, 0, limit=10**6)) == []


def test_a_step_that_divides_another_tensor_by_the_sum_reads_nothing_again():
    graph = Graph()
    x, other = graph.tensor(4), graph.tensor(4)
    _, workload = graph.finished([graph.map2(graph.map1(x), graph.sum(x)), graph.map2(other, graph.sum(graph.map1(x)))])
    assert "barrier" not in nearpeak.bound(workload, tiny(3, 0)).terms_s


def test_the_search_finds_the_known_least_traffic_of_a_chain_and_of_spilling():
    chain_of_two = Program(inputs=1, outputs=4, ways=(Way(target=1, operands=1), Way(target=2, operands=2)))
    assert (least_moves(chain_of_two, 1, 0), least_moves(chain_of_two, 1, 1)) == (2, 1)
    # Two inputs summed and multiplied: with two words the first result must go out before the second is formed.
    both = Program(inputs=3, outputs=12, ways=(Way(target=2, operands=3), Way(target=3, operands=3)))
    assert (least_moves(both, 3, 0), least_moves(both, 2, 0)) == (4, 5)


def subsets(items):
    return chain.from_iterable(combinations(items, size) for size in range(1, len(items) + 1))


def places(triples):
    return [len(set(side)) for side in zip(*triples, strict=True)]


def test_no_set_of_matrix_products_needs_fewer_places_than_the_lemma_says():
    triples = [((i, k), (k, j), (i, j)) for i, j, k in product(range(2), range(3), range(2))]
    for chosen in subsets(triples):
        a, b, c = places(chosen)
        assert len(chosen) ** 2 <= a * b * c


@pytest.mark.parametrize(("taps", "stride", "dilation"), [(2, 1, 1), (3, 1, 1), (3, 2, 1), (3, 3, 1), (3, 2, 2)])
def test_no_set_of_convolution_products_needs_fewer_places_than_the_lemma_says(taps, stride, dilation):
    outputs = range(4 if taps == 3 else 5)
    size = stride * outputs[-1] + dilation * (taps - 1) + 1
    sizes = {"batch": 1, "in_channels": 1, "out_channels": 1, "w": size, "kw": taps, "sw": stride, "dw": dilation}
    reuse = work_of(nearpeak.case("conv", dtype="fp32", **sizes)).contraction.reuse_count
    triples = [(o * stride + k * dilation, k, o) for o, k in product(outputs, range(taps))]
    largest = max(len(chosen) ** 2 / (a * b * c) for chosen in subsets(triples) for a, b, c in [places(chosen)])
    assert largest <= reuse, "more products than the lemma permits"
    assert largest > reuse - 1, "a smaller reuse would do"


@pytest.mark.parametrize("storage", [3, 6, 12, 24, 56, 120])
def test_the_best_blocked_product_stays_above_the_capacity_term_and_near_it(storage):
    extent = 720
    tiles = [(p, q) for p in range(1, storage) for q in range(1, storage) if p * q + p + 1 <= storage]
    # A tile of p x q results stays on chip; for each k, p elements of A are loaded and those of B one by one.
    blocked = min((-(-extent // p) * -(-extent // q) * extent * (p + q) for p, q in tiles), default=inf) + extent**2
    least = moved_words(Contraction(product_count=extent**3, word_bits_count=32), float(storage))
    assert least <= blocked
    assert blocked < 2.2 * least, "the term would be far from what programs reach"
