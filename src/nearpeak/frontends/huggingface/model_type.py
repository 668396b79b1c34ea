"""Capture of any model type that transformers knows, at its default dimensions and with all kinds of input."""

import dataclasses
import inspect
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.errors import CaptureError, MissingExtraError, SpecError
from nearpeak.frontends.huggingface.capture_retry import first_that_runs
from nearpeak.frontends.huggingface.config_parts import fitted, parts, with_layers
from nearpeak.frontends.huggingface.decode_step import decode_step
from nearpeak.frontends.huggingface.input_kinds import kinds_of
from nearpeak.frontends.huggingface.input_request import Ask
from nearpeak.frontends.huggingface.inputs_by_name import by_name
from nearpeak.frontends.huggingface.partial_models import parameters_of, runnable_parts
from nearpeak.frontends.huggingface.published_inputs import check_cache
from nearpeak.frontends.huggingface.recipes import RECIPES
from nearpeak.frontends.huggingface.repairs import UNCHANGED, Trial, repairs
from nearpeak.frontends.huggingface.settings import settings_of
from nearpeak.frontends.huggingface.transformers_package import SWITCHES, built, transformers_package
from nearpeak.frontends.torch.module_capture import capture_torch, torch_dtype

_EXPERTS = re.compile(r"(\w+_)?(num|n)_(\w+_)?experts")


def capture_model_type(name: str, options: CaptureOptions = CaptureOptions()) -> Workload:
    """Return the workload of one step of a model type, at the dimensions that its configuration has by default.

    Tokens that stand for images or sound come on top of those of the text. Of limited layers one of every kind stays.
    Without a format models with experts are taken in bf16, others in fp32.

    Args:
        name: a model type, as transformers names it.

    Raises:
        UnknownNameError: transformers has no such type.
        SpecError: the step or the default dimensions cannot be built.
        MissingExtraError: a package that the type needs is not installed.
        NotModelledError: neither the type's class nor a part of it has a forward pass.
        CaptureError: the model raised.
    """
    check_cache(options)
    if options.step == "decode":
        return _decode(name, options)
    known: dict[str, Any] = {}

    def run(trial: Trial) -> Workload:
        return _captured(name, trial, known, options)

    def changes(error: str, trial: Trial) -> Iterator[Trial]:
        if "config" not in known:  # the configuration itself could not be made
            return iter(())
        return repairs(error, trial, known["config"], known.get("parameters", ()))

    return first_that_runs(run, changes)


def _decode(name: str, options: CaptureOptions) -> Workload:
    """Return the decode step of the type's generating class: one new token per sequence."""
    settings = settings_of(name)
    _, config, notes = class_and_config(name, UNCHANGED)
    if options.layers is not None:
        config = with_layers(config, max(options.layers, settings.get("layers", 1)))
    experts = expert_counts(config)
    named = options.dtype or settings.get("dtype") or ("bf16" if experts else "fp32")
    return decode_step(name, config, options, dtype_of(named).name, notes, experts)


def _captured(name: str, trial: Trial, made: dict[str, Any], options: CaptureOptions) -> Workload:
    """Return the workload of one trial; `made` receives the configuration and the parameters of the parts."""
    settings = settings_of(name)
    cls, config, notes = class_and_config(name, trial)
    made["config"] = config
    if options.layers is not None:
        config = with_layers(config, max(options.layers, settings.get("layers", 1)))
    usual = "bf16" if expert_counts(config) else "fp32"
    wanted = torch_dtype(options.dtype or trial.dtype or settings.get("dtype") or usual)

    def build() -> Any:
        model = built(lambda: cls._from_config(config, dtype=wanted))
        runs, made["parts"] = runnable_parts(name, model)
        made["parameters"] = parameters_of(made["parts"])
        return runs

    def inputs() -> tuple[Any, ...]:
        made.update(_inputs(name, made["parts"], trial, options))
        return (), made["inputs"], made["named"]

    try:
        workload = capture_torch(
            build, inputs, dataclasses.replace(options, dtype=None, guess_sizes=True), name=name, assumptions=notes,
            expert_counts=expert_counts(config), selected_count=settings.get("selected_count"),
        )  # fmt: skip
    except CaptureError as error:
        if isinstance(error.__cause__, ImportError):
            raise MissingExtraError(f"hf:{name}: {' '.join(str(error.__cause__).split())[:160]}") from None
        raise
    shown = (f"{key} {'×'.join(map(str, getattr(value, 'shape', ())))}" for key, value in made["inputs"].items())
    origin = {
        "kind": "model type",
        "class": cls.__name__,
        "inputs": ", ".join(shown),
        "kinds": ", ".join(sorted(made["kinds"])),
        "dimensions": f"defaults of {type(config).__name__}",
    }
    return dataclasses.replace(workload, origin={**workload.origin, **origin})


def _inputs(name: str, parts_: Mapping[str, Any], trial: Trial, options: CaptureOptions) -> dict[str, Any]:
    """Return the inputs of all parts of a model by name, their kinds, and named tensors inside objects."""
    recipes = tuple(RECIPES[key] for key in RECIPES)
    inputs: dict[str, Any] = {}
    asks = {}
    for path, (part, method) in parts_.items():
        model_type = (part.config.model_type or f"{name}_{path}") if path else name
        asks[path] = Ask(
            model=part, method=method, model_type=model_type, recipes=recipes, unknown=by_name,
            hints={**settings_of(model_type).get("inputs", {}), **trial.hints}, options=options,
        )  # fmt: skip
        inputs |= {f"{path}:{key}" if path else key: value for key, value in asks[path].inputs().items()}
    return {
        "inputs": inputs, "named": [tensor for ask in asks.values() for tensor in ask.named],
        "kinds": {kind for ask in asks.values() for kind in kinds_of(ask.parameters) - {*ask.hints.get("either", ())}},
    }  # fmt: skip


def class_and_config(name: str, trial: Trial = UNCHANGED) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the model class of a type, its configuration with our settings, and notes on filled settings."""
    transformers = transformers_package()
    known = model_types()
    if name not in known:
        raise unknown_name("model type", name, known)
    long: dict[str, Any] = {}  # settings that a recipe makes, as they are too long for a file
    for recipe in (RECIPES[recipe_name] for recipe_name in RECIPES):
        long |= recipe.config() if name in recipe.model_types else {}
    try:
        config = transformers.AutoConfig.for_model(name, **settings_of(name).get("config", {}), **long)
    except Exception as error:  # each type checks its dimensions in its own way
        raise SpecError(
            f"hf:{name}: transformers refuses the dimensions ({' '.join(str(error).split())[:160]})"
        ) from None
    trial.apply(config)
    for _, part in parts(config):
        for key, value in (*SWITCHES.items(), ("use_cache", False)):
            if key in vars(part):
                setattr(part, key, value)
    return _class(transformers, name, config), config, (*fitted(config), *trial.notes())


def expert_counts(config: Any) -> frozenset[int]:
    """Return the numbers of experts in the parts of a model; PyTorch has grouped products of experts in bf16 only."""
    return frozenset(
        value
        for _, part in parts(config)
        for key, value in vars(part).items()
        if _EXPERTS.fullmatch(key) and isinstance(value, int) and value > 1
    )


@cache
def model_types() -> tuple[str, ...]:
    """Return every model type for which transformers names a model class, sorted."""
    auto = _auto()
    tables = [getattr(auto, name) for name in dir(auto) if re.fullmatch(r"MODEL_(FOR_\w+_)?MAPPING_NAMES", name)]
    return tuple(sorted({name for table in tables for name in table}))


def _auto() -> Any:
    transformers_package()
    from transformers.models.auto import modeling_auto

    return modeling_auto


def _class(transformers: Any, name: str, config: Any) -> Any:
    """Return the class of the bare model, else the first with a head."""
    auto, wanted = _auto(), settings_of(name).get("class")
    if wanted:
        return getattr(transformers, wanted)
    heads = sorted(table for table in dir(auto) if re.fullmatch(r"MODEL_FOR_\w+_MAPPING", table))
    for table in ("MODEL_MAPPING", *heads):
        try:
            cls = getattr(auto, table).get(type(config), None)
        except ValueError:  # named, but not there
            continue
        cls = cls[0] if isinstance(cls, (tuple, list)) and cls else cls
        if inspect.isclass(cls):
            return cls
    raise MissingExtraError(
        f"hf:{name}: transformers {transformers.__version__} has no model class for it that can be loaded"
    )
