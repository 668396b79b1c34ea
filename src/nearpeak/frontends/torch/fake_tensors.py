"""Fake-tensor environment in which models are built and run: shapes without memory."""

import copy
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import MissingExtraError
from nearpeak.frontends.known_values.data_dependent_sizes import CONSTANT_ELEMENTS
from nearpeak.frontends.known_values.known_tensors import known
from nearpeak.frontends.quantisation import quantised_tensors
from nearpeak.frontends.torch import device_moves, lazy_parameters, process_groups

_INDEXING = ("__getitem__", "__setitem__")


def require_torch() -> Any:
    """Return the module `torch`, or say which extra installs it."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("capture: PyTorch is not installed; install nearpeak[torch]") from None
    return torch


def fake_mode() -> Any:
    """Return a fake tensor mode in which shapes stay plain numbers."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # Shapes that depend on values are an error with a name instead of an unknown that fails later.
    shapes = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)

    aten = torch.ops.aten
    blank = frozenset((aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default))

    class Mode(FakeTensorMode):  # type: ignore[misc]  # torch is untyped here
        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            """Mark the values of uninitialised memory as unknown."""
            out = super().dispatch(func, types, args, kwargs)
            if func in blank:
                out.constant = None
            return out

        def may_turn_const(self, t: Any) -> bool:
            """Keep the values of a small storage however often a view repeats them."""
            known_bytes = t.untyped_storage().nbytes() if t.layout is torch.strided and not self.is_our_fake(t) else 0
            return super().may_turn_const(t) or 0 < known_bytes <= CONSTANT_ELEMENTS

    return Mode(allow_non_fake_inputs=True, shape_env=shapes, static_shapes=True)


def dispatch_mode(handle: Callable[..., Any]) -> Any:
    """Return a mode that gives every dispatched call to `handle(mode, function, args, kwargs)`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # the wrapper that it saves costs a tenth of a capture

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            for kind in types:
                if hasattr(kind, "__tensor_flatten__"):
                    return NotImplemented  # a wrapper of other tensors (sharded or asynchronous): those are dispatched
            return handle(self, func, args, kwargs or {})

    return Mode()


@contextmanager
def switches() -> Iterator[None]:
    """Set PyTorch's switches for capture and put them back afterwards."""
    import torch
    from torch._subclasses import fake_tensor

    with ExitStack() as stack:
        stack.callback(gc.set_threshold, *gc.get_threshold())
        gc.set_threshold(100_000, 50, 50)  # a capture makes many small objects, few of them garbage
        stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
        torch.backends.mha.set_fastpath_enabled(False)
        # Shapes depend neither on a device that this machine may lack nor on compilation; errors are told once.
        more = ((fake_tensor, "CONSTANT_NUMEL_LIMIT", CONSTANT_ELEMENTS), (fake_tensor.log, "disabled", True))
        owners = (device_moves, lazy_parameters, process_groups, quantised_tensors)
        stand_ins = (module.stand_ins() for module in owners)
        indexing = ((torch.Tensor, name, _stacking(getattr(torch.Tensor, name))) for name in _INDEXING)
        for owner, name, stand_in in (*chain.from_iterable(stand_ins), *indexing, *more):
            stack.enter_context(replaced(owner, name, stand_in))
        yield


@contextmanager
def eager_models() -> Iterator[None]:
    """Let transformers treat fake tensors as ordinary ones; for traced ones it adds masks that are not needed."""
    module: Any = sys.modules.get("transformers.utils.import_utils")
    with ExitStack() as stack:
        if hasattr(module, "is_fake_tensor"):
            stack.enter_context(replaced(module, "is_fake_tensor", lambda _tensor: False))
        yield


@contextmanager
def replaced(owner: Any, name: str, stand_in: Any) -> Iterator[None]:
    """Replace an attribute while the block runs."""
    is_defined = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if is_defined:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


class StandIns:
    """Fake tensors that stand for the tensors of a caller, none of which is written to."""

    def __init__(self, mode: Any) -> None:
        self._mode = mode
        self._copies: dict[int, tuple[Any, Any]] = {}
        self._moved: dict[int, tuple[Any, Any]] = {}

    def of(self, thing: Any) -> Any:
        """Return the stand-in of a tensor or of a scripted module; other things unchanged.

        Small whole numbers keep their values. Whatever device a tensor is on, its stand-in is on the CPU.
        """
        import torch

        if isinstance(thing, torch.jit.ScriptModule):
            return self._scripted(thing)
        return self._tensor(thing) if isinstance(thing, torch.Tensor) else thing

    def _tensor(self, tensor: Any) -> Any:
        from torch._subclasses.fake_tensor import FakeTensor
        from torch.nn.parameter import is_lazy

        if is_lazy(tensor) or _is_own(tensor, self._mode):
            return tensor
        with torch_modes_off():
            if not tensor.is_leaf:
                tensor = tensor.detach().requires_grad_(tensor.requires_grad)
            fake = self._of_leaf(tensor, foreign=isinstance(tensor, FakeTensor))
        fake.grad = None  # a step starts without gradients, whatever the last one left
        if not isinstance(tensor, FakeTensor) and not hasattr(tensor, "__tensor_flatten__"):
            for name, value in vars(tensor).items():  # what modules note at their parameters
                setattr(fake, name, self.of(value))
        return fake

    def _of_leaf(self, tensor: Any, *, foreign: bool) -> Any:
        import torch

        row = dtype_of(str(tensor.dtype).removeprefix("torch."))
        whole = row.kind in ("int", "bool") and row.bits_count == 8 * tensor.element_size()
        values = tensor.constant if foreign else tensor
        small = tensor.layout is torch.strided and tensor.numel() <= CONSTANT_ELEMENTS
        if whole and small and values is not None and values.device.type == "cpu":
            return known(self._mode, self._copied(values))
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) or foreign
        if plain and tensor.layout is torch.strided and (foreign or tensor.device.type != "cpu"):
            return self._on_cpu(tensor)
        return self._mode.from_tensor(tensor)

    def _copied(self, values: Any) -> Any:
        """Return a copy of a small tensor; those of one storage share one copy, as a write to one is seen in all."""
        storage = values.untyped_storage()
        if storage.nbytes() > 8 * CONSTANT_ELEMENTS:
            return values.clone()
        if storage._cdata not in self._copies:
            self._copies[storage._cdata] = (storage, storage.clone())
        copy = self._copies[storage._cdata][1]
        return values.new_empty(0).set_(copy, values.storage_offset(), values.shape, values.stride())

    def _on_cpu(self, tensor: Any) -> Any:
        """Return the stand-in of a tensor of another device or fake mode; those of one storage share one."""
        import torch

        storage = tensor.untyped_storage()
        with self._mode:
            if storage._cdata not in self._moved:
                self._moved[storage._cdata] = (storage, torch.empty(int(storage.nbytes()), dtype=torch.uint8))
            base = self._moved[storage._cdata][1].untyped_storage()
            shape, strides = ([int(extent) for extent in extents] for extents in (tensor.shape, tensor.stride()))
            fake = torch.empty(0, dtype=tensor.dtype).set_(base, int(tensor.storage_offset()), shape, strides)
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(fake, tensor.requires_grad)
            return fake.requires_grad_(tensor.requires_grad)

    def _scripted(self, module: Any) -> Any:
        """Return a copy: scripted modules keep their tensors outside Python."""
        import torch

        with torch_modes_off():
            twin = copy.deepcopy(module)
        for part in twin.modules():
            for name, tensor in list(part.named_parameters(recurse=False)):
                setattr(part, name, torch.nn.Parameter(self.of(tensor.detach()), tensor.requires_grad))
            for name, tensor in list(part.named_buffers(recurse=False)):
                setattr(part, name, self.of(tensor))
        return twin


def is_faked(module: Any, mode: Any) -> bool:
    """Return whether all tensors of a module are fake ones of the mode; a function counts as such, as it has none."""
    import torch

    if not isinstance(module, torch.nn.Module):
        return True
    attributes = (value for part in module.modules() for value in vars(part).values())
    tensors = (*module.parameters(), *module.buffers(), *(v for v in attributes if isinstance(v, torch.Tensor)))
    return all(_is_own(tensor, mode) for tensor in tensors)


def _is_own(tensor: Any, mode: Any) -> bool:
    from torch._subclasses.fake_tensor import FakeTensor

    local = getattr(tensor, "_local_tensor", tensor)  # sharded models wrap their part of the whole
    return isinstance(local, FakeTensor) and local.fake_mode is mode


def converted_noting(mode: Any, note: Callable[[Any], None]) -> Callable[..., Any]:
    """Return the mode's conversion of real tensors that meet fake ones, which gives leaves with gradients to `note`."""
    convert = mode.fake_tensor_converter.from_real_tensor

    def converted(fake_mode: Any, tensor: Any, *args: Any, **options: Any) -> Any:
        if tensor.requires_grad and tensor.is_leaf:
            note(tensor)
        return convert(fake_mode, tensor, *args, **options)

    return converted


def torch_modes_off() -> Any:
    """Return the context in which PyTorch calls run for real, whatever modes are on."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()


def _stacking(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return indexing that accepts lists of one-element tensors: PyTorch reads their memory, which fake ones lack."""

    def index(tensor: Any, where: Any, *value: Any) -> Any:
        if type(where) is tuple and any(type(index_item) in (list, tuple) for index_item in where):
            where = tuple(_stacked(index_item) for index_item in where)
        return original(tensor, where, *value)

    return index


def _stacked(index: Any) -> Any:
    import torch

    whole = (
        type(index) in (list, tuple)
        and index
        and all(isinstance(item, torch.Tensor) and not item.dim() for item in index)
    )
    return torch.stack(list(index)) if whole else index
