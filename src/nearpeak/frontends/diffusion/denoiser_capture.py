"""Capture of one denoising step of a published image generator, without weights or downloads."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.diffusion.flux_transformer import flux, flux_inputs
from nearpeak.frontends.diffusion.unet import unet, unet_inputs
from nearpeak.frontends.huggingface.published_models import Published
from nearpeak.frontends.torch.module_capture import capture_torch, fake_world, torch_dtype

Build = Callable[[Mapping[str, Any]], Any]
"""Returns the network of some dimensions."""
Shapes = Callable[[Mapping[str, Any], int], dict[str, tuple[int, ...]]]
"""Returns the shapes of its inputs at a batch size."""

DENOISERS: Mapping[str, tuple[Build, Shapes]] = {"latent_unet": (unet, unet_inputs), "flux": (flux, flux_inputs)}
"""Networks by the model type in the files of published dimensions."""
_WIDE_INPUTS = ("rotary",)
"""Inputs that are fp32 whatever the format of the weights."""
_LIMITS = (
    "One denoising step: an image takes as many as its sampler is set to. It has no text encoder and no image decoder.",
)


def capture_denoiser(model: Published, options: CaptureOptions) -> Workload:
    """Return the workload of one denoising step, or of a training step on one.

    Raises:
        SpecError: an option that the network has no use for.
    """
    if options.step == "decode":
        raise SpecError(f"{model.name}: makes no tokens one by one; use step 'forward', one denoising step")
    if options.sequence is not None:
        raise SpecError(f"--sequence {options.sequence}: {model.name} takes image latents; leave it out")
    wanted = dtype_of(options.dtype or (not options.autocast and model.dtype) or "fp32").name
    build, shapes = DENOISERS[model.model_type]

    def inputs() -> tuple[Any, ...]:
        import torch

        tensors = {
            name: torch.empty(shape, dtype=torch_dtype("fp32" if name in _WIDE_INPUTS else wanted))
            for name, shape in shapes(model.config, options.batch_count).items()
        }
        return (), tensors, ()

    origin = {
        "kind": "architecture", "model": model.title, "dimensions": model.source, "dtype": wanted,
        "batch": str(options.batch_count),
    }  # fmt: skip
    trained = ("Its gradient starts from the mean of its outputs.",) if options.step == "train" else ()
    return capture_torch(
        lambda: build(model.config).to(torch_dtype(wanted)), inputs, dataclasses.replace(options, dtype=None),
        name=model.name, origin=origin, assumptions=(*_LIMITS, *trained),
    )  # fmt: skip


def denoiser_parameters(model: Published) -> int:
    """Return the parameters of the network; nothing is allocated."""
    with fake_world(None) as world:
        module, _ = world.prepared(model.name, lambda: DENOISERS[model.model_type][0](model.config), ((), {}))
        return sum(parameter.numel() for parameter in module.parameters())
