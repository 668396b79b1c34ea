"""CUDA autocast rules applied to fake CPU tensors: the format that each operator runs in."""

# The dispatcher's own autocast stage is used: its CPU kernels are replaced by ones that follow the lists of CUDA, so
# that casts happen above autograd, as on a GPU.

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.frontends.torch.fake_tensors import replaced

FORMATS = {"bf16": "bfloat16", "fp16": "float16"}
"""Formats that autocast can lower to, with PyTorch's names."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


LOWER = _names(
    "_convolution convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d "
    "cudnn_convolution cudnn_convolution_transpose prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear "
    "addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell "
    "rnn_tanh_cell rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention"
)
"""Run in the lower format."""

SINGLE = _names(
    "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm "
    "native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss "
    "cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss "
    "margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss "
    "binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d _upsample_nearest_exact1d "
    "upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d _upsample_nearest_exact3d upsample_linear1d "
    "upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa"
)
"""Run in fp32; their inputs are cast."""

SINGLE_OUTPUT = _names("prod softmax log_softmax cumprod cumsum linalg_vector_norm linalg_matrix_norm sum")
"""Give fp32, mostly without a cast of their own, unless the caller names a format; so does `norm`."""

WIDEST = _names("addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add")
"""Run in the widest format among their inputs."""

BANNED = frozenset({"binary_cross_entropy"})
"""Refused, as their results in fp16 are unsafe."""

RECURRENT = frozenset({"lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"})
"""Whole recurrent layers, whose cuDNN form lowers inputs and weights."""


def format_named(name: str) -> Any:
    """Return PyTorch's format for an autocast to `name`, one of FORMATS."""
    import torch

    if name not in FORMATS:
        raise SpecError(f"autocast {name!r}: lowers to {' or '.join(FORMATS)}")
    return getattr(torch, FORMATS[name])


class Autocast:
    """The autocast of one capture: its kernels, installed when first needed, and the cache of cast weights."""

    def __init__(self) -> None:
        self._library: Any = None
        self._cast: dict[int, tuple[Any, Any]] = {}

    def region(self, name: str | None) -> Any:
        """Return a context that lowers to the format `name`; with none it changes nothing."""
        import torch

        return nullcontext() if name is None else torch.autocast("cuda", dtype=format_named(name))

    def install(self) -> None:
        """Let the autocast stage of CPU tensors follow the lists of CUDA."""
        import torch

        if self._library is not None:
            return
        self._library = torch.library.Library("aten", "IMPL")
        with warnings.catch_warnings(action="ignore"):  # replacing kernels is what is wanted
            self._replace_kernels()

    def _replace_kernels(self) -> None:
        import torch

        key, has = "AutocastCPU", torch._C._dispatch_has_kernel_for_dispatch_key
        for name in torch._C._dispatch_get_all_op_names():
            if not name.startswith("aten::"):
                continue
            short = name.removeprefix("aten::")
            if short in RECURRENT or has(name, "AutocastCUDA"):
                self._library.impl(short, self._kernel(short), key, allow_override=True)
            elif has(name, key):
                self._library.impl(short, torch.library.fallthrough_kernel, key, allow_override=True)

    def close(self) -> None:
        """Put PyTorch's own kernels back."""
        self.forget()
        if self._library is not None:
            self._library._destroy()

    def forget(self) -> None:
        """Drop the cached casts of weights, as at the end of the outermost region."""
        self._cast.clear()

    def _kernel(self, name: str) -> Callable[..., Any]:
        import torch

        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet), overload or "default")
        stage = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        rewrite = self._rewriter(packet, op, name)

        def kernel(*args: Any, **kwargs: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(stage):
                called, args, kwargs = rewrite(args, kwargs)
                return called(*args, **kwargs)

        return kernel

    def _rewriter(self, packet: str, op: Any, name: str) -> Callable[..., tuple[Any, Any, Any]]:
        """Return the function that maps operator arguments to the call that runs."""
        import torch

        def cast(args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
            wanted = self._wanted(packet, name, (*args, *kwargs.values()))
            changed = [self._lowered(value, wanted) for value in args]
            return op, changed, {key: self._lowered(value, wanted) for key, value in kwargs.items()}

        def into_single(args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
            call = _with_output(op, args, kwargs) if _eligible(args[0]) else (op, args, kwargs)
            return _softmax_of_half(packet, call) if "softmax" in packet else call

        def norm(args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
            twin = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}[name]
            wanted = torch.float32 if _eligible(args[0]) else args[0].dtype
            return getattr(torch.ops.aten.norm, twin), args, {**kwargs, "dtype": wanted}

        def refuse(_args: Any, _kwargs: Any) -> tuple[Any, Any, Any]:
            raise RuntimeError(f"{packet} is unsafe to autocast; use {packet}_with_logits")

        if packet in BANNED:
            return refuse
        return norm if packet == "norm" else into_single if packet in SINGLE_OUTPUT else cast

    def _wanted(self, packet: str, name: str, values: Any) -> Any:
        """Return the format in which an operator runs."""
        import torch

        lower = torch.get_autocast_dtype("cpu")
        if packet in LOWER or name in RECURRENT:
            return lower
        if packet in SINGLE:
            return torch.float32
        widest = any(_eligible(tensor) and tensor.dtype == torch.float32 for tensor in _flat(values))
        return torch.float32 if widest else lower

    def _lowered(self, value: Any, wanted: Any) -> Any:
        """Return tensors, also those in lists, in the wanted format; other arguments as they are."""
        if isinstance(value, (list, tuple)):
            return [self._lowered(item, wanted) for item in value]
        if not _eligible(value) or value.dtype == wanted:
            return value
        return self._cached(value, wanted) if _is_weight(value, wanted) else value.to(wanted)

    def _cached(self, tensor: Any, wanted: Any) -> Any:
        if id(tensor) not in self._cast:
            self._cast[id(tensor)] = (tensor, tensor.to(wanted))
        return self._cast[id(tensor)][1]


@contextmanager
def autocast_of_cuda() -> Iterator[Autocast]:
    """Let `torch.autocast("cuda")` work without CUDA while the block runs; gives the autocast."""
    import torch

    autocast = Autocast()
    with ExitStack() as stack:
        stack.callback(autocast.close)
        for owner, name, stand_in in _stand_ins(torch, autocast):
            stack.enter_context(replaced(owner, name, stand_in))
        yield autocast


def _stand_ins(torch: Any, autocast: Autocast) -> list[tuple[Any, str, Any]]:
    original, clear, default = torch.autocast.__init__, torch.clear_autocast_cache, torch.get_autocast_dtype("cuda")
    cast = torch.amp.autocast_mode._cast

    def init(region: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            autocast.install()
            device_type, dtype = "cpu", dtype or default
        original(region, device_type, dtype, *args, **kwargs)

    def forget() -> None:
        autocast.forget()
        clear()

    def on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
        def answer(device: Any = "cuda", *args: Any) -> Any:
            return function("cpu" if device == "cuda" else device, *args)

        return answer

    return [
        (torch.autocast, "__init__", init),
        (torch, "clear_autocast_cache", forget),
        (torch, "is_autocast_enabled", on_cpu(torch.is_autocast_enabled)),
        (torch, "get_autocast_dtype", on_cpu(torch.get_autocast_dtype)),
        (torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("cpu")),
        (torch.amp.autocast_mode, "_cast", lambda value, _device, dtype: cast(value, "cpu", dtype)),
    ]


def _eligible(value: Any) -> bool:
    """Return whether autocast may change the format of `value`."""
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64


def _is_weight(tensor: Any, wanted: Any) -> bool:
    """Return whether the cast of `tensor` is cached until the outermost region ends."""
    import torch

    trained = tensor.dtype == torch.float32 and tensor.requires_grad and tensor.is_leaf and not tensor._is_view()
    return trained and wanted != torch.float32 and torch.is_autocast_cache_enabled()


def _flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _flat(value)
        else:
            yield value


def _with_output(op: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """Return the call with fp32 as the format of its result, where it names none."""
    import torch

    position = next(i for i, argument in enumerate(op._schema.arguments) if argument.name == "dtype")
    if position < len(args):
        chosen = args[position] if args[position] is not None else torch.float32
        return op, (*args[:position], chosen, *args[position + 1 :]), kwargs
    return op, args, {**kwargs, "dtype": kwargs.get("dtype") or torch.float32}


def _softmax_of_half(packet: str, call: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Return the call that CUDA makes of fp16 scores in fp32, which needs no cast; bf16 has no such kernel."""
    import torch

    _op, args, kwargs = call
    dtype = kwargs.get("dtype", args[2] if len(args) > 2 else None)
    if args[0].dtype != torch.float16 or dtype != torch.float32:
        return call
    return getattr(torch.ops.aten, f"_{packet}").default, (args[0], args[1], True), {}
