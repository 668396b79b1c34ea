"""The capture behind `capture` and `analyze`: options in, workload out, with a sign of life."""

from nearpeak.cli._shared import axes_of, bytes_of, progress, shapes_of
from nearpeak.core.workload import Workload


def workload_of(
    model: str,
    *,
    step: str,
    batch: int | None,
    sequence: int | None,
    kv: int | None,
    layers: int | None,
    dtype: str | None,
    autocast: str | None,
    fusion: str | None,
    guess_sizes: bool,
    evaluation: bool,
    shapes: list[str],
    axes: list[str],
    timeout_s: float,
    memory: str,
) -> Workload:
    """Return the workload of the model that the options describe."""
    from nearpeak import api

    with progress(f"capturing {model} (its code runs in a child process)"):
        return api.capture(
            model,
            step=step,
            batch=batch,
            sequence=sequence,
            kv=kv,
            layers=layers,
            dtype=dtype,
            autocast=autocast,
            fusion=fusion,
            guess_sizes=guess_sizes,
            training=False if evaluation else None,
            shapes=shapes_of(shapes),
            axes=axes_of(axes),
            timeout_s=timeout_s,
            memory_bytes=bytes_of(memory),
        )
