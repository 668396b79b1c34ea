"""Chains of matrix products in which a factor recurs, as powers do: products of a part that recurs are formed once."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from nearpeak.bounds.simplify.product_orders import may_share
from nearpeak.bounds.simplify.product_sums import Term, contracts, merged, opened
from nearpeak.bounds.simplify.shared_operands import opened_alone
from nearpeak.bounds.simplify.value_graph import Graph

Factor = tuple[int, tuple[int, ...]]
"""A matrix of a chain: its node, and where in it the matrix starts."""
_MOST_FACTORS = 48
"""Factors of a chain that are looked at; of longer ones, those nearest to the result."""


def chains(
    graph: Graph, live: Sequence[int], roots: Sequence[int], contained: Collection[int]
) -> list[tuple[list[int], int]]:  # fmt: skip
    """Return the products of each chain, and multiply-adds that no order of forming them goes below.

    Each way of forming a chain ends with a product of two parts and forms both of them; where two factors stand in
    both, the smaller part may come with the larger. Of several chains with factors in common, those that take more
    form no product of factors that all stand in one that takes less.

    Args:
        contained: products that others hold, which take nothing.
    """
    users = users_of(graph, live, roots)
    words: list[_Chain] = []
    inner: set[int] = set(contained)
    for number in reversed(live):
        if contracts(graph[number]) and len(graph[number].inputs) > 1 and number not in inner:
            term, members = flattened(graph, number, users)
            inner |= members
            word = _word(term)
            if word is not None:
                words.append(_Chain(tuple(sorted(members)), *word))
    return _counted(sorted(words, key=lambda chain: (len(chain.factors), _alone(chain))))


def users_of(graph: Graph, live: Sequence[int], roots: Sequence[int]) -> dict[int, list[int]]:
    """Return what uses each live node: other nodes, and -1 for a result of the step."""
    users: dict[int, list[int]] = {number: [-1] for number in roots}
    for number in live:
        for source in set(graph[number].inputs):
            users.setdefault(source, []).append(number)
    return users


class _Chain(NamedTuple):
    """A product of matrices in order."""

    members: tuple[int, ...]
    """Nodes that form it."""
    factors: tuple[Factor, ...]
    """The matrices."""
    sizes: tuple[int, ...]
    """Extents before, between and behind them."""
    copies: int
    """Chains of this kind, one by member of a batch."""


def _alone(chain: _Chain) -> int:
    """Return what a chain takes at least where no other stands beside it; nothing of one product, which none spares."""
    return chain.copies * _least(chain.factors, chain.sizes) if len(chain.factors) > 2 else 0


def _counted(words: Sequence[_Chain]) -> list[tuple[list[int], int]]:
    """Return the chains of which a product may recur, in their own or an earlier one, with what they take at least."""
    least = []
    holders: dict[Factor, list[int]] = {}
    for place, chain in enumerate(words):
        own, among = Counter(chain.factors), Counter[int]()
        for factor in own:
            among.update(holders.get(factor, ()))
            holders.setdefault(factor, []).append(place)
        earlier = tuple(words[at].factors for at, shared in among.items() if shared > 1 or own.total() > len(own))
        recurs = len({node for node, _ in chain.factors}) < len(chain.factors)
        if (recurs and len(chain.members) > 1) or earlier:
            least.append((list(chain.members), chain.copies * _least(chain.factors, chain.sizes, earlier)))
    return least


def flattened(graph: Graph, number: int, users: Mapping[int, Sequence[int]]) -> tuple[Term, set[int]]:
    """Return a product with those among its operands opened that nothing else uses, and all of these products.

    Args:
        users: what uses each node.
    """
    term, members, place = opened(graph, graph[number]), {number}, 0
    while place < len(term.operands) < _MOST_FACTORS:
        more: set[int] = set()
        inner = opened_alone(graph, term.operands[place][0], users, more)
        longer = None if inner is None else merged(graph, term, place, inner)
        if longer is None:
            place += 1
        else:
            term, place, members = longer, 0, members | more
    return term, members


def _word(term: Term) -> tuple[tuple[Factor, ...], tuple[int, ...], int] | None:
    """Return the factors of a chain in order, the extents before, between and behind them, and how many such chains.

    None of terms that are no chain.
    """
    out = {label for axis in term.axes for label in axis if term.sizes[label] > 1}
    moves = [{label for _, steps in index for label, _ in steps if term.sizes[label] > 1} for _, index in term.operands]
    every = set.intersection(*moves) & out  # of a batch in which all factors take part, each member is a chain
    users = Counter(label for moved in moves for label in moved - out)
    if any(count > 2 for count in users.values()):
        return None
    moves = [{label for label in moved if label in out or users[label] == 2} for moved in moves]  # others: summed first
    links = {
        label: [place for place, moved in enumerate(moves) if label in moved] for label in set().union(*moves) - out
    }
    beside = [{other for label in moved - out for other in links[label]} - {place} for place, moved in enumerate(moves)]
    ends = [place for place, others in enumerate(beside) if len(others) == 1]
    if len(ends) != 2 or any(len(others) > 2 for others in beside):
        return None
    order = [min(ends)]
    while len(order) < len(moves):
        ahead = beside[order[-1]] - set(order)
        if len(ahead) != 1:
            return None
        order += ahead
    if any((moves[place] & out) - every for place in order[1:-1]):
        return None

    def extent(labels: set[int]) -> int:
        return prod(term.sizes[label] for label in labels)

    between = [extent((moves[left] & moves[right]) - out) for left, right in pairwise(order)]
    outer = [extent((moves[place] & out) - every) for place in (order[0], order[-1])]
    factors = tuple((node, tuple(start for start, _ in index)) for node, index in map(term.operands.__getitem__, order))
    return factors, (outer[0], *between, outer[1]), extent(every)


@lru_cache(maxsize=256)
def _least(factors: tuple[Factor, ...], sizes: tuple[int, ...], earlier: tuple[tuple[Factor, ...], ...] = ()) -> int:
    """Return multiply-adds that forming a chain of factors takes at least beside those of earlier chains.

    >>> a, x = (1, (0, 0)), (2, (0, 0))
    >>> _least((a, a, a, a), (8, 8, 8, 8, 8))  # a square, and its square
    1024
    >>> _least((x, a, a), (8, 8, 8, 8), ((a, a, a, a),))  # the square is there
    512
    """
    nodes, others = [node for node, _ in factors], list(map(Counter, earlier))
    count = len(factors)
    same = [Counter(word) for word in earlier if count > 2 and word in (factors, factors[::-1])]
    least = {(place, place + 1): 0 for place in range(count)}
    for length in range(2, count + 1):
        for first in range(count - length + 1):
            last = first + length
            part = Counter(factors[first:last])
            there = any(part <= other for other in (others if length < count else same))
            ways = []
            for middle in range(first + 1, last):
                left, right = least[first, middle], least[middle, last]
                shared = may_share(nodes[first:middle], nodes[middle:last])
                step = 0 if there else sizes[first] * sizes[middle] * sizes[last]
                ways.append((max(left, right) if shared else left + right) + step)
            least[first, last] = min(ways)
    return least[0, count]
