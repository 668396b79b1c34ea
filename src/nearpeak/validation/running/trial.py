"""One implementation on one case: inputs, expected results and runs that all checks share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError
from nearpeak.ops import OPS
from nearpeak.validation.comparison.ties import with_ties_broken
from nearpeak.validation.inputs.rounds import rounds_of
from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats
from nearpeak.validation.running.implementation_run import (
    LEAST_ALIGNMENT_BYTES,
    Implementation,
    RunRecord,
    imported_torch,
    run,
)

LEAST_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the checks look at."""

    case: Case
    """Case of the forward pass."""
    implementation: Implementation
    """What is under test."""
    seed: int
    """Seed of all inputs."""
    gradient: Case | None = None
    """The case of the gradient that is asked for, which names those that are due; none where a forward pass is."""

    @cached_property
    def draws(self) -> tuple[Draw, ...]:
        """The question of each round.

        Raises:
            MeasureError: fewer than two are left.
        """
        draws = rounds_of(self.case, self.seed)
        if len(draws) < LEAST_ROUNDS:
            raise MeasureError(f"{self.case.label()}: the reference is defined for {len(draws)} kinds of inputs only")
        return draws

    @cached_property
    def runs(self) -> tuple[RunRecord, ...]:
        """What the implementation answered to each question, at another alignment each time.

        The oracle is evaluated after the implementation on nothing that the implementation could have seen.
        """
        return tuple(self.answer(draw, shift=number) for number, draw in enumerate(self.draws))

    def answer(self, draw: Draw, *, poison: str = "nan", shift: int = 0) -> RunRecord:
        """Return what the implementation answers to `asked`, its tensors moved by `shift` alignments."""
        ran = run(
            self.implementation,
            draw.tensors,
            draw.arguments,
            outputs=self.templates(draw),
            poison=poison,
            shift_bytes=shift * max(OPS[self.case.op].numerics.alignment_bytes, LEAST_ALIGNMENT_BYTES),
        )
        return self.with_ties_broken(
            ran, draw.tensors, {name: expected.values for name, expected in draw.expected.items()}, draw
        )

    def with_ties_broken(
        self, ran: RunRecord, tensors: Mapping[str, Any], wanted: Mapping[str, Any], draw: Draw | None = None
    ) -> RunRecord:
        """Return what was answered, positions that are as right called as in `wanted`."""
        if ran.error:
            return ran
        return replace(ran, outputs=with_ties_broken(self.case, tensors, ran.outputs, wanted, draw))

    def templates(self, draw: Draw) -> dict[str, Any]:
        """Return tensors of the shapes and formats that the outputs must have."""
        return templates_of(draw)


def templates_of(draw: Draw) -> dict[str, Any]:
    """Return tensors of the shapes and formats that the outputs must have."""
    torch, formats = imported_torch(), declared_formats(draw.case)
    return {
        name: torch.empty(np.shape(expected.values), dtype=formats[name]) for name, expected in draw.expected.items()
    }
