"""Resident thread blocks: multiprocessors in equal state form one group, blocks in equal state one flow."""

from collections.abc import Iterable, Iterator

from nearpeak.simulation.engine.work_nodes import Flow, Running

Free = tuple[int, ...]
RESOURCES = ("blocks", "threads", "registers", "shared")
"""What a multiprocessor holds a number of, in the order of `Limits.vector`."""


class Group:
    """Multiprocessors whose residents are the same."""

    __slots__ = ("flows", "free", "mask")

    def __init__(self, mask: int, free: Free, flows: list[Flow] | None = None) -> None:
        """Keep the bit mask of multiprocessors, and what one of them still holds: blocks, threads, registers, bytes."""
        self.mask, self.free, self.flows = mask, free, flows or []

    def fits(self, needs: Free) -> int:
        """Return the number of further blocks of a kernel that one of them can hold."""
        return min(free // need for free, need in zip(self.free, needs, strict=True) if need)

    def add(self, flow: Flow, needs: Free) -> None:
        """Let blocks take their room."""
        self.flows.append(flow)
        self.free = tuple(f - n * flow.count for f, n in zip(self.free, needs, strict=True))

    def drop(self, flow: Flow, needs: Free) -> None:
        """Give back the room of blocks that ended."""
        self.flows.remove(flow)
        self.free = tuple(f + n * flow.count for f, n in zip(self.free, needs, strict=True))


class Residents:
    """All multiprocessors that one context sees."""

    __slots__ = ("gpcs", "groups", "packs")

    def __init__(self, groups: list[Group], gpcs: tuple[int, ...], packs: bool = False) -> None:
        """Keep the groups, the masks of clusters of multiprocessors, and whether one is filled before the next."""
        self.groups, self.gpcs, self.packs = groups, gpcs, packs

    def flows(self) -> Iterator[tuple[Group, Flow]]:
        """Go through all blocks."""
        for group in self.groups:
            for flow in group.flows:
                yield group, flow

    def place(self, running: Running, now_ps: int) -> int:
        """Start as many blocks of a kernel as fit, and return how many."""
        before = running.unplaced
        if running.cluster > 1:
            self._place_clusters(running, now_ps)
        else:
            parts = self._parts(running, running.mask)
            self._spread(running, parts, running.unplaced, now_ps)
        return before - running.unplaced

    def lack(self, running: Running) -> str:
        """Return the resource that most multiprocessors of a kernel lack for one more block."""
        counts = dict.fromkeys(RESOURCES, 0)
        for group in self.groups:
            inside = (group.mask & running.mask).bit_count()
            short = next((i for i, need in enumerate(running.needs) if need > group.free[i]), None)
            if inside and short is not None:
                counts[RESOURCES[short]] += inside
        most = max(counts, key=lambda name: counts[name])
        return most if counts[most] else "cluster"

    def _parts(self, running: Running, mask: int) -> list[tuple[Group, int, int]]:
        """Return groups with the multiprocessors of a mask and the blocks that each of these holds."""
        parts = []
        for group in self.groups:
            inside = group.mask & mask
            if inside and (fits := group.fits(running.needs)):
                parts.append((group, inside, fits))
        return parts

    def _spread(self, running: Running, parts: list[tuple[Group, int, int]], count: int, now_ps: int) -> None:
        """Place `count` blocks: where most fit first, in turn; or one multiprocessor after another."""
        masks = [(index, mask, fits) for index, (_, mask, fits) in enumerate(parts)]
        total = sum(fits * mask.bit_count() for _, mask, fits in masks)
        if count >= total:
            chosen = masks
        elif self.packs:
            chosen = _packed(masks, count)
        else:
            chosen = _levelled(masks, count)
        for index, mask, each in chosen:
            self._take(running, parts[index][0], mask, each, now_ps)

    def _place_clusters(self, running: Running, now_ps: int) -> None:
        """Place clusters of blocks, each inside one cluster of multiprocessors, in turn over these."""
        rooms = [self._parts(running, running.mask & gpc) for gpc in self.gpcs]
        size = running.cluster
        fits = [sum(each * mask.bit_count() for _, mask, each in parts) // size for parts in rooms]
        placed = [0] * len(rooms)
        left = running.unplaced // size
        while left and any(placed[i] < fits[i] for i in range(len(rooms))):
            for i in range(len(rooms)):
                if left and placed[i] < fits[i]:
                    placed[i], left = placed[i] + 1, left - 1
        for gpc, count in zip(self.gpcs, placed, strict=True):
            if count:
                self._spread(running, self._parts(running, running.mask & gpc), count * size, now_ps)

    def _take(self, running: Running, group: Group, mask: int, each: int, now_ps: int) -> None:
        """Put blocks on some multiprocessors of a group, which split off when they are not all."""
        if mask != group.mask:
            group.mask &= ~mask
            group = Group(mask, group.free, [flow.copy() for flow in group.flows])
            self.groups.append(group)
        group.add(running.started(each, now_ps), running.needs)
        running.unplaced -= each * mask.bit_count()

    def merge(self) -> None:
        """Make one group of those in equal state."""
        if len(self.groups) < 2:
            return
        known: dict[tuple[object, ...], Group] = {}
        for group in self.groups:
            same = known.setdefault((group.free, *sorted(flow.key() for flow in group.flows)), group)
            if same is not group:
                same.mask |= group.mask
        self.groups = list(known.values())


def lowest(mask: int, count: int) -> int:
    """Return the `count` lowest set bits of a mask.

    >>> bin(lowest(0b110110, 2))
    '0b110'
    """
    low, high = 0, mask.bit_length()
    while low < high:
        middle = (low + high) // 2
        if (mask & ((1 << middle) - 1)).bit_count() < count:
            low = middle + 1
        else:
            high = middle
    return mask & ((1 << low) - 1)


Part = tuple[int, int, int]


def _levelled(parts: Iterable[Part], count: int) -> list[Part]:
    """Return the placement of blocks on the emptiest multiprocessors first: (group, mask, blocks on each)."""
    room = [(index, mask, fits, 0) for index, mask, fits in parts]
    level = max(fits for _, _, fits, _ in room)
    while count and level:
        reached = [(part[1]) for part in room if part[2] - part[3] == level]
        union = 0
        for mask in reached:
            union |= mask
        chosen = lowest(union, count) if count < union.bit_count() else union
        count -= chosen.bit_count()
        room = [piece for part in room for piece in _raised(part, chosen if part[2] - part[3] == level else 0)]
        level -= 1
    return [(index, mask, each) for index, mask, _, each in room if each]


def _raised(part: tuple[int, int, int, int], chosen: int) -> list[tuple[int, int, int, int]]:
    """Return a part with one block more on the chosen multiprocessors, in two where not all were."""
    index, mask, fits, each = part
    inside = mask & chosen
    pieces = [(index, inside, fits, each + 1), (index, mask & ~inside, fits, each)]
    return [piece for piece in pieces if piece[1]]


def _packed(parts: Iterable[Part], count: int) -> list[Part]:
    """Return the placement of blocks that fills one multiprocessor after another."""
    chosen: list[Part] = []
    for index, mask, fits in parts:
        whole = min(count // fits, mask.bit_count())
        full = lowest(mask, whole) if whole else 0
        chosen += [(index, full, fits)] if full else []
        count -= whole * fits
        rest = mask & ~full
        if count and rest and count < fits:
            chosen.append((index, lowest(rest, 1), count))
            return chosen
        if not count:
            return chosen
    return chosen
