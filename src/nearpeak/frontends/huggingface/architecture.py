"""Capture of Hugging Face models at their published dimensions, without weights or downloads."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import LARGEST_TENSOR_BYTES, Workload
from nearpeak.errors import CaptureError, NotModelledError, SpecError
from nearpeak.frontends.diffusion.denoiser_capture import DENOISERS, capture_denoiser, denoiser_parameters
from nearpeak.frontends.huggingface.decode_cache import cache_tensors, forget_encoded, stretched
from nearpeak.frontends.huggingface.input_kinds import kinds_of
from nearpeak.frontends.huggingface.input_request import Ask
from nearpeak.frontends.huggingface.inputs_by_name import by_name
from nearpeak.frontends.huggingface.published_inputs import (  # fmt: skip
    ModelFacts,
    cached_positions,
    check_cache,
    input_sizes,
    label_kind,
    label_shape,
)
from nearpeak.frontends.huggingface.published_models import Published, published
from nearpeak.frontends.huggingface.recipes import RECIPES
from nearpeak.frontends.huggingface.routed_experts import ROUTED_TYPES, ROUTING_NOTE
from nearpeak.frontends.huggingface.settings import settings_of
from nearpeak.frontends.huggingface.transformers_package import SWITCHES, built, transformers_package
from nearpeak.frontends.torch.fake_tensors import eager_models
from nearpeak.frontends.torch.kernel_packages import kernels_kept_whole
from nearpeak.frontends.torch.module_capture import capture_torch, fake_world, torch_dtype


def capture_architecture(
    name_or_config: str | Path | Published, options: CaptureOptions = CaptureOptions()
) -> Workload:
    """Return the workload of one step of a published architecture.

    Without a format the weights have the published one, and fp32 with autocast.

    Args:
        name_or_config: a model whose dimensions come with nearpeak, the path of a config.json or its folder, or
            dimensions.

    Raises:
        UnknownNameError: no such model.
        SpecError: an option that does not fit the model.
        MissingExtraError: transformers or PyTorch is not installed.
    """
    check_cache(options)
    model = name_or_config if isinstance(name_or_config, Published) else published(name_or_config)
    if model.model_type in DENOISERS:
        return capture_denoiser(model, options)
    wanted = dtype_of(options.dtype or (not options.autocast and model.dtype) or "fp32").name
    transformers = transformers_package()
    config = _config(transformers, model)
    cls, notes = _class(transformers, model, config, options.step)
    facts = _facts(model, cls, config)
    plan = ModelPlan(cls=cls, facts=facts, options=options, dtype=wanted)
    origin = {
        "kind": "architecture", "model": model.title, "dimensions": model.source, "class": cls.__name__,
        "dtype": wanted, "batch": str(options.batch_count), "inputs": "",
        "transformers": str(transformers.__version__),
    }  # fmt: skip
    guesses = bool(kinds_of(facts.parameters) - {"text"})
    workload = capture_torch(
        plan.build, plan.inputs, dataclasses.replace(options, dtype=None, guess_sizes=guesses), name=model.name,
        origin=origin, assumptions=(*model.notes, *notes, *plan.notes),
    )  # fmt: skip
    return dataclasses.replace(workload, origin={**workload.origin, "inputs": plan.described})


def parameters_count(name_or_config: str | Path) -> int:
    """Return the parameters of an architecture at full size, tied ones counted once; nothing is allocated."""
    model = published(name_or_config)
    if model.model_type in DENOISERS:
        return denoiser_parameters(model)
    transformers = transformers_package()
    config = _config(transformers, model)
    cls, _ = _class(transformers, model, config, "forward")
    plan = ModelPlan(cls=cls, facts=_facts(model, cls, config), options=CaptureOptions(), dtype="bf16")
    with fake_world(None) as world:
        module, _ = world.prepared(model.name, plan.build, ((), {}))
        return sum(parameter.numel() for parameter in module.parameters())


class ModelPlan:
    """Builds the model and its inputs under fake tensors."""

    def __init__(self, *, cls: Any, facts: ModelFacts, options: CaptureOptions, dtype: str) -> None:
        self._cls, self._facts, self._options, self._dtype = cls, facts, options, dtype
        self._model: Any = None
        self._sizes, self.notes = input_sizes(facts, options)
        self._kv_count = 0
        self.described = ""
        _check_sizes(facts, options, self._tokens(), dtype)
        if options.step == "train" and not facts.compares_text_with_images and not label_kind(facts):
            self.notes += ("The model has no loss of its own here; its gradient starts from the mean of its outputs.",)
        if facts.config.model_type in ROUTED_TYPES:
            self.notes += (ROUTING_NOTE,)
        if options.step == "decode":
            self._kv_count = cached_positions(facts, options)
            self.notes += (
                f"Each sequence has {self._kv_count} positions in its cache; the new one is written into it in place.",
            )
            if facts.setting("kv_lora_rank"):
                self.notes += (
                    "Keys and values are expanded from the compressed cache at every step, as published code does.",
                )

    def build(self) -> Any:
        """Return the model."""
        self._model = built(lambda: self._cls._from_config(self._facts.config, dtype=torch_dtype(self._dtype)))
        return self._model

    def inputs(self) -> tuple[Any, ...]:
        """Return args, kwargs and the tensors that are labelled separately."""
        if self._options.step == "decode":
            return self._decode_inputs()
        inputs = self._given()
        if self._options.step == "train" and self._facts.compares_text_with_images:
            return (), {**self._noted(inputs), "return_loss": True}, ()
        shape = label_shape(self._facts, inputs) if self._options.step == "train" else None
        return (), self._noted(inputs | ({} if shape is None else {"labels": _whole(shape)})), ()

    def _tokens(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of token inputs, which are known before the model is built."""
        names = {"input_ids": "text_tokens", "decoder_input_ids": "decoder_sequence"}
        return {
            name: (self._options.batch_count, self._sizes[size])
            for name, size in names.items()
            if name in self._facts.parameters and size in self._sizes
        }

    def _given(self, *, without: str = "") -> dict[str, Any]:
        """Return the inputs that the recipes make; values of plain tokens are unknown."""
        facts, options = self._facts, self._options
        ask = Ask(
            model=self._model, model_type=facts.config.model_type, recipes=tuple(RECIPES[key] for key in RECIPES),
            unknown=by_name, options=options,
            hints={**settings_of(facts.config.model_type).get("inputs", {}), **self._sizes, "values": "unknown"},
        )  # fmt: skip
        inputs = {name: value for name, value in ask.inputs().items() if name != without}
        if facts.main_input not in inputs:
            raise NotModelledError(f"{facts.name}: no recipe for input {facts.main_input!r}")
        tensors = {name: tuple(value.shape) for name, value in inputs.items() if hasattr(value, "shape")}
        _check_sizes(facts, options, tensors, self._dtype)
        return inputs

    def _noted(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs, and describe them for the origin."""
        parts = [f"{name} {'×'.join(map(str, getattr(value, 'shape', ())))}" for name, value in inputs.items()]
        cached = [f"{self._kv_count} cached positions"] if self._options.step == "decode" else []
        self.described = ", ".join([*parts, *cached])
        return inputs

    def _decode_inputs(self) -> tuple[Any, ...]:
        """Let the model create a cache for one token, whose layout only it knows, and extend it."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        encoded = self._facts.is_encoder_decoder
        tokens = {"decoder_input_ids" if encoded else self._facts.main_input: _whole((self._options.batch_count, 1))}
        inputs = self._noted((self._given(without="decoder_input_ids") if encoded else {}) | tokens)
        with torch.no_grad(), eager_models(), kernels_kept_whole(self._model):
            output = self._model.eval()(**inputs, use_cache=True)
        named_cache = stretched(output, self._kv_count)
        if named_cache is None:
            raise CaptureError(f"{self._facts.name}: its decode step leaves no cache; capture step 'forward' instead")
        name, cache = named_cache
        kwargs = {**tokens, name: cache, "use_cache": True}
        if encoded:
            hidden = torch.empty_like(output.encoder_last_hidden_state)
            kwargs["encoder_outputs"] = BaseModelOutput(last_hidden_state=hidden)
            forget_encoded(cache)
        return (), kwargs, lambda: cache_tensors(cache)


def _whole(shape: tuple[int, ...]) -> Any:
    """Return an integer tensor of unknown values."""
    import torch

    return torch.empty(shape, dtype=torch.int64)


def _config(transformers: Any, model: Published) -> Any:
    known = tuple(transformers.CONFIG_MAPPING.keys())
    if model.model_type not in known:
        near = unknown_name("model_type", model.model_type, known)
        raise SpecError(f"{model.name}: {near}; transformers {transformers.__version__} must know the architecture")
    try:
        config = transformers.AutoConfig.for_model(model.model_type, **model.config)
    except Exception as error:  # each architecture checks its dimensions in its own way
        reason = " ".join(str(error).split())[:200]
        raise SpecError(f"{model.name}: transformers refuses these dimensions ({reason})") from None
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", {}))):
        for name, value in SWITCHES.items():
            if hasattr(part, name):
                setattr(part, name, value)
        if hasattr(part, "use_cache"):
            part.use_cache = False  # a decode step asks for its cache itself
    return config


def _class(transformers: Any, model: Published, config: Any, step: str) -> tuple[Any, tuple[str, ...]]:
    """Return the model class, and notes on its choice."""
    wanted = (model.training_class, *model.class_names) if step == "train" else model.class_names
    cls: Any = next((getattr(transformers, name) for name in wanted if name and hasattr(transformers, name)), None)
    notes: tuple[str, ...] = ()
    if cls is None:
        cls = transformers.MODEL_MAPPING.get(type(config), None)
        cls = cls[0] if isinstance(cls, (tuple, list)) else cls
        named = wanted[0] if wanted else "no class"
        notes = (f"config.json names {named}; the bare {getattr(cls, '__name__', '')} is captured, without a head.",)
    if not inspect.isclass(cls) or not issubclass(cls, transformers.PreTrainedModel):
        raise SpecError(f"{model.name}: no class for {model.model_type!r}; name one under 'architectures'")
    chosen: Any = cls
    if step == "decode" and not chosen.can_generate():
        raise SpecError(f"{model.name}: {chosen.__name__} makes no tokens one by one; use step 'forward'")
    return chosen, notes


def _facts(model: Published, cls: Any, config: Any) -> ModelFacts:
    forward: Callable[..., Any] = cls.forward
    return ModelFacts(
        name=model.name, class_name=cls.__name__, config=config, main_input=cls.main_input_name,
        parameters=frozenset(inspect.signature(forward).parameters), defaults=model.inputs,
    )  # fmt: skip


def _check_sizes(facts: ModelFacts, options: CaptureOptions, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> None:
    """Refuse sizes that need a tensor over 2^50 bytes, naming the option."""
    widest = max((facts.setting(n) or 1) for n in ("vocab_size", "intermediate_size", "hidden_size"))
    for name, shape in shapes.items():
        count = prod(shape) * (widest if name.endswith("input_ids") else 1)
        if dtype_of(dtype).bytes(count) > LARGEST_TENSOR_BYTES:
            sizes = {"--batch": options.batch_count, "--sequence": options.sequence or 1}
            option = max(sizes, key=lambda key: sizes[key])
            raise SpecError(f"{option} {sizes[option]}: {facts.name} would need a tensor of over 2^50 bytes; give less")
    if options.kv and options.batch_count * options.kv * dtype_of(dtype).bytes(widest) > LARGEST_TENSOR_BYTES:
        raise SpecError(f"--kv {options.kv}: {facts.name} would need a tensor of over 2^50 bytes; give less")
