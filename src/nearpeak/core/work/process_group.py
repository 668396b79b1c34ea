"""A process group: the ranks that a captured collective runs among, and the mesh dimension that they lie along."""

from itertools import pairwise
from typing import NamedTuple


class ProcessGroup(NamedTuple):
    """The members of a group, and the name of its dimension where the source gives one.

    >>> group = process_group((1, 5, 9), 5, "dp")
    >>> group.first_rank, group.rank_stride, group.ranks
    (1, 4, (1, 5, 9))
    >>> group_of_text(text_of_group(group)) == group
    True
    """

    rank_count: int
    """Members."""
    rank: int
    """Place of the captured rank among them."""
    dim: str = ""
    """Name of the mesh dimension, `tp`; empty where the source names none."""
    first_rank: int = 0
    """Lowest number of a member in the job."""
    rank_stride: int = 0
    """Distance of neighbouring members; 0 where the source does not say, or they differ."""
    others: tuple[int, ...] = ()
    """Members in order, where they are not equally far apart."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Numbers of the members in the job; empty where the source does not say."""
        if self.others or (self.rank_count > 1 and not self.rank_stride):
            return self.others
        return tuple(self.first_rank + place * self.rank_stride for place in range(self.rank_count))


def process_group(ranks: tuple[int, ...], place: int, dim: str = "") -> ProcessGroup:
    """Return the group of some ranks.

    Args:
        place: place of the captured rank among them.
    """
    steps = {after - before for before, after in pairwise(ranks)}
    if len(ranks) == 1 or (len(steps) == 1 and min(steps) > 0):
        return ProcessGroup(
            rank_count=len(ranks), rank=place, dim=dim, first_rank=ranks[0], rank_stride=min(steps, default=1)
        )
    return ProcessGroup(rank_count=len(ranks), rank=place, dim=dim, first_rank=min(ranks), others=ranks)


def text_of_group(group: ProcessGroup) -> str:
    """Return a group as captures write it into the arguments of a call."""
    members = "-".join(map(str, group.others)) or f"{group.first_rank}:{group.rank_stride}"
    named = f",dim={group.dim}" if group.dim else ""
    return f"ranks={group.rank_count},rank={group.rank},members={members}{named}"


def group_of_text(text: str) -> ProcessGroup | None:
    """Return the group that such a text describes; none for other texts.

    >>> group_of_text("ranks=4,rank=1")
    ProcessGroup(rank_count=4, rank=1, dim='', first_rank=0, rank_stride=0, others=())
    >>> group_of_text("0") is None
    True
    """
    if not text.startswith("ranks="):
        return None
    words, _, dim = text.partition(",dim=")
    fields = dict(word.partition("=")[::2] for word in words.split(","))
    count, place, members = int(fields["ranks"]), int(fields["rank"]), fields.get("members", "")
    if ":" in members:
        first, stride = map(int, members.split(":"))
        return ProcessGroup(rank_count=count, rank=place, dim=dim, first_rank=first, rank_stride=stride)
    others = tuple(map(int, members.split("-"))) if members else ()
    return ProcessGroup(rank_count=count, rank=place, dim=dim, first_rank=min(others, default=0), others=others)
