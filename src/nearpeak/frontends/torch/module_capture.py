"""Capture of PyTorch modules and callables: inference, training and decode steps, without allocating weights."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nearpeak.base.deep_recursion import deep_recursion
from nearpeak.base.garbage_collection import collector_paused
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.caller_state.loan import Loan, loan
from nearpeak.frontends.failure_message import stage
from nearpeak.frontends.known_values.known_tensors import NO_GUESSES, GuessPolicy, Values
from nearpeak.frontends.torch.autocast import Autocast, autocast_of_cuda, format_named
from nearpeak.frontends.torch.call_attribution import Attribution, plain_path
from nearpeak.frontends.torch.composite_operators import kept_whole
from nearpeak.frontends.torch.control_flow import stand_ins as control_flow
from nearpeak.frontends.torch.fake_tensors import (
    StandIns,
    converted_noting,
    dispatch_mode,
    eager_models,
    fake_mode,
    replaced,
    require_torch,
    switches,
)
from nearpeak.frontends.torch.flex_attention import flex_kept_whole
from nearpeak.frontends.torch.host_transfers import transfers_kept
from nearpeak.frontends.torch.inductor_fusion import check_fusion, grouped, inductor_graph, inputs_of, runnable
from nearpeak.frontends.torch.kernel_packages import kernels_kept_whole
from nearpeak.frontends.torch.lazy_parameters import prepare
from nearpeak.frontends.torch.model_step import forward, named_parameters, tensors_in, train
from nearpeak.frontends.torch.module_wrappers import lent, nothing_compiled, opened
from nearpeak.frontends.torch.optimizers import Made, optimizer_named
from nearpeak.frontends.torch.process_groups import sharding_unrecorded
from nearpeak.frontends.torch.recorder import Recorder
from nearpeak.frontends.torch.workload_builder import WorkloadBuilder
from nearpeak.ops import aten_matchers
from nearpeak.ops.shared.torch_names import torch_dtype as named_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Existing:
    """Marks for `capture_torch` what is the step itself, as other functions that it takes make a model."""

    function: Callable[..., Any]
    """The step."""

    def __call__(self) -> Callable[..., Any]:
        """Return the function."""
        return self.function


Named = Iterable[tuple[Any, str, str]]
"""Tensors with the kind of their buffer (one of BUFFER_KINDS) and a name."""

_FRAME_COUNT = 4000
"""Frames that a captured program may be deep: those of Python's usual 1,000, with what recording adds to each call."""


def capture_torch(
    build: Callable[[], Any] | Any,
    inputs: Callable[[], tuple[Any, ...]] | tuple[Any, ...],
    options: CaptureOptions = CaptureOptions(),
    *,
    name: str,
    as_built: bool = False,
    optimizer: str | Made = "adamw",
    fused: bool = True,
    origin: Mapping[str, str] | None = None,
    assumptions: Sequence[str] = (),
    folder: Path | None = None,
    expert_counts: frozenset[int] = frozenset(),
    selected_count: int | None = None,
) -> Workload:
    """Return the workload of one step of a PyTorch model.

    The model's own code runs, on tensors that have shapes but no memory.

    Args:
        build: returns the module or callable and is called under fake tensors, so that weights are never
            allocated; or a module or exported program that exists already, whose tensors are neither copied nor
            changed. What is compiled or wrapped in `DataParallel` is opened first.
        inputs: returns (args, kwargs) or (args, kwargs, named) and is called under fake tensors, unrecorded; or
            such a tuple of real tensors. `named` gives (tensor, kind, name) for tensors inside objects that
            only the model understands, such as a KV cache; it may be a callable, which is called again after
            the step, so that storages which the step created are labelled too.
        options: `forward` and `decode` run without gradients, `train` adds backward and optimizer; parameters and
            inputs are converted to the format that is stated. With autocast to fp16 the step scales its loss and
            checks its gradients as a GradScaler does. Sizes and limits are not used here.
        as_built: leave every module in the mode in which `build` returns it.
        optimizer: `adamw`, `sgd` (with momentum), `none`, any other of PyTorch in small letters (`muon` takes the
            matrices and leaves the rest to AdamW), or a function that takes the parameters and returns an object
            with `step()` and, for its states' names, `state`.
        fused: one kernel for all parameters where PyTorch has one, else one per operation and list of tensors.
        folder: files below it are shown relative to it.
        expert_counts: numbers of experts; a top-k over such an extent is a router, whose choices are spread evenly.
        selected_count: how many elements an unknown condition selects where its sizes are guessed; all if none.

    Raises:
        CaptureError: the model raised, or its outputs have no gradient to train with.
        SpecError: an option is not known.
    """
    require_torch()
    check_fusion(name, options.fusion, options.step)
    rule = optimizer_named(optimizer, fused=fused)
    if options.autocast is not None:
        format_named(options.autocast)
    if options.fusion is not None:
        return _fused(build, inputs, options, name, {**(origin or {}), "fusion": options.fusion}, assumptions)
    policy = GuessPolicy(sizes=options.guess_sizes, expert_counts=expert_counts, selected_count=selected_count)
    with fake_world(folder, policy) as world:
        model, (args, kwargs, named) = world.prepared(name, build, inputs)
        mode = options.step == "train" if options.training is None else options.training
        world.place(model, None if as_built else mode, options.dtype)
        args, kwargs = world.inputs(args, kwargs, named, options.dtype)
        shapes = _shapes_text(args, kwargs)
        notes = list(assumptions)
        if options.step == "train" and not any(p.requires_grad for p in _parameters(model)):
            world.differentiate((args, kwargs))
            notes.append("the model has no trainable parameters: the gradients are those of its inputs")
        with (
            deep_recursion(_FRAME_COUNT), eager_models(), kernels_kept_whole(model), sharding_unrecorded(),
            transfers_kept(),
        ):  # fmt: skip
            output = _run(world, model, args, kwargs, name, options, rule)
        world.label_outputs(output, named)
        lowered = {"autocast": options.autocast} if options.autocast else {}
        return world.workload(name, options.step, model, {**shapes, **lowered, **(origin or {})}, notes)


def _shapes_text(args: Any, kwargs: Any) -> dict[str, str]:
    """Return the shapes of the tensors that a model is called with, as the origin of a workload states them."""
    import torch

    named = [(f"input_{place}" if place else "input", value) for place, value in enumerate(args or ())]
    tensors = [(name, value) for name, value in [*named, *(kwargs or {}).items()] if isinstance(value, torch.Tensor)]
    texts = [f"{name} {'×'.join(map(str, value.shape))}" for name, value in tensors if value.dim()]
    return {"inputs": ", ".join(texts)} if texts else {}


def _fused(
    build: Any, inputs: Any, options: CaptureOptions, name: str, origin: Mapping[str, str], assumptions: Sequence[str]
) -> Workload:
    """Return the forward step as TorchInductor would run it, its kernels as groups."""
    if options.autocast is not None:
        raise SpecError(f"{name}: fusion groups and autocast exclude each other; give one")
    with fake_world(None) as world:
        model, (args, kwargs, named) = world.prepared(name, build, inputs)
        world.place(model, bool(options.training), options.dtype)
        args, kwargs = world.inputs(args, kwargs, named, options.dtype)
        sizes = _sizes(model)
    graph = inductor_graph(world.mode, model, args, kwargs, name)
    workload = capture_torch(
        lambda: runnable(graph), lambda: inputs_of(graph), CaptureOptions(training=False), name=name,
        origin={**sizes, **origin}, assumptions=assumptions,
    )  # fmt: skip
    return grouped(workload, graph)


def _run(world: "FakeWorld", model: Any, args: Any, kwargs: Any, name: str, options: CaptureOptions, rule: Any) -> Any:
    """Run the step and return the model's output, or the loss."""
    lowered = partial(world.autocast.region, options.autocast)
    if options.step != "train":
        with stage(name, "forward"), lowered():
            return forward(world.recorder, model, args, kwargs)
    return train(world.recorder, model, args, kwargs, name, rule, lowered=lowered, scaled=options.autocast == "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeWorld:
    """The fake-tensor environment of one capture."""

    mode: Any
    """Fake tensor mode."""
    recorder: Recorder
    """Sees every call."""
    values: Values
    """Answers questions about values."""
    autocast: Autocast
    """Lowers formats as CUDA builds do."""
    loan: Loan
    """What belongs to the caller, and is put back afterwards."""

    def workload(self, name: str, step: str, model: Any, origin: Mapping[str, str], notes: Sequence[str]) -> Workload:
        """Return the recorded workload."""
        import torch

        recorder = self.recorder
        recorder.builder.known, recorder.builder.patterns = recorder.facts.answers()
        every = [*notes, *recorder.masks.assumptions(), *recorder.facts.assumptions()]
        parameters = _parameters(model) if step == "train" else []
        if frozen := sum(p.numel() for p in parameters if not p.requires_grad):
            every.append(f"{frozen} of {sum(p.numel() for p in parameters)} parameters are frozen")
        facts = {"torch": str(torch.__version__), **_sizes(model), **origin}
        return recorder.builder.workload(name, step, facts, every, self.values.guards())

    def prepared(self, name: str, build: Any, inputs: Any) -> tuple[Any, tuple[Any, Any, Any]]:
        """Return the model, and its inputs with the named tensors."""
        import torch

        self.values.building = True
        with stage(name, "building the model"):
            source = opened(build)
            is_module = isinstance(source, torch.nn.Module)
            self.loan.is_existing = is_module or isinstance(source, Existing)
            model = source if is_module else opened(source())
        with stage(name, "making the inputs"):
            arguments = inputs() if callable(inputs) else inputs
        self.values.building = False
        args, kwargs, *rest = arguments
        with stage(name, "reading what the model holds"):
            real = dict(model.named_buffers()) if isinstance(model, torch.nn.Module) else {}
            model = lent(self.loan, model, self.mode)
            self._give_constants(model, real)
            args, kwargs = self.loan.lend((tuple(args), dict(kwargs)))
        self._materialise(name, model, args, kwargs)
        return model, (args, kwargs, rest[0] if rest else ())

    def _give_constants(self, model: Any, real: Mapping[str, Any]) -> None:
        """Note the values of a module's buffers, and of the tensors that a function holds: the program states them."""
        import torch

        if isinstance(model, torch.nn.Module):
            pairs = [(real[path], buffer) for path, buffer in model.named_buffers() if path in real]
        else:
            pairs = [(tensor, fake) for tensor, fake in self.loan.pairs() if type(tensor) is torch.Tensor]
        for tensor, fake in pairs:
            if fake is not tensor and type(tensor) is torch.Tensor and tensor.device.type == "cpu":
                self.recorder.origins.give(fake, tensor)

    def _materialise(self, name: str, model: Any, args: Any, kwargs: Any) -> None:
        """Run a model with lazy parameters once, unrecorded, so that these get their shapes."""
        import torch

        if not prepare(model):
            return
        with stage(name, "finding the shapes of lazy parameters"), torch.no_grad():
            model(*args, **kwargs)

    def place(self, model: Any, training: bool | None, dtype: str | None) -> None:
        """Set the module's mode (none keeps it) and format, and name its weights."""
        import torch

        if not isinstance(model, torch.nn.Module):
            return
        if training is not None:
            with suppress(NotImplementedError):  # exported programs stay in their mode
                model.train(training)
        if dtype is not None:
            model.to(torch_dtype(dtype))
        self.recorder.attribution.name_modules(model)
        storages, origins = self.recorder.storages, self.recorder.origins
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            kind = "constant" if not isinstance(tensor, torch.nn.Parameter) and origins.is_pattern(tensor) else "weight"
            storages.label(tensor, kind, plain_path(name))
        data = [buffer for buffer in persistent_buffers(model) if not origins.is_pattern(buffer)]
        for tensor in (*model.parameters(), *data):  # initial values are not part of the program
            origins.forget(tensor)

    def inputs(self, args: Any, kwargs: Any, named: Any, dtype: str | None) -> tuple[Any, Any]:
        """Return the inputs as fake tensors, named."""
        import torch
        from torch.utils._pytree import tree_map_only

        if dtype is not None:
            wanted = torch_dtype(dtype)
            args, kwargs = tree_map_only(
                torch.Tensor, lambda t: t.to(wanted) if t.is_floating_point() else t, (args, kwargs)
            )
        self.label(named)
        for key, value in (*((f"input_{index}", arg) for index, arg in enumerate(args)), *kwargs.items()):
            tensors = list(tensors_in(value))
            for index, tensor in enumerate(tensors):
                self.recorder.origins.forget(tensor)
                self.recorder.storages.label(tensor, "input", key if len(tensors) == 1 else f"{key}.{index}")
        return args, kwargs

    def differentiate(self, inputs: Any) -> None:
        """Require gradients of all floating-point inputs, unless some require them already."""
        if any(tensor.requires_grad for tensor in tensors_in(inputs)):
            return
        for tensor in tensors_in(inputs):
            if tensor.is_floating_point() and tensor.is_leaf:
                tensor.requires_grad_()

    def label(self, named: Callable[[], Named] | Named) -> None:
        """Label named tensors with their kind."""
        for tensor, kind, name in named() if callable(named) else named:
            self.recorder.origins.forget(tensor)
            self.recorder.storages.label(tensor, kind, name, over=("activation", "constant", "output"))

    def label_outputs(self, output: Any, named: Callable[[], Named] | Named) -> None:
        """Mark the storages that the step returns or leaves behind."""
        for tensor in tensors_in(output):
            self.recorder.storages.label(tensor, "output", over=("activation", "constant", "output"))
            self.recorder.storages.keep(tensor)
        if callable(named):
            self.label(named)


@contextmanager
def fake_world(folder: Path | None, policy: GuessPolicy = NO_GUESSES) -> Iterator[FakeWorld]:
    """Enter the environment of a capture: fake tensors, recorder, composite operators, module hooks."""
    with ExitStack() as stack:
        stack.enter_context(collector_paused())
        stack.enter_context(switches())
        composites = stack.enter_context(kept_whole())
        stack.enter_context(nothing_compiled())
        mode = fake_mode()
        values = Values(mode, policy)
        attribution = Attribution(folder)
        borrowed = stack.enter_context(loan(StandIns(mode).of))
        noted = converted_noting(mode, borrowed.keep_gradient)
        stack.enter_context(replaced(mode.fake_tensor_converter, "from_real_tensor", noted))
        for owner, name, stand_in in control_flow(values):
            stack.enter_context(replaced(owner, name, stand_in))
        autocast = stack.enter_context(autocast_of_cuda())
        recorder = Recorder(WorkloadBuilder(aten_matchers()), values, attribution, composites)
        stack.enter_context(flex_kept_whole(recorder))
        stack.enter_context(attribution.hooks())
        stack.enter_context(mode)
        stack.enter_context(dispatch_mode(recorder.handle))
        yield FakeWorld(mode=mode, recorder=recorder, values=values, autocast=autocast, loan=borrowed)


def persistent_buffers(model: Any) -> Iterator[Any]:
    """Yield the buffers that a state dict holds, which loading it replaces."""
    for module in model.modules():
        transient: frozenset[str] = getattr(module, "_non_persistent_buffers_set", frozenset())
        yield from (tensor for name, tensor in module._buffers.items() if tensor is not None and name not in transient)


def torch_dtype(name: str) -> Any:
    """Return PyTorch's dtype of a format."""
    import torch

    try:
        return named_dtype(torch, dtype_of(name).name)
    except AttributeError:
        raise SpecError(f"dtype {name!r}: PyTorch has no such format") from None


def _parameters(model: Any) -> list[Any]:
    return [parameter for _, parameter in named_parameters(model)]


def _sizes(model: Any) -> dict[str, str]:
    """Return the number of parameters."""
    parameters = _parameters(model)
    return {"parameters": str(sum(p.numel() for p in parameters))} if parameters else {}
