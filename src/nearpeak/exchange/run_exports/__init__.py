"""Registry of formats in which stored runs leave nearpeak: one module per format, named by its stem."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nearpeak.base.registry import Registry
from nearpeak.core.history.stored_run import RunRecord
from nearpeak.core.runs.estimate import median_ranks, quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunExport:
    """A text format of measurements that other tools read."""

    name: str
    """The file stem."""
    title: str
    """Format and readers, for people."""
    text_of: Callable[[Sequence[RunRecord]], str]
    """The file for some runs; a SpecError says which figure the format cannot state."""


EXPORTS: Registry[RunExport] = Registry.of_modules(
    "EXPORT", kind="export format", package=__name__, file=__file__, group="nearpeak.run_exports"
)
"""All formats by name; adding one is adding a file with an `EXPORT`."""


def median_and_ends(values: Sequence[float], unit: str) -> tuple[float, ...]:
    """Return the median of samples and the ends of its 95 % interval, which of one sample are that sample.

    Seconds have the seven digits that a store keeps of them.

    >>> median_and_ends([3.0, 1.00000001, 2.0], "s")
    (2.0, 1.0, 3.0)
    """
    ordered = sorted(values)
    figures = (quantile(ordered, 0.5), *(ordered[rank] for rank in median_ranks(len(ordered))))
    return tuple(float(f"{figure:.7g}") for figure in figures) if unit == "s" else figures
