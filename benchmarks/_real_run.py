"""The same step recorded twice, on fake tensors as captures run and on real ones; what each dispatched is compared."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from benchmarks._small_models import Small
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.frontends.torch import module_capture, whole_operators
from nearpeak.frontends.torch.call_attribution import Attribution
from nearpeak.frontends.torch.composite_operators import kept_whole
from nearpeak.frontends.torch.fake_tensors import dispatch_mode, eager_models, replaced, switches
from nearpeak.frontends.torch.model_step import train
from nearpeak.frontends.torch.optimizers import optimizer_named
from nearpeak.frontends.torch.recorder import Recorder
from nearpeak.frontends.torch.workload_builder import WorkloadBuilder
from nearpeak.ops import aten_matchers

Seen = Counter[tuple[str, str, str]]
"""Calls by phase, operator and arguments."""

SEED = 0


class Witness(Recorder):
    """Also counts each call by shapes, formats and plain arguments; strides and storages are left out."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.seen: Seen = Counter()

    def _call(self, plan: Any, args: Any, kwargs: dict[str, Any], outs: list[Any], *, guessed: bool) -> None:
        self.seen[self.phase, plan.name, f"{_shown(args)} {_shown(kwargs)} -> {_shown(outs)}"] += 1
        super()._call(plan, args, kwargs, outs, guessed=guessed)


def fake_run(model: Small) -> Seen:
    """Return what a captured training step dispatches; loops that captures keep whole run as written here."""
    made: list[Witness] = []

    def witness(*parts: Any) -> Witness:
        made.append(Witness(*parts))
        return made[-1]

    as_written = replaced(module_capture, "kernels_kept_whole", lambda _model: nullcontext())
    with replaced(module_capture, "Recorder", witness), as_written:
        module_capture.capture_torch(model.build, model.inputs, CaptureOptions(step="train"), name=model.name)
    return made[0].seen


def real_run(model: Small) -> Seen:
    """Return what the same training step dispatches on real tensors."""
    torch.manual_seed(SEED)
    module, (args, kwargs) = model.build(), model.inputs()
    module.train()
    with ExitStack() as stack:
        stack.enter_context(switches())
        composites = stack.enter_context(kept_whole())
        stack.enter_context(_real_kernels())
        attribution = Attribution()
        recorder = Witness(WorkloadBuilder(aten_matchers()), _RealValues(), attribution, composites)
        stack.enter_context(attribution.hooks())
        stack.enter_context(dispatch_mode(recorder.handle))
        stack.enter_context(eager_models())
        train(recorder, module, args, kwargs, model.name, optimizer_named("adamw", fused=True))
    return recorder.seen


def differences(model: Small) -> Seen:
    """Return the calls that only one of the two runs makes, by how many more it makes."""
    fake, real = fake_run(model), real_run(model)
    return (fake - real) + (real - fake)


class _RealValues:
    """Stands for `Values` where every tensor has values."""

    building = False
    size_guess_count = 0

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what the call gives."""
        return func(*args, **kwargs)

    def constant(self, _func: Any, _packet: str, out: Any, _args: Any, _kwargs: Any) -> Any:
        """Return the result itself."""
        return out

    def note(self, packet: str, out: Any, args: Any) -> None:
        """Nothing to remember."""

    def scalar(self, tensor: Any) -> Any:
        """Return the true value."""
        return tensor.item()

    def guess(self, what: str, answer: object) -> object:
        """Return the answer that captures give; `equal` alone asks, whose tensors no model here compares."""
        del what
        return answer


@contextmanager
def _real_kernels() -> Iterator[None]:
    """Give the operators that captures keep whole true values or, for recurrent layers, values of the right shapes."""
    kernels: dict[str, Callable[..., Any]] = {
        "attention": _attention, "attention_backward": _attention_backward,
        "rms_norm": _rms_norm, "rms_norm_backward": _rms_norm_backward,
        **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _filled(whole_operators._recurrent_shape)),
        **dict.fromkeys(
            (f"{name}_backward" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
            _filled(whole_operators._recurrent_backward_shape),
        ),
    }  # fmt: skip
    library = torch.library.Library("nearpeak", "IMPL")
    try:
        for name, kernel in kernels.items():
            library.impl(name, kernel, "CPU")
        yield
    finally:
        library._destroy()


def _filled(shape: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    return lambda *arguments: [tensor.fill_(0.01) for tensor in shape(*arguments)]


def _scores(q: Any, k: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -torch.inf)
    if mask is None:
        return scores.softmax(-1)
    return (scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask).softmax(-1)


def _repeated(tensor: Any, heads: int) -> Any:
    return tensor.repeat_interleave(heads // tensor.shape[1], 1)


def _attention(q: Any, k: Any, v: Any, mask: Any, _p: float, causal: bool, scale: float | None) -> Any:
    keys, values = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
    return _laid_out(_scores(q, keys, mask, causal, scale) @ values, q.dtype)


def _attention_backward(
    grad: Any, q: Any, k: Any, v: Any, mask: Any, _out: Any, _p: float, causal: bool, scale: float | None, wanted: bool
) -> list[Any]:
    keys, values = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
    weights, by_weight = _scores(q, keys, mask, causal, scale), grad @ values.transpose(-2, -1)
    by_score = weights * (by_weight - (by_weight * weights).sum(-1, keepdim=True))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    found = [by_score @ keys * factor, by_score.transpose(-2, -1) @ q * factor, weights.transpose(-2, -1) @ grad]
    grouped = [t.unflatten(1, (k.shape[1], -1)).sum(2) for t in found[1:]]
    by_mask = [by_score.sum_to_size(mask.shape)] if wanted else []
    return [*(_laid_out(t, q.dtype) for t in (found[0], *grouped)), *by_mask]


def _laid_out(tensor: Any, dtype: Any) -> Any:
    """Return the tensor with heads between position and feature in memory, as fused kernels write it."""
    return tensor.to(dtype).transpose(1, 2).contiguous().transpose(1, 2)


def _rms_norm(x: Any, shape: Any, weight: Any, eps: float | None) -> Any:
    axes = tuple(range(-len(shape), 0))
    small = torch.finfo(x.dtype).eps if eps is None else eps
    rstd = (x.pow(2).mean(axes, keepdim=True) + small).rsqrt()
    return x * rstd * (1 if weight is None else weight), rstd


def _rms_norm_backward(grad: Any, x: Any, shape: Any, rstd: Any, weight: Any, mask: Any) -> list[Any]:
    axes = tuple(range(-len(shape), 0))
    scaled, normal = grad * (1 if weight is None else weight), x * rstd
    by_x = rstd * (scaled - normal * (scaled * normal).mean(axes, keepdim=True))
    by_weight = (grad * normal).sum(tuple(range(grad.dim() - len(shape))))
    return [t for t, wanted in zip((by_x, by_weight), mask, strict=True) if wanted]


def _shown(value: Any) -> str:
    """Return tensors by format and shape, other arguments as they are."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}={_shown(value[key])}' for key in sorted(value))}}}"
    return type(value).__name__ if isinstance(value, torch.Generator) else str(value)
