"""Runs one step of a model under the recorder: forward alone, or forward, backward and optimizer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nearpeak.capture._attribution import STAND_IN_LOSS
from nearpeak.capture._failure import stage
from nearpeak.capture._recorder import Recorder
from nearpeak.errors import CaptureError


def forward(recorder: Recorder, model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the model's output; its calls are recorded."""
    import torch

    recorder.phase, recorder.recording = "forward", True
    with torch.no_grad():
        output = model(*args, **kwargs)
    recorder.recording = False
    return output


def train(
    recorder: Recorder, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], subject: str, optimizer: Any
) -> Any:
    """Return the loss; forward, backward and one optimizer step in its steady state are recorded."""
    recorder.phase, recorder.recording = "forward", True
    with stage(subject, "forward"):
        output = model(*args, **kwargs)
    with recorder.attribution.inside(STAND_IN_LOSS):
        loss = _loss(subject, output)
    recorder.phase = "backward"
    recorder.attribution.last = recorder.attribution.of_node(loss.grad_fn)
    with stage(subject, "backward"):
        loss.backward()
    recorder.recording = False
    _label_gradients(recorder, model, (args, kwargs), consumed=optimizer is not None)
    _optimize(recorder, model, subject, optimizer)
    return loss


def _label_gradients(recorder: Recorder, model: Any, inputs: Any, *, consumed: bool) -> None:
    """Name the gradients; those that no optimizer consumes are what the step is for, as are those of inputs."""
    kind = "gradient" if consumed else "output"
    for name, parameter in named_parameters(model):
        if parameter.grad is not None:
            recorder.storages.label(parameter.grad, kind, name, over=("activation", "constant"))
    for tensor in tensors_in(inputs):
        if tensor.is_leaf and tensor.grad is not None:
            recorder.storages.label(tensor.grad, "output", over=("activation", "constant"))


def _optimize(recorder: Recorder, model: Any, subject: str, optimizer: Any) -> None:
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
        rule.step()
        recorder.recording = False


def named_parameters(model: Any) -> list[tuple[str, Any]]:
    """Return names and parameters, tied ones once; a plain callable has none."""
    return list(model.named_parameters()) if hasattr(model, "named_parameters") else []


def _loss(subject: str, output: Any) -> Any:
    """Return `output.loss`, or the sum of the means of all outputs that have a gradient."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is not None and getattr(loss, "grad_fn", None) is not None:
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
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from tensors_in(value, depth)
    elif hasattr(tree, "__dict__") and depth < 4 and not isinstance(tree, (type, torch.nn.Module)):
        for value in vars(tree).values():  # caches and outputs that are plain objects
            yield from tensors_in(value, depth + 1)
