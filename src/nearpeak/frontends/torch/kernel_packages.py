"""Functions of mamba-ssm, fla and similar packages kept as one recurrence operator instead of a Python loop."""

# Models call such a function by the name and with the signature of a public package (mamba-ssm, fla). Without it,
# transformers falls back to a loop over tokens or chunks. While a capture runs, the name in the model's own Python
# module stands for one operator of the namespace `nearpeak` instead.

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import Any

from nearpeak.frontends.torch.recurrence_operators import applied, operators

PACKAGES = ("fla", "mamba_ssm", "transformers")
"""Packages whose functions are recognised by name."""


@contextmanager
def kernels_kept_whole(model: Any) -> Iterator[None]:
    """Replace the known functions in the Python modules that define the parts of `model` while the block runs."""
    operators()
    names = dict.fromkeys(type(part).__module__ for part in (model.modules() if hasattr(model, "modules") else ()))
    modules = [sys.modules[name] for name in names if name in sys.modules and not name.startswith("torch.")]
    with ExitStack() as stack:
        for module in modules:
            for name, function in list(vars(module).items()):
                stand_in = _stand_ins().get(kernel_name(function))
                if stand_in is not None:
                    stack.callback(setattr, module, name, function)
                    setattr(module, name, _replacing(function, stand_in))
        yield


def kernel_name(function: Any) -> str:
    """Return the public name of the kernel that `function` stands for, or an empty string.

    A fallback of transformers carries the name in its closure; a function of a known package has it as its own.
    """
    while callable(function) and hasattr(function, "__code__"):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        if "func_name" in cells and "package" in cells:
            return str(cells["func_name"].cell_contents)
        if function.__module__ and function.__module__.split(".")[0] in PACKAGES and function.__name__ in _stand_ins():
            return str(function.__name__)
        function = getattr(function, "__wrapped__", None)
    return ""


def _replacing(function: Callable[..., Any], stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """Return `stand_in` with `function` as fallback for calls that it returns NotImplemented for."""

    @wraps(function)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        packed = any(kwargs.get(name) is not None for name in ("cu_seqlens", "seq_idx"))
        result = NotImplemented if packed else stand_in(*args, **kwargs)
        return function(*args, **kwargs) if result is NotImplemented else result

    return replaced


@cache
def _stand_ins() -> Mapping[str, Callable[..., Any]]:
    """Return the stand-in of each known function, with the signature of its package."""
    return {
        "selective_scan_fn": _selective_scan,
        "mamba_chunk_scan_combined": _chunk_scan,
        "selective_state_update": _state_update,
        "chunk_gated_delta_rule": _delta_rule,
        "fused_recurrent_gated_delta_rule": _delta_rule,
        "chunk_kda": _delta_rule,
        "fused_recurrent_kda": _delta_rule,
        "rwkv_linear_attention": _wkv,
    }


def _selective_scan(
    u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, delta_bias: Any = None,
    delta_softplus: bool = False, return_last_state: bool = False, **_: Any,
) -> Any:  # fmt: skip
    if B.dim() != 3 or C.dim() != 3 or A.is_complex():
        return NotImplemented
    if delta_bias is not None and not delta_softplus:
        delta, delta_bias = delta + delta_bias[:, None], None
    results = applied("selective_scan", (u, delta, A, B, C, D, z, delta_bias), (delta_softplus, return_last_state))
    return tuple(results) if return_last_state else results[0]


def _chunk_scan(
    x: Any, dt: Any, A: Any, B: Any, C: Any, _chunk_size: int = 0, D: Any = None, z: Any = None, dt_bias: Any = None,
    initial_states: Any = None, dt_softplus: bool = False, return_final_states: bool = False, **_: Any,
) -> Any:  # fmt: skip
    import torch

    if dt_bias is not None and not dt_softplus:
        dt, dt_bias = dt + dt_bias, None
    results = applied("ssd_scan", (x, dt, A, B, C, D, dt_bias, initial_states), (dt_softplus, return_final_states))
    y = results[0] if z is None else results[0] * torch.nn.functional.silu(z)
    return (y, results[1]) if return_final_states else y


def _state_update(
    state: Any, x: Any, dt: Any, A: Any, B: Any, C: Any, D: Any = None, z: Any = None, dt_bias: Any = None,
    dt_softplus: bool = False, **_: Any,
) -> Any:  # fmt: skip
    import torch

    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, dt, A, B, C)):
        return NotImplemented  # the packages have no gradient for it
    return torch.ops.nearpeak.selective_state_update(state, x, dt, A, B, C, D, z, dt_bias, dt_softplus)


def _delta_rule(
    q: Any, k: Any, v: Any, g: Any, beta: Any, *_: Any, scale: float | None = None, initial_state: Any = None,
    output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False, **_more: Any,
) -> Any:  # fmt: skip
    if use_qk_l2norm_in_kernel:
        q, k = (x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for x in (q, k))
    q = q * (q.shape[-1] ** -0.5 if scale is None else scale)
    results = applied("delta_rule", (q, k, v, g, beta, initial_state), (output_final_state,))
    return results[0], results[1] if output_final_state else None


def _wkv(decay: Any, bonus: Any, key: Any, value: Any, state: Any = None, return_state: bool = False) -> Any:
    import torch

    ended = return_state or state is not None
    if state is not None and torch.is_grad_enabled() and key.requires_grad:
        return NotImplemented
    results = applied("wkv", (decay, bonus, key, value, *(state or (None, None, None))), (ended,))
    return results[0], list(results[1:]) if ended else None
