"""Fake-tensor environment in which models are built and run: shapes without memory."""

import copy
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import MissingExtraError
from nearpeak.frontends.known_values.data_dependent_sizes import CONSTANT_ELEMENTS
from nearpeak.frontends.known_values.known_tensors import known
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
        stand_ins = (module.stand_ins() for module in (device_moves, lazy_parameters, process_groups))
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


def faked(mode: Any, tensor: Any) -> Any:
    """Return the fake stand-in of a real tensor; small whole numbers keep their values."""
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.nn.parameter import is_lazy

    if isinstance(tensor, FakeTensor) or is_lazy(tensor):
        return tensor
    if not tensor.is_leaf:
        tensor = tensor.detach().requires_grad_(tensor.requires_grad)
    row = dtype_of(str(tensor.dtype).removeprefix("torch."))
    whole = row.kind in ("int", "bool") and row.bits_count == 8 * tensor.element_size()
    if whole and tensor.numel() <= CONSTANT_ELEMENTS and tensor.device.type == "cpu":
        return known(mode, tensor)
    return mode.from_tensor(tensor)


def faked_tree(mode: Any, tree: Any) -> Any:
    """Return `tree` (tuples, lists, dictionaries) with real tensors replaced by fake ones."""
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda tensor: faked(mode, tensor), tree)


def faked_module(mode: Any, module: Any) -> Any:
    """Return a copy of `module` whose tensors are fake; one that is fake already is returned itself."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    tensors = list(tensors_of(module))
    # The parameters of a sharded model wrap their part of the whole.
    if all(isinstance(getattr(tensor, "_local_tensor", tensor), FakeTensor) for tensor in tensors):
        return module
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):  # its reducer cannot be copied
        bucket_mb = module.bucket_bytes_cap / 2**20
        inner = faked_module(mode, module.module)
        return type(module)(inner, process_group=module.process_group, bucket_cap_mb=bucket_mb)
    memo: dict[int, Any] = {id(tensor): faked(mode, tensor) for tensor in tensors}
    return copy.deepcopy(module, memo)


def tensors_of(module: Any) -> Iterator[Any]:
    """Yield parameters, buffers and tensors that are plain attributes."""
    import torch

    yield from module.parameters()
    yield from module.buffers()
    for part in module.modules():
        attributes: Mapping[str, Any] = vars(part)
        yield from (value for value in attributes.values() if isinstance(value, torch.Tensor))


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
