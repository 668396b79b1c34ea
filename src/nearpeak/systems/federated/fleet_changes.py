"""Changes of a fleet to try: another power mode, faster links, a group left out, or boards added."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from statistics import median

from nearpeak.core.federated.client_fleet import ClientGroup, Fleet, group_of
from nearpeak.core.federated.federation_answer import FleetChange
from nearpeak.errors import SpecError

KINDS = ("mode", "link", "drop", "add COUNT BOARD[:MODE]")
LINK_FACTOR = 2
"""How much faster the links of a changed group are."""
LEAST_GAIN_RATIO = 0.05
"""Shortening of a round from which a change counts as help."""
_ADDED = re.compile(r"add (\d{1,6}) (\S+)")


def fleet_changes(
    fleet: Fleet, kind: str, modes_of: Callable[[str], tuple[str, ...]]
) -> Iterator[tuple[str, Fleet]]:  # fmt: skip
    """Yield each change of a kind in words, with the changed fleet.

    Args:
        modes_of: names of the power modes of a board.

    Raises:
        SpecError: no such kind.

    >>> fleet = Fleet(groups=(group_of("jetson_nano"), group_of("jetson_tx2")))
    >>> [words for words, _ in fleet_changes(fleet, "drop", lambda board: ())]
    ['without jetson_nano', 'without jetson_tx2']
    >>> next(fleet_changes(fleet, "add 2 jetson_nano:5W", lambda board: ("5W",)))[1].client_count
    4
    """
    match = _ADDED.fullmatch(kind.strip())
    if match:
        yield f"{match[1]} {match[2]} more", _with_boards(fleet, int(match[1]), match[2])
        return
    if kind not in KINDS:
        raise SpecError(f"--what-if {kind!r}: is not one of {', '.join(KINDS)}")
    for group in fleet.groups:
        if kind == "mode":
            for mode in modes_of(group.board) if group.sample_s is None else ():
                if mode != group.mode:  # power that was stated is that of the other mode
                    other = fleet.changed(group.name, partial(replace, mode=mode, busy_w=None))
                    yield f"{group.name} in mode {mode}", other
        elif kind == "link":
            yield f"{group.name} with {LINK_FACTOR} × faster links", fleet.changed(group.name, _with_faster_links)
        else:
            rest = tuple(other for other in fleet.groups if other.name != group.name)
            if any(other.sample_count for other in rest):
                yield f"without {group.name}", replace(fleet, groups=rest)


def cheapest_change(changes: tuple[FleetChange, ...], round_mean_s: float) -> str:
    """Return the change that adds least energy among those that shorten a round by 5 % or more; empty for none.

    >>> rows = [FleetChange(words=words, round_mean_s=time_s, round_j=None, added_j=energy_j)
    ...         for words, time_s, energy_j in (("a", 8.0, 3.0), ("b", 9.0, 1.0), ("c", 9.9, -5.0))]
    >>> cheapest_change(tuple(rows), 10.0)
    'b'
    """
    helping = [change for change in changes if change.round_mean_s <= (1 - LEAST_GAIN_RATIO) * round_mean_s]
    known = [change for change in helping if change.added_j is not None]
    return min(known, key=lambda change: change.added_j or 0.0).words if known else ""


def _with_faster_links(group: ClientGroup) -> ClientGroup:
    return replace(
        group, down_bytes_per_s=LINK_FACTOR * group.down_bytes_per_s, up_bytes_per_s=LINK_FACTOR * group.up_bytes_per_s
    )  # fmt: skip


def _with_boards(fleet: Fleet, count: int, target: str) -> Fleet:
    """Return the fleet with boards added, whose samples and links are the medians of the fleet's groups."""
    board, _, mode = target.partition(":")
    if not count:
        raise SpecError(f"--what-if 'add 0 {target}': adds nothing; give a count of at least 1")
    group = replace(
        group_of(board, mode=mode), name=f"{target} (added)", client_count=count,
        sample_count=round(median(group.sample_count for group in fleet.groups)),
        down_bytes_per_s=median(group.down_bytes_per_s for group in fleet.groups),
        up_bytes_per_s=median(group.up_bytes_per_s for group in fleet.groups),
    )  # fmt: skip
    return replace(fleet, groups=(*fleet.groups, group))
