"""Calls of one tile of a captured step whose images are split over ranks: smaller cases, halos and statistics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.ops import case_of
from nearpeak.systems.training.programs.captured_step import CapturedStep, is_again, layouts_of, rank_call
from nearpeak.systems.training.spatial_split import SpatialLayer, Window, halos, statistics_bytes, tiles
from nearpeak.systems.transformer.pass_calls import collective

_WINDOWED = ("conv", "max_pool", "avg_pool")
"""Operators whose windows reach beyond a tile."""
_NORMS = {"batch_norm": "channels", "group_norm": "groups"}
"""Norms over positions, with the axis that their statistics are counted by."""
_IMAGE_KINDS = ("input", "activation", "output")
_HEAVY = ("gemm", "grouped_gemm", "scaled_gemm", "attention", "varlen_attention")
"""Operators over tokens that are worth naming where they run whole on every tile."""
_IMAGE_DIMS = 4
"""Images, channels, rows, columns."""


class TiledStep:
    """A captured step on the fullest of the tiles that images are cut into.

    Images are tensors of four extents that convolutions, pools, norms, sums and pointwise calls handle, others not.
    Convolutions and pools run at the tile's extents with its halo, without padding where there are neighbours. Before
    them a tile receives its halo, and sends the halo's gradients back. Batch norms sum statistics over the tiles; what
    is summed over positions is summed over tiles. All other calls, attention and products of tokens among them, gather
    the images first and run whole on every tile; a convolution behind them takes its tile of what all tiles hold.
    """

    def __init__(self, workload: Workload, step: CapturedStep, parts: tuple[int, int], image_count: int) -> None:
        """Read which tensors of a step are images.

        Raises:
            SpecError: the step has no images, or a tile would hold none or reach beyond its neighbours.
        """
        self._workload, self._step, self._parts, self._images = workload, step, parts, image_count
        passes = (*step.forward, *step.backward)
        windowed, other = _shapes_of(passes, _is_windowed), _shapes_of(passes, lambda call: not _is_shared(call))
        weights = {
            layout.shape for call in workload.calls for place, layout in layouts_of(call)
            if workload.buffers[place].kind in ("weight", "gradient")
        }  # fmt: skip
        foreign = weights | (other - windowed)  # heads of attention and tables have four extents too
        self._shapes: dict[int, tuple[int, ...]] = {}
        for call in passes:
            for place, layout in layouts_of(call):
                if self._looks_like_images(place, layout, foreign):
                    self._shapes.setdefault(place, layout.shape)
        if not windowed & set(self._shapes.values()):
            raise SpecError(
                f"{step.name}: spatial={parts[0]}x{parts[1]}: the step has no images to cut; dp, pp and branches need "
                "none"
            )
        self._is_image = {
            place: shape for place, shape in self._shapes.items() if workload.buffers[place].kind == "input"
        }
        self._gathered: set[int] = set()
        self._whole: set[int] = set()
        self._calls = {
            (is_back, id(call)): tuple(self._tiled(call, is_back=is_back))
            for is_back, calls in ((False, step.forward), (True, step.backward)) for call in calls
        }  # fmt: skip

    def calls(self, call: Call, *, is_backward: bool) -> tuple[RankCall, ...]:
        """Return what a tile runs for a call of the whole step, with its exchanges."""
        return self._calls[is_backward, id(call)]

    def is_whole(self, call: Call) -> bool:
        """Return whether a call is a product of tokens or attention, which every tile runs whole."""
        return id(call) in self._whole

    def share(self, buffer: int) -> float:
        """Return the part of a tensor that the fullest tile holds; those that are gathered, whole."""
        shape = None if buffer in self._gathered else self._is_image.get(buffer)
        return 1.0 if shape is None else self._tile_share(shape)

    def _looks_like_images(self, place: int, layout: Layout, foreign: set[tuple[int, ...]]) -> bool:
        shape, kind = layout.shape, self._workload.buffers[place].kind
        return (
            kind in _IMAGE_KINDS and len(shape) == _IMAGE_DIMS and shape[0] == self._images
            and shape[2] * shape[3] > 1 and shape not in foreign
        )  # fmt: skip

    def _tile_share(self, shape: Sequence[int]) -> float:
        tall, wide = (ceil(extent / count) for extent, count in zip(shape[2:], self._parts, strict=True))
        return tall * wide / (shape[2] * shape[3])

    def _tiled(self, call: Call, *, is_back: bool) -> Iterator[RankCall]:
        whole, case = rank_call(call), call.case
        shapes, is_first = self._tiled_shapes(call), not is_back or is_again(call)
        if case is None or not shapes:
            yield from self._gathers(call, whole.name)
            if case is not None and case.op in _HEAVY:
                self._whole.add(id(call))
            for use in call.writes:
                self._is_image.pop(use.buffer, None)
            yield whole
            return
        is_split = any(use.buffer in self._is_image and use.buffer not in self._gathered for use in call.reads)
        for use in call.writes:
            if use.buffer in self._shapes:
                self._is_image[use.buffer] = self._shapes[use.buffer]
                self._gathered.discard(use.buffer)
        share = max(map(self._tile_share, shapes))
        tile = RankCall(name=whole.name, case=self._tiled_case(case, share), count=whole.count)
        halo = _exchange(whole.name, self._halo_bytes(case)) if case.op in _WINDOWED else ()
        yield from halo if is_first and is_split else ()
        yield tile
        yield from () if is_first else halo
        yield from self._sums(call, whole.name)

    def _tiled_shapes(self, call: Call) -> list[tuple[int, ...]]:
        """Return the extents of the images of a call that tiles share; none of a call that runs whole."""
        if not _is_shared(call):
            return []
        shapes = [
            layout.shape for place, layout in layouts_of(call)
            if place in self._shapes and len(layout.shape) == _IMAGE_DIMS and layout.shape[2] * layout.shape[3] > 1
        ]  # fmt: skip
        if not shapes and call.case is not None and call.case.op == "reduce" and dict(call.case.axes)["outputs"] == 1:
            return [self._is_image[use.buffer] for use in call.reads if use.buffer in self._is_image]  # flattened
        return shapes

    def _gathers(self, call: Call, name: str) -> Iterator[RankCall]:
        """Yield the gathering of images that a call needs whole."""
        for use in call.reads:
            if use.buffer in self._is_image and use.buffer not in self._gathered:
                self._gathered.add(use.buffer)
                yield collective(f"{name}.images", "all_gather", self._workload.buffers[use.buffer].bytes, "cp")

    def _tiled_case(self, case: Case, share: float) -> Case:
        """Return the case of the fullest tile."""
        op = case.op
        record: dict[str, Any] = case.record()
        if op in _WINDOWED:
            for axis, count in zip("hw", self._parts, strict=True):
                if count > 1:
                    extent, begin, end = _tile_extent(_window(record, axis), int(record.get(axis, 1)), count)
                    record |= {axis: extent, f"p{axis}": begin, f"p{axis}_end": end}
        elif op in _NORMS:
            record["spatial"] = ceil(int(record["spatial"]) * share)
        elif op == "reduce":
            summed = "reduced" if int(record["reduced"]) * share >= 1 else "outputs"
            record |= {summed: ceil(int(record[summed]) * share)}
            record |= {"read": ceil(int(record["read"]) * share)} if record.get("read") else {}
        else:
            whole = record["elements"]
            scaled = [name for name, value in record.items() if name == "read" or (
                isinstance(value, int) and not isinstance(value, bool) and value == whole)]  # fmt: skip
            record |= {name: ceil(int(record[name]) * share) for name in scaled}
        return case_of(record)

    def _halo_bytes(self, case: Case) -> int:
        """Return the bytes that a tile receives at most before a convolution or pool."""
        record: dict[str, Any] = case.record()
        if record.get("grad_input") is False:
            return 0
        channels = int(record.get("in_channels", record.get("channels", 1)))
        layer = SpatialLayer(
            rows=_window(record, "h"), columns=_window(record, "w"), channel_count=channels,
            output_channel_count=int(record.get("out_channels", channels)),
        )  # fmt: skip
        size = int(record.get("h", 1)), int(record["w"])
        width = dtype_of(dict(case.dtypes)["dtype"]).bytes(1)
        each = halos([layer], size, self._parts, image_count=self._images, element_bytes=width)
        return max(tile.received_bytes for tile in each)

    def _sums(self, call: Call, name: str) -> Iterator[RankCall]:
        """Yield the sums over tiles after a call: statistics of norms, and what is summed over positions."""
        assert call.case is not None
        record: dict[str, Any] = call.case.record()
        if call.case.op in _NORMS and record.get("train", True):
            count = int(record[_NORMS[call.case.op]])
            count *= int(record["batch"]) if call.case.op == "group_norm" else 1
            yield collective(f"{name}.statistics", "all_reduce", statistics_bytes(count), "cp")
        written = [use.buffer for use in call.writes if use.buffer not in self._step.gradients]
        if call.case.op == "reduce" and written and not any(place in self._is_image for place in written):
            size = sum(self._workload.buffers[place].bytes for place in written)
            yield collective(f"{name}.sum", "all_reduce", size, "cp")


def _is_windowed(call: Call) -> bool:
    return call.case is not None and call.case.op in _WINDOWED


def _is_shared(call: Call) -> bool:
    """Return whether a rule shares out a call over tiles."""
    return call.case is not None and (
        call.case.op in (*_WINDOWED, *_NORMS, "reduce") or "elements" in dict(call.case.axes)
    )


def _shapes_of(calls: Iterable[Call], is_asked: Callable[[Call], bool]) -> set[tuple[int, ...]]:
    """Return the four extents with which some calls see tensors."""
    return {
        layout.shape for call in calls if is_asked(call)
        for _, layout in layouts_of(call) if len(layout.shape) == _IMAGE_DIMS
    }  # fmt: skip


def _exchange(name: str, size_bytes: int) -> tuple[RankCall, ...]:
    return (collective(f"{name}.halo", "send", size_bytes, "cp"),) if size_bytes else ()


def _window(record: Mapping[str, Any], axis: str) -> Window:
    """Return the window of a convolution or pool along `h` or `w`; pools move by their own extent unless stated."""
    taps = int(record.get(f"k{axis}") or 1)
    default = 1 if record["op"] == "conv" else taps
    return Window(
        taps=taps, stride=int(record.get(f"s{axis}") or default), dilation=int(record.get(f"d{axis}") or 1),
        padding=int(record.get(f"p{axis}") or 0),
    )  # fmt: skip


def _tile_extent(window: Window, size: int, count: int) -> tuple[int, int, int]:
    """Return the positions that the fullest of `count` tiles reads along a dimension, and the padding at both its ends.

    Tiles between others read a halo at both ends; those at the image's edge have its padding there.

    >>> _tile_extent(Window(taps=3, padding=1), 56, 2), _tile_extent(Window(taps=7, stride=2, padding=3), 224, 4)
    ((29, 1, 0), (61, 0, 0))
    """
    parts = tiles(window.output_size(size), count)
    interval = parts[1] if count > 2 and parts[1][1] - parts[1][0] == parts[0][1] else parts[0]
    first, last = window.needed(interval, size)
    begin = max(window.padding - interval[0] * window.stride, 0)
    reached = (interval[1] - interval[0] - 1) * window.stride + window.dilation * (window.taps - 1) + 1
    return last - first, begin, max(reached - begin - (last - first), 0)
