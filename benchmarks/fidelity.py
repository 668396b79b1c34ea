"""Whether captures on tensors without memory see what a real run dispatches, and say where each call comes from."""

from collections.abc import Iterator

from benchmarks._figures import Figure

FIGURES = ("models_that_differ_from_a_real_run", "calls_with_module_and_line")
LEAST_SHARE = 0.99


def measure() -> Iterator[Figure]:
    """Yield the models whose training step dispatches other calls when run for real, and the attributed share."""
    from benchmarks._real_run import differences
    from benchmarks._small_models import small_models
    from nearpeak.core.work.capture_options import CaptureOptions
    from nearpeak.frontends.torch.module_capture import capture_torch

    models = small_models()
    differing = sum(bool(differences(model)) for model in models)
    yield Figure(
        name="models_that_differ_from_a_real_run", value=differing, unit=f"of {len(models)} models", bar="0",
        passed=differing == 0, seed=0,
    )  # fmt: skip
    steps = [
        capture_torch(model.build, model.inputs, CaptureOptions(step="train"), name=model.name) for model in models
    ]
    calls = [call for step in steps for call in step.calls if call.phase in ("forward", "backward")]
    share = sum(bool(call.module and call.source) for call in calls) / len(calls)
    yield Figure(
        name="calls_with_module_and_line", value=share, unit=f"of {len(calls)} calls, {len(models)} models",
        bar=f">= {LEAST_SHARE}", passed=share >= LEAST_SHARE,
    )  # fmt: skip
