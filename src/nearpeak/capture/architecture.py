"""Capture of Hugging Face architectures at full published size: dimensions in, no weight and no download."""

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nearpeak.capture._fake import eager_models
from nearpeak.capture._kernels import kernels_kept_whole
from nearpeak.capture._published import Published, published
from nearpeak.capture._recipes import InputSpec, ModelFacts, Options, cached_positions, recipe
from nearpeak.capture.torch_dispatch import _world, capture_torch, torch_dtype
from nearpeak.core.dtype import dtype_of
from nearpeak.core.workload import LARGEST_TENSOR_BYTES, Workload
from nearpeak.errors import CaptureError, MissingExtraError, SpecError
from nearpeak.registry import unknown_name

LARGEST_OPTION = 2**40

_SWITCHES = {
    "layerdrop": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "apply_spec_augment": False,
    "output_router_logits": False,
}  # fmt: skip
"""Settings that would leave parts of the model to chance."""


def capture_architecture(
    name_or_config: str | Path,
    *,
    step: str = "forward",
    batch: int = 1,
    sequence: int | None = None,
    kv: int | None = None,
    dtype: str | None = None,
    autocast: str | None = None,
    fusion: str | None = None,
) -> Workload:
    """Return the workload of one step of a published architecture.

    Args:
        name_or_config: a model whose dimensions come with nearpeak, or the path of a config.json or its folder.
        step: `forward` (for a decoder: prefill), `train`, or `decode` (one new token per sequence).
        sequence: tokens per sequence.
        kv: positions already in the cache of a decode step.
        dtype: format of weights and activations, the published one when not given, fp32 with autocast.
        autocast: format to which the step is lowered as autocast does on a GPU.
        fusion: `inductor` for the calls and kernels of TorchInductor's graph.

    Raises:
        UnknownNameError: no such model.
        SpecError: an option that does not fit the model.
        MissingExtraError: transformers or PyTorch is not installed.
    """
    options = Options(step=step, batch=batch, sequence=sequence, kv=kv)
    _check_options(options)
    model = published(name_or_config)
    wanted = dtype_of(dtype or (not autocast and model.dtype) or "fp32").name
    transformers = _transformers()
    config = _config(transformers, model)
    cls, notes = _class(transformers, model, config, step)
    facts = _facts(model, cls, config)
    specs, more = recipe(facts, options)
    _check_sizes(facts, options, specs, wanted)
    plan = _Plan(cls=cls, facts=facts, specs=specs, options=options, dtype=wanted)
    origin = {
        "kind": "architecture", "model": model.title, "dimensions": model.source, "class": cls.__name__,
        "dtype": wanted, "batch": str(batch or 1), "inputs": plan.described(),
        "transformers": str(transformers.__version__),
    }  # fmt: skip
    return capture_torch(
        plan.build, plan.inputs, name=model.name, step=step, autocast=autocast, fusion=fusion, origin=origin,
        assumptions=(*model.notes, *notes, *more, *plan.notes),
    )  # fmt: skip


def parameters_count(name_or_config: str | Path) -> int:
    """Return the parameters of an architecture at full size, tied ones counted once; nothing is allocated."""
    model = published(name_or_config)
    transformers = _transformers()
    config = _config(transformers, model)
    cls, _ = _class(transformers, model, config, "forward")
    plan = _Plan(
        cls=cls, facts=_facts(model, cls, config), specs={}, options=Options(step="forward", batch=1), dtype="bf16"
    )
    with _world(None) as world:
        module, _ = world.prepared(model.name, plan.build, ((), {}))
        return sum(parameter.numel() for parameter in module.parameters())


class _Plan:
    """How to build the model and its inputs inside the fake world."""

    def __init__(
        self, *, cls: Any, facts: ModelFacts, specs: dict[str, InputSpec], options: Options, dtype: str
    ) -> None:
        self._cls, self._facts, self._specs, self._options, self._dtype = cls, facts, specs, options, dtype
        self._model: Any = None
        self.notes: tuple[str, ...] = ()
        self._kv_count = 0
        if options.step == "decode":
            self._kv_count = cached_positions(facts, options)
            self.notes = (
                f"Each sequence has {self._kv_count} positions in its cache; the new one is written into it in place.",
            )
            if facts.setting("kv_lora_rank"):
                self.notes += (
                    "Keys and values are expanded from the compressed cache at every step, as published code does.",
                )

    def described(self) -> str:
        """Return the inputs in words."""
        decode = self._options.step == "decode"
        encoded = self._specs if self._facts.is_encoder_decoder else {}
        specs = {**encoded, **self._decode_specs()} if decode else self._specs
        parts = [f"{name} {'×'.join(map(str, spec.shape))}" for name, spec in specs.items()]
        return ", ".join([*parts, f"{self._kv_count} cached positions"] if decode else parts)

    def build(self) -> Any:
        """Return the model; its initial values do not matter, so they are not drawn."""
        from transformers import initialization

        with initialization.no_init_weights():
            self._model = self._cls._from_config(self._facts.config, dtype=torch_dtype(self._dtype))
        self._model.tie_weights()  # skipped together with the initial values
        return self._model

    def inputs(self) -> tuple[Any, ...]:
        """Return args, kwargs and the tensors that need a name of their own."""
        if self._options.step == "decode":
            return self._decode_inputs()
        return (), {**self._tensors(self._specs), **self._flags()}, ()

    def _flags(self) -> dict[str, bool]:
        both = "pixel_values" in self._specs and "input_ids" in self._specs
        return {"return_loss": True} if both and self._options.step == "train" else {}

    def _tensors(self, specs: dict[str, InputSpec]) -> dict[str, Any]:
        import torch

        formats = {"whole": torch.int64, "float": torch_dtype(self._dtype)}
        return {name: torch.empty(spec.shape, dtype=formats[spec.kind]) for name, spec in specs.items()}

    def _decode_specs(self) -> dict[str, InputSpec]:
        tokens = "decoder_input_ids" if self._facts.is_encoder_decoder else self._facts.main_input
        return {tokens: InputSpec(shape=(self._options.batch, 1))}

    def _decode_inputs(self) -> tuple[Any, ...]:
        """Let the model make a cache for one token, then stretch it: its layout is the model's own affair."""
        import torch
        from transformers.modeling_outputs import BaseModelOutput

        tokens = self._tensors(self._decode_specs())
        given = {**self._tensors(self._specs), **tokens} if self._facts.is_encoder_decoder else tokens
        with torch.no_grad(), eager_models(), kernels_kept_whole(self._model):
            output = self._model.eval()(**given, use_cache=True)
        found = {name: getattr(output, name) for name in _CACHES if getattr(output, name, None) is not None}
        if not found:
            raise CaptureError(f"{self._facts.name}: its decode step leaves no cache; capture step 'forward' instead")
        name, cache = next(iter(found.items()))
        own = getattr(cache, "self_attention_cache", cache)
        for layer in getattr(own, "layers", ()):
            _fill(layer, self._kv_count)
        kwargs = {**tokens, name: cache, "use_cache": True}
        if self._facts.is_encoder_decoder:
            hidden = torch.empty_like(output.encoder_last_hidden_state)
            kwargs["encoder_outputs"] = BaseModelOutput(last_hidden_state=hidden)
            for layer in cache.cross_attention_cache.layers:
                layer.keys, layer.values = torch.empty_like(layer.keys), torch.empty_like(layer.values)
        return (), kwargs, lambda: _cache_tensors(cache)


_CACHES = ("past_key_values", "cache_params", "state")
"""Outputs under which models return what a decode step goes on from; inputs of the same name take it."""


def _fill(layer: Any, kv_count: int) -> None:
    """Give an attention layer's cache `kv_count` positions, a sliding one no more than its window keeps.

    The new position is written in place, as serving engines do; transformers' own cache would copy everything.
    """
    import torch

    keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
    if keys is None or values is None:
        return  # a recurrent layer: its state has the same size at every position
    window = getattr(layer, "sliding_window", None)
    kept = min(kv_count, window - 1) if isinstance(window, int) else kv_count
    room = [torch.empty((*t.shape[:-2], kept + 1, t.shape[-1]), dtype=t.dtype) for t in (keys, values)]
    layer.keys, layer.values = (storage[..., :kept, :] for storage in room)
    if hasattr(layer, "cumulative_length"):
        layer.cumulative_length = kv_count

    def append(new_keys: Any, new_values: Any, *_args: Any, **_kwargs: Any) -> tuple[Any, Any]:
        for storage, new in zip(room, (new_keys, new_values), strict=True):
            storage[..., kept:, :].copy_(new)
        layer.keys, layer.values = room
        return room[0], room[1]

    if type(layer).__name__ in ("DynamicLayer", "DynamicSlidingWindowLayer"):  # others keep more than keys and values
        layer.update = append


def _cache_tensors(cache: Any) -> Iterator[tuple[Any, str, str]]:
    """Yield the tensors of a cache with kind and name."""
    import torch

    if isinstance(cache, list):  # the recurrent state of RWKV
        yield from ((tensor, "kv_cache", f"cache.{index}") for index, tensor in enumerate(cache))
    for part in ("self_attention_cache", "cross_attention_cache"):
        for index, layer in enumerate(getattr(getattr(cache, part, cache), "layers", ())):
            for name, value in vars(layer).items():
                held = value if isinstance(value, dict) else {"": value}  # recurrent layers number their states
                for key, tensor in held.items():
                    if isinstance(tensor, torch.Tensor) and not name.startswith("_"):
                        yield tensor, "kv_cache", f"cache.{index}.{name}" + (f".{key}" if key != "" else "")


def _transformers() -> Any:
    """Return the package transformers, kept off the network."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            f"transformers: not installed ({error}); install it with: pip install 'nearpeak[hf]'"
        ) from None
    return transformers


def _config(transformers: Any, model: Published) -> Any:
    known = tuple(transformers.CONFIG_MAPPING.keys())
    if model.model_type not in known:
        near = str(unknown_name("model_type", model.model_type, known)).split("('nearpeak")[0].strip()
        raise SpecError(f"{model.name}: {near} transformers {transformers.__version__} must know the architecture")
    try:
        config = transformers.AutoConfig.for_model(model.model_type, **model.config)
    except Exception as error:  # each architecture checks its dimensions in its own way
        reason = " ".join(str(error).split())[:200]
        raise SpecError(f"{model.name}: transformers refuses these dimensions ({reason})") from None
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", {}))):
        for name, value in _SWITCHES.items():
            if hasattr(part, name):
                setattr(part, name, value)
        if hasattr(part, "use_cache"):
            part.use_cache = False  # a decode step asks for its cache itself
    return config


def _class(transformers: Any, model: Published, config: Any, step: str) -> tuple[Any, tuple[str, ...]]:
    """Return the model class, and what was assumed in choosing it."""
    wanted = (model.training_class, *model.class_names) if step == "train" else model.class_names
    found: Any = next((getattr(transformers, name) for name in wanted if name and hasattr(transformers, name)), None)
    notes: tuple[str, ...] = ()
    if found is None:
        found = transformers.MODEL_MAPPING.get(type(config), None)
        found = found[0] if isinstance(found, (tuple, list)) else found
        named = wanted[0] if wanted else "no class"
        notes = (f"config.json names {named}; the bare {getattr(found, '__name__', '')} is captured, without a head.",)
    if not inspect.isclass(found) or not issubclass(found, transformers.PreTrainedModel):
        raise SpecError(f"{model.name}: no class for {model.model_type!r}; name one under 'architectures'")
    chosen: Any = found
    if step == "decode" and not chosen.can_generate():
        raise SpecError(f"{model.name}: {chosen.__name__} makes no tokens one by one; use step 'forward'")
    return chosen, notes


def _facts(model: Published, cls: Any, config: Any) -> ModelFacts:
    forward: Callable[..., Any] = cls.forward
    return ModelFacts(
        name=model.name, class_name=cls.__name__, config=config, main_input=cls.main_input_name,
        parameters=frozenset(inspect.signature(forward).parameters), defaults=model.inputs,
    )  # fmt: skip


def _check_options(options: Options) -> None:
    for name in ("batch", "sequence", "kv"):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= LARGEST_OPTION:
            raise SpecError(f"--{name} {value}: give 1 to 2^40")
    if options.step not in ("forward", "train", "decode"):
        raise SpecError(f"step {options.step!r}: not known; use forward, train or decode")
    if options.kv is not None and options.step != "decode":
        raise SpecError(f"--kv {options.kv}: only a decode step has a cache; this is step {options.step!r}")


def _check_sizes(facts: ModelFacts, options: Options, specs: dict[str, InputSpec], dtype: str) -> None:
    """Refuse sizes whose tensors no machine will hold, naming the option to look at."""
    widest = max((facts.setting(n) or 1) for n in ("vocab_size", "intermediate_size", "hidden_size"))
    for name, spec in specs.items():
        count = widest if name.endswith("input_ids") else 1
        for extent in spec.shape:
            count *= extent
        if dtype_of(dtype).bytes(count) > LARGEST_TENSOR_BYTES:
            sizes = {"--batch": options.batch, "--sequence": options.sequence or 1}
            option = max(sizes, key=lambda key: sizes[key])
            raise SpecError(f"{option} {sizes[option]}: {facts.name} would need a tensor of over 2^50 bytes; give less")
    if options.kv and options.batch * options.kv * dtype_of(dtype).bytes(widest) > LARGEST_TENSOR_BYTES:
        raise SpecError(f"--kv {options.kv}: {facts.name} would need a tensor of over 2^50 bytes; give less")
