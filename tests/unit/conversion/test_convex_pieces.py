"""Partitions of graphs, against every split of small ones."""

from itertools import product
from random import Random

import pytest

from nearpeak.conversion.convex_pieces import convex_pieces


def random_graph(node_count, seed):
    draw = Random(seed)
    return [
        sorted({draw.randrange(node) for _ in range(draw.randrange(3))} if node else ()) for node in range(node_count)
    ]


def reachable(links):
    """For each node, all nodes before it on which it depends."""
    before = []
    for sources in links:
        before.append(set(sources).union(*(before[source] for source in sources)))
    return before


def is_convex(piece, before):
    inside = set(piece)
    after = {other for other in range(len(before)) if inside & before[other]}
    return not any(other in before[node] for node in inside for other in after - inside)


def is_acyclic(pieces, links):
    homes = {node: number for number, piece in enumerate(pieces) for node in piece}
    needs = {n: {homes[s] for node in piece for s in links[node]} - {n} for n, piece in enumerate(pieces)}
    done = set()
    while len(done) < len(pieces):
        ready = [n for n in needs if n not in done and needs[n] <= done]
        if not ready:
            return False
        done.update(ready)
    return True


def faults(links, sides):
    pieces, before = convex_pieces(links, sides), reachable(links)
    assert sorted(node for piece in pieces for node in piece) == list(range(len(links)))
    for piece in pieces:
        if len({sides[node] for node in piece}) != 1:
            yield "two sides"
        if not is_convex(piece, before):
            yield "not convex"
        joined = {piece[0]}
        while more := {n for n in piece if n not in joined and
                       any(m in links[n] or n in links[m] for m in joined)}:  # fmt: skip
            joined |= more
        if len(joined) != len(piece):
            yield "not connected"
    if not is_acyclic(pieces, links):
        yield "circle"
    for first, one in enumerate(pieces):
        for second, two in enumerate(pieces[first + 1 :], first + 1):
            touching = any(a in links[b] or b in links[a] for a in one for b in two)
            if touching and sides[one[0]] == sides[two[0]]:
                merged = [piece for n, piece in enumerate(pieces) if n not in (first, second)] + [[*one, *two]]
                if is_acyclic(merged, links):
                    yield "not maximal"


@pytest.mark.parametrize("seed", range(6))
def test_all_splits_of_small_graphs_give_convex_connected_acyclic_maximal_pieces(seed):
    links = random_graph(7, seed)
    for sides in product((True, False), repeat=7):
        assert not list(faults(links, sides))


def test_some_splits_of_graphs_of_twelve_nodes():
    draw = Random(1)
    for seed in range(40):
        links = random_graph(12, 100 + seed)
        assert not list(faults(links, [draw.random() < 0.6 for _ in range(12)]))


def test_two_branches_around_a_left_node_are_one_piece_only_where_no_path_leaves_it():
    # 0 → 1(left) → 2 → 4, and 3 → 4: 3 may join 2 and 4; 0 may not.
    assert convex_pieces([[], [0], [1], [], [2, 3]], [True, False, True, True, True]) == [[0], [1], [2, 3, 4]]
    # 0 → 1(left) → 2 and 0 → 2: one piece of 0 and 2 would be left and entered again.
    assert convex_pieces([[], [0], [0, 1]], [True, False, True]) == [[0], [1], [2]]
