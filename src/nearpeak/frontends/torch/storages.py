"""Numbering of tensor storages, and the kind and name of each."""

from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout, Tensor
from nearpeak.core.work.workload import Use
from nearpeak.errors import CaptureError
from nearpeak.frontends.torch.process_groups import GroupTexts
from nearpeak.frontends.torch.workload_builder import WorkloadBuilder


class Storages:
    """The storages seen so far, keyed by the storage itself and kept alive, since freed identities are reused."""

    def __init__(self, builder: WorkloadBuilder) -> None:
        self._builder = builder
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._formats: dict[Any, str] = {}
        self.groups = GroupTexts()
        self._uses: dict[tuple[Layout, int | None], tuple[int, int, int]] = {}

    def known(self, tensor: Any) -> bool:
        """Return whether the storage of `tensor` has a number."""
        return _storage(tensor)._cdata in self._numbers

    def number(self, tensor: Any, kind: str, name: str = "") -> int:
        """Return the number of the storage behind `tensor`; a new one is of `kind`."""
        storage = _storage(tensor)
        key = storage._cdata
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._builder.add_buffer(int(storage.nbytes()), kind, name)
            self._alive.append(storage)
        return number

    def label(self, tensor: Any, kind: str, name: str = "", over: tuple[str, ...] = ()) -> None:
        """Set kind and name of the storage; an existing kind changes only if it is among `over`."""
        parts = inner_tensors(tensor)
        if not (len(parts) == 1 and parts[0] is tensor):
            for part in parts:
                self.label(part, kind, name, over)
            return
        known = self.known(tensor)
        number = self.number(tensor, kind, name)
        if known and self._builder.buffers[number].kind in over:
            self._builder.relabel(number, kind, name)

    def keep(self, tensor: Any) -> None:
        """Note that the step returns `tensor`, which may be a part of its storage."""
        parts = inner_tensors(tensor)
        if not (len(parts) == 1 and parts[0] is tensor):
            for part in parts:
                self.keep(part)
            return
        number = self.number(tensor, "output")
        self._builder.returned.append((number, self.layout(tensor, 0)))
        if self.kind(number) == "output":
            self._builder.keep(number, described(self.layout(tensor, 0), number).bytes)

    def note_value(self, tensor: Any, number: int) -> None:
        """Note the value of a one-element constant tensor."""
        known = getattr(tensor, "constant", None)
        if known is not None and tensor.numel() == 1 and not tensor.is_complex():
            self._builder.note_value(number, float(known))

    def kind(self, number: int) -> str:
        """Return what a storage holds."""
        return self._builder.buffers[number].kind

    def layout(self, tensor: Any, alias: int) -> Layout:
        """Return shape, strides, format and offset of `tensor`."""
        return Layout(tuple(tensor.shape), tensor.stride(), self._format(tensor.dtype), tensor.storage_offset(), alias)

    def use(self, layout: Layout, number: int, touched_bytes: int | None) -> Use:
        """Return what a call touches of the storage `number`."""
        key = (layout, touched_bytes)
        extents = self._uses.get(key)
        if extents is None:
            tensor = described(layout, number)
            size = tensor.bytes if touched_bytes is None else min(touched_bytes, tensor.bytes)
            extents = self._uses[key] = (size, *tensor.span_bytes)
        return Use(buffer=number, bytes=extents[0], start_bytes=extents[1], stop_bytes=extents[2])

    def plain(self, value: Any) -> Any:
        """Return a format, device, layout or other option of PyTorch as text; symbolic numbers as numbers."""
        if hasattr(value, "is_floating_point"):
            return self._format(value)
        if hasattr(value, "node"):
            return int(value)
        if type(value).__name__ == "Generator":
            return "generator"
        return self.groups.of_object(value) or str(value).removeprefix("torch.")

    def _format(self, dtype: Any) -> str:
        name = self._formats.get(dtype)
        if name is None:
            name = self._formats[dtype] = dtype_of(str(dtype).removeprefix("torch.")).name
        return name


def inner_tensors(tensor: Any) -> list[Any]:
    """Return the tensors that hold what a wrapper shows, such as a shard or quantised numbers with their scales."""
    if hasattr(tensor, "_local_tensor"):  # the local shard of a distributed tensor
        return [tensor._local_tensor]
    if tensor.is_nested or not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names = tensor.__tensor_flatten__()[0]
    return [inner for name in names for inner in inner_tensors(getattr(tensor, name))]


NESTED = "capture knows dense ones: pad the rows, or call torch.nn.attention.varlen with their offsets"
"""Advice for nested tensors, whose rows differ in length."""


def _storage(tensor: Any) -> Any:
    if tensor.is_nested:
        raise CaptureError(f"a tensor is nested ({tensor.layout}); {NESTED}")
    try:
        return tensor.untyped_storage()
    except NotImplementedError:
        raise CaptureError(
            f"an input or weight is a sparse tensor ({tensor.layout}); capture knows dense ones: pass indices and "
            "values apart"
        ) from None


def described(layout: Layout, number: int) -> Tensor:
    """Return the tensor value of `layout` in the storage `number`."""
    return Tensor(shape=layout.shape, dtype=layout.dtype, strides=layout.strides, buffer=number, offset=layout.offset)
