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
    """An implementation on a case, with the draws and runs that the checks share, each made once."""

    case: Case
    """Case of the forward pass."""
    implementation: Implementation
    """The implementation under test."""
    seed: int
    """Seed of all inputs."""
    gradient: Case | None = None
    """The validated case of the gradient, which names the required gradients; none for a forward pass."""

    @cached_property
    def draws(self) -> tuple[Draw, ...]:
        """The inputs and expected results of each round.

        Raises:
            MeasureError: the reference is defined for fewer than two rounds.
        """
        draws = rounds_of(self.case, self.seed)
        if len(draws) < LEAST_ROUNDS:
            raise MeasureError(f"{self.case.label()}: the reference is defined for {len(draws)} kinds of inputs only")
        return draws

    @cached_property
    def runs(self) -> tuple[RunRecord, ...]:
        """The implementation's run on each draw, at a different alignment each time.

        The oracle gets tensors that the implementation cannot have changed.
        """
        return tuple(self.answer(draw, shift=number) for number, draw in enumerate(self.draws))

    def answer(self, draw: Draw, *, poison: str = "nan", shift: int = 0) -> RunRecord:
        """Return the implementation's run on `draw`, with its tensors moved by `shift` alignments."""
        ran = run(
            self.implementation,
            draw.tensors,
            draw.arguments,
            outputs=self.templates(draw),
            poison=poison,
            shift_bytes=shift * max(OPS[self.case.op].tolerance.alignment_bytes, LEAST_ALIGNMENT_BYTES),
        )
        return self.with_ties_broken(
            ran, draw.tensors, {name: expected.values for name, expected in draw.expected.items()}, draw
        )

    def with_ties_broken(
        self, ran: RunRecord, tensors: Mapping[str, Any], wanted: Mapping[str, Any], draw: Draw | None = None
    ) -> RunRecord:
        """Return the run with ties broken as in `wanted`."""
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
