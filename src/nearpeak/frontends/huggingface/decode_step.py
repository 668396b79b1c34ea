"""Capture of a decode step of a model type: one new token per sequence with a filled KV cache."""

import dataclasses
import inspect
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.architecture import ModelPlan
from nearpeak.frontends.huggingface.published_inputs import ModelFacts
from nearpeak.frontends.torch.module_capture import capture_torch

_ENCODED = ("SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ")
_ALONE = ("CAUSAL_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM")


def decode_step(
    name: str, config: Any, options: CaptureOptions, dtype: str, notes: tuple[str, ...], experts: frozenset[int]
) -> Workload:
    """Return the workload of one new token per sequence.

    Args:
        experts: how many experts the configuration says that there are, and how many each token uses.

    Raises:
        SpecError: no class of the type makes tokens, or an option does not fit.
    """
    cls = _generating_class(name, config)
    if getattr(config, "is_decoder", None) is False and not getattr(config, "is_encoder_decoder", False):
        config.is_decoder = True  # an encoder by default, whose class for text generation needs to be told
    facts = ModelFacts(
        name=f"hf:{name}", class_name=cls.__name__, config=config, main_input=cls.main_input_name,
        parameters=frozenset(inspect.signature(cls.forward).parameters),
    )  # fmt: skip
    plan = ModelPlan(cls=cls, facts=facts, options=options, dtype=dtype)
    origin = {
        "kind": "model type", "class": cls.__name__, "batch": str(options.batch_count),
        "dimensions": f"defaults of {type(config).__name__}",
    }  # fmt: skip
    workload = capture_torch(
        plan.build, plan.inputs, dataclasses.replace(options, dtype=None, guess_sizes=True), name=name, origin=origin,
        assumptions=(*notes, *plan.notes), expert_counts=experts,
    )  # fmt: skip
    return dataclasses.replace(workload, origin={**workload.origin, "inputs": plan.described})


def _generating_class(name: str, config: Any) -> Any:
    """Return the class of a type that makes tokens one by one."""
    from transformers.models.auto import modeling_auto

    for kind in (*_ENCODED, *_ALONE) if getattr(config, "is_encoder_decoder", False) else (*_ALONE, *_ENCODED):
        table = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING", {})
        classes = table.get(type(config), None) if table else None
        chosen: Any = classes[0] if isinstance(classes, (tuple, list)) and classes else classes
        if inspect.isclass(chosen) and getattr(chosen, "can_generate", bool)():
            return chosen
    raise SpecError(f"hf:{name}: transformers names no class of it that makes tokens one by one; use step 'forward'")
