"""Execution of one model step under the recorder: forward, or forward, backward and optimizer."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from nearpeak.errors import CaptureError
from nearpeak.frontends.failure_message import stage
from nearpeak.frontends.torch.call_attribution import STAND_IN_LOSS
from nearpeak.frontends.torch.recorder import Recorder


def forward(recorder: Recorder, model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the model's output; its calls are recorded."""
    import torch

    recorder.phase, recorder.recording = "forward", True
    with torch.no_grad():
        output = _whole(model(*args, **kwargs))
    recorder.recording = False
    return output


def train(
    recorder: Recorder,
    model: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    subject: str,
    optimizer: Any,
    *,
    lowered: Callable[[], Any] = nullcontext,
    scaled: bool = False,
) -> Any:
    """Return the loss; forward, backward and one optimizer step in its steady state are recorded.

    Args:
        lowered: makes the context in which forward and loss run.
        scaled: multiply the loss by a scale, and divide the gradients by it again.
    """
    if runs_without_gradients(getattr(type(model), "forward", model)):
        raise CaptureError(f"{subject}: its forward pass runs without gradients, by a decorator; use step 'forward'")
    scale = Scale() if scaled else None
    recorder.phase, recorder.recording = "forward", True
    with lowered():
        with stage(subject, "forward"):
            output = _whole(model(*args, **kwargs))
        with recorder.attribution.inside(STAND_IN_LOSS):
            loss = _loss(subject, output)
    if scale is not None:
        with recorder.attribution.inside(STAND_IN_LOSS):
            loss = scale.applied(loss)
    recorder.phase = "backward"
    recorder.attribution.last = recorder.attribution.of_node(loss.grad_fn)
    with stage(subject, "backward"):
        loss.backward()
    recorder.recording = False
    _label_gradients(recorder, model, (args, kwargs), consumed=optimizer is not None)
    _optimize(recorder, model, subject, optimizer, scale)
    return loss


def runs_without_gradients(function: Any) -> bool:
    """Return whether a function is decorated with `torch.no_grad` or `torch.inference_mode`, not with its mode off.

    Source: PyTorch, torch/utils/_contextlib.py, context_decorator: the wrapper holds the `clone` of the context.
    """
    import torch

    while function is not None:
        for cell in getattr(function, "__closure__", None) or ():
            with suppress(ValueError):  # nothing is in it
                context = getattr(cell.cell_contents, "__self__", None)
                if isinstance(context, (torch.no_grad, torch.inference_mode)) and getattr(context, "mode", True):
                    return True
        function = getattr(function, "__wrapped__", None)
    return False


def _whole(output: Any) -> Any:
    """Return the output; an iterator is exhausted into a list."""
    return list(output) if isinstance(output, Iterator) else output


def _label_gradients(recorder: Recorder, model: Any, inputs: Any, *, consumed: bool) -> None:
    """Label the gradients; those of inputs, and those that no optimizer consumes, are outputs of the step."""
    kind = "gradient" if consumed else "output"
    for name, parameter in named_parameters(model):
        if parameter.grad is not None:
            recorder.storages.label(parameter.grad, kind, name, over=("activation", "constant"))
    for tensor in tensors_in(inputs):
        if tensor.is_leaf and tensor.grad is not None:
            recorder.storages.label(tensor.grad, "output", over=("activation", "constant"))


def _optimize(recorder: Recorder, model: Any, subject: str, optimizer: Any, scale: "Scale | None") -> None:
    """Record the second step: the first one also creates the optimizer's state."""
    names = {p: name for name, p in named_parameters(model) if p.grad is not None}
    if optimizer is None or not names:
        return
    with stage(subject, "optimizer"):
        rule = optimizer(list(names))
        rule.step()
        states = getattr(rule, "state", {})
        for parameter, name in names.items():
            for key, tensor in sorted(states.get(parameter, {}).items()):
                if hasattr(tensor, "untyped_storage"):
                    recorder.storages.label(tensor, "state", f"{name}.{key}", over=("activation", "constant"))
        recorder.phase, recorder.recording = "optimizer", True
        if scale is not None:
            scale.undone([parameter.grad for parameter in names])
        rule.step()
        recorder.recording = False


class Scale:
    """A scale of the loss that keeps small fp16 gradients above zero, run as `torch.amp.GradScaler` runs it."""

    def __init__(self) -> None:
        import torch

        self._scale, self._growth = torch.full((), 65536.0), torch.full((), 0, dtype=torch.int32)

    def applied(self, loss: Any) -> Any:
        """Return the loss times the scale."""
        return loss * self._scale

    def undone(self, gradients: Sequence[Any]) -> None:
        """Divide the gradients by the scale, look for infinities in them, and renew the scale.

        The optimizer's kernels run in any case: the steady step finds no infinity.
        """
        import torch

        inverse, found_inf = self._scale.double().reciprocal().float(), torch.full((), 0.0)
        by_dtype: dict[Any, list[Any]] = {}
        for gradient in gradients:
            by_dtype.setdefault(gradient.dtype, []).append(gradient)
        for same in by_dtype.values():
            torch._amp_foreach_non_finite_check_and_unscale_(same, found_inf, inverse)
        torch._amp_update_scale_(self._scale, self._growth, found_inf, 2.0, 0.5, 2000)


def named_parameters(model: Any) -> list[tuple[str, Any]]:
    """Return names and parameters, tied ones once; a plain callable has none."""
    return list(model.named_parameters()) if hasattr(model, "named_parameters") else []


def _loss(subject: str, output: Any) -> Any:
    """Return `output.loss`, or the sum of the means of all differentiable outputs."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is not None and getattr(loss, "grad_fn", None) is not None and loss.numel() == 1:
        return loss
    means = [
        (tensor.abs() if tensor.is_complex() else tensor).mean()
        for tensor in tensors_in(output)
        if tensor.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
    ]
    if not means:
        raise CaptureError(f"{subject}: no output has a gradient; a training step needs one, or use step 'forward'")
    return sum(means[1:], start=means[0])


def tensors_in(tree: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the tensors in an output: nested tuples, lists, dictionaries and objects with fields."""
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from tensors_in(value, depth)
    elif isinstance(tree, (list, tuple, set, frozenset)):
        for value in tree:
            yield from tensors_in(value, depth)
    elif depth < 4 and not isinstance(tree, (type, torch.nn.Module)):
        fields_of = (
            [getattr(tree, field.name, None) for field in dataclasses.fields(tree)]
            if dataclasses.is_dataclass(tree)
            else (list(vars(tree).values()) if hasattr(tree, "__dict__") else [])
        )
        for value in fields_of:  # caches and outputs that are plain objects
            yield from tensors_in(value, depth + 1)
