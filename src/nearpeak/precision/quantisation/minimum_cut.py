"""Cheapest choice between two states for every node of a graph, where neighbours in different states cost extra."""

from collections import deque
from collections.abc import Sequence

_LEAST = 1e-15
"""Capacity below which an edge counts as full."""


def cheapest_states(costs: Sequence[tuple[float, float]], edges: Sequence[tuple[int, int, float]]) -> tuple[bool, ...]:
    """Return whether each node takes its second state, so that the sum of costs is least.

    The choice is a minimum cut: the first state is the side of the source, and a node's costs are its edges to source
    and sink. Of equally cheap choices the one with most first states is given.

    Args:
        costs: cost of the first and of the second state of each node; infinite where it has none.
        edges: two nodes, and what it costs where their states differ.

    Source: Greig, Porteous and Seheult 1989, doi:10.1111/j.2517-6161.1989.tb01764.x.

    >>> cheapest_states([(3, 1), (1, 2), (3, 1)], [(0, 1, 0.4), (1, 2, 0.4)])
    (True, False, True)
    >>> cheapest_states([(3, 1), (1, 2), (3, 1)], [(0, 1, 0.6), (1, 2, 0.6)])
    (True, True, True)
    """
    count = len(costs)
    source, sink = count, count + 1
    left: list[dict[int, float]] = [{} for _ in range(count + 2)]

    def joined(a: int, b: int, there: float, back: float) -> None:
        left[a][b] = left[a].get(b, 0.0) + there
        left[b][a] = left[b].get(a, 0.0) + back

    for node, (first, second) in enumerate(costs):
        joined(source, node, second, 0.0)
        joined(node, sink, first, 0.0)
    for a, b, cost in edges:
        joined(a, b, cost, cost)
    while path := _path(left, source, sink):
        flow = min(left[a][b] for a, b in path)
        for a, b in path:
            left[a][b] -= flow
            left[b][a] += flow
    reached = _reached(left, sink)  # those from which the sink can be reached pay for their first state no more
    return tuple(node in reached for node in range(count))


def _path(left: Sequence[dict[int, float]], source: int, sink: int) -> list[tuple[int, int]]:
    """Return the edges of a shortest way with room from source to sink; none where there is no way."""
    before = {source: source}
    waiting = deque([source])
    while waiting and sink not in before:
        node = waiting.popleft()
        for other, room in left[node].items():
            if room > _LEAST and other not in before:
                before[other] = node
                waiting.append(other)
    path, node = list[tuple[int, int]](), sink
    while node in before and node != source:
        path.append((before[node], node))
        node = before[node]
    return path


def _reached(left: Sequence[dict[int, float]], sink: int) -> set[int]:
    """Return the nodes from which there is room to the sink."""
    reached, waiting = {sink}, deque([sink])
    while waiting:
        node = waiting.popleft()
        for other in left[node]:
            if other not in reached and left[other].get(node, 0.0) > _LEAST:
                reached.add(other)
                waiting.append(other)
    return reached
