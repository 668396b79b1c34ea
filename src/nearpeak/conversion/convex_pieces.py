"""Partition of a graph whose nodes have one of two sides into maximal convex pieces of one side each."""

from collections.abc import Sequence

Links = Sequence[Sequence[int]]
"""For each node, earlier nodes whose results it reads."""
Positions = tuple[int, ...]
"""Positions of nodes or calls, in their order."""


def convex_pieces(links: Links, sides: Sequence[bool]) -> list[list[int]]:
    """Return the pieces, each in the order of its nodes; no two depend on each other in a circle.

    Nodes of a piece are on one side and connected. Pieces are maximal: no two connected ones of one side could be one
    without a circle.

    >>> convex_pieces([[], [0], [1], [2]], [True, False, True, True])
    [[0], [1], [2, 3]]
    """
    return _merged(links, sides, _by_depth(links, sides))


def _by_depth(links: Links, sides: Sequence[bool]) -> list[int]:
    """Return a piece by node: connected nodes with the same number of borders between them and the inputs."""
    parents = list(range(len(links)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    depths: list[int] = []
    for node, sources in enumerate(links):
        depth = max((depths[source] + (sides[source] != sides[node]) for source in sources), default=0)
        depths.append(depth)
        for source in sources:
            if sides[source] == sides[node] and depths[source] == depth:
                parents[root(source)] = root(node)
    return [root(node) for node in range(len(links))]


def _merged(links: Links, sides: Sequence[bool], roots: list[int]) -> list[list[int]]:
    """Return the pieces after connected ones of one side are made one wherever no other path joins them."""
    members: dict[int, list[int]] = {}
    for node, piece in enumerate(roots):
        members.setdefault(piece, []).append(node)
    after: dict[int, set[int]] = {piece: set() for piece in members}
    for node, sources in enumerate(links):
        for source in sources:
            if roots[source] != roots[node]:
                after[roots[source]].add(roots[node])
    changed = True
    while changed:
        changed = False
        for first in list(after):
            for second in sorted(after.get(first, ())):
                same = sides[members[first][0]] == sides[members[second][0]]
                if same and not _is_reached(after, after[first] - {second}, second):
                    _join(members, after, first, second)
                    changed = True
                    break
    return sorted((sorted(nodes) for nodes in members.values()), key=lambda nodes: nodes[0])


def _is_reached(after: dict[int, set[int]], starts: set[int], goal: int) -> bool:
    """Return whether a path leads from a start to the goal."""
    seen, waiting = set(starts), list(starts)
    while waiting:
        piece = waiting.pop()
        if piece == goal:
            return True
        new = after[piece] - seen
        seen |= new
        waiting += new
    return False


def _join(members: dict[int, list[int]], after: dict[int, set[int]], first: int, second: int) -> None:
    """Make the second piece part of the first."""
    members[first] += members.pop(second)
    after[first] = (after[first] | after.pop(second)) - {first, second}
    for following in after.values():
        if second in following:
            following.discard(second)
            following.add(first)
