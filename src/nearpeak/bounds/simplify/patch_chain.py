"""Parts of a storage in the order in which they were written, searched without a look at each of them."""

from typing import NamedTuple

from nearpeak.core.work.tensor import Layout


class Extent(NamedTuple):
    """Where elements of one or several tensors of a storage lie."""

    start: int
    """First element."""
    stop: int
    """End of the last element."""
    pitch: int
    """Elements from one row to the next; 0 where several tensors do not agree on it."""
    left: int
    """First element within a row."""
    right: int
    """End of the last element within a row; beyond the pitch where rows do not contain the tensor."""

    def apart(self, other: "Extent") -> bool:
        """Say whether the two surely share no element: one behind the other, or side by side in all rows."""
        if self.stop <= other.start or other.stop <= self.start:
            return True
        if self.pitch == 0 or self.pitch != other.pitch or max(self.right, other.right) > self.pitch:
            return False
        return self.right <= other.left or other.right <= self.left

    def joined(self, other: "Extent") -> "Extent":
        """Return an extent that contains both."""
        return Extent(
            min(self.start, other.start), max(self.stop, other.stop), self.pitch if self.pitch == other.pitch else 0,
            min(self.left, other.left), max(self.right, other.right),
        )  # fmt: skip


def extent_of(layout: Layout) -> Extent:
    """Return where a tensor lies."""
    dims = list(zip(layout.shape, layout.strides, strict=True))
    pitch = max((*layout.strides, 0))
    left = layout.offset % pitch if pitch else 0
    return Extent(
        layout.offset, layout.offset + sum((n - 1) * s for n, s in dims) + 1, pitch, left,
        left + sum((n - 1) * s for n, s in dims if s != pitch) + 1,
    )  # fmt: skip


class _Stretch(NamedTuple):
    """Neighbouring patches of one format."""

    extent: Extent
    """Where they lie."""
    behind: int
    """The content before the oldest of them."""
    lies: Layout
    """How that content lies."""


class PatchChain:
    """For each patch the stretches of 1, 2, 4, … patches that end with it."""

    def __init__(self) -> None:
        self._stretches: dict[int, list[_Stretch]] = {}

    def add(self, patch: int, behind: int, lies: Layout, part: Layout) -> None:
        """Note that `patch` is the content `behind`, which lies as `lies` says, with `part` written into it."""
        stretches = [_Stretch(extent_of(part), behind, lies)]
        if lies.dtype != part.dtype:
            stretches = []
        while stretches:
            last, power = stretches[-1], len(stretches) - 1
            older = self._stretches.get(last.behind, [])
            if len(older) <= power or older[power].lies.dtype != part.dtype:
                break
            stretches.append(_Stretch(last.extent.joined(older[power].extent), older[power].behind, older[power].lies))
        self._stretches[patch] = stretches

    def behind(self, content: int, lies: Layout, wanted: Layout) -> tuple[int, Layout]:
        """Return the content, and how it lies, before the newest patches that share nothing with `wanted`."""
        extent = extent_of(wanted)
        while True:
            stretches = self._stretches.get(content, ())
            passed = next((s for s in reversed(stretches) if s.extent.apart(extent)), None)
            if passed is None or passed.lies.dtype != wanted.dtype:
                return content, lies
            content, lies = passed.behind, passed.lies
