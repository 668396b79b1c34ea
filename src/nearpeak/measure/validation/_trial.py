"""One implementation on one case: questions and runs that the checks share, each made once."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.errors import MeasureError
from nearpeak.measure.validation._oracle import Question, contract_of, declared_formats, ranked
from nearpeak.measure.validation._rounds import rounds_of
from nearpeak.measure.validation._run import LEAST_ALIGNMENT_BYTES, Implementation, Ran, run
from nearpeak.ops import OPS

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

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The question of each round.

        Raises:
            MeasureError: fewer than two are left.
        """
        found = rounds_of(self.case, self.seed)
        if len(found) < LEAST_ROUNDS:
            raise MeasureError(f"{self.case.label()}: the reference is defined for {len(found)} kinds of inputs only")
        return found

    @cached_property
    def runs(self) -> tuple[Ran, ...]:
        """What the implementation answered to each question, at another alignment each time.

        The oracle is evaluated after the implementation on nothing that the implementation could have seen.
        """
        return tuple(self.answer(asked, shift=number) for number, asked in enumerate(self.questions))

    def answer(self, asked: Question, *, poison: str = "nan", shift: int = 0) -> Ran:
        """Return what the implementation answers to `asked`, its tensors moved by `shift` alignments."""
        ran = run(
            self.implementation,
            asked.tensors,
            asked.arguments,
            outputs=self.templates(asked),
            poison=poison,
            shift_bytes=shift * max(OPS[self.case.op].numerics.alignment_bytes, LEAST_ALIGNMENT_BYTES),
        )
        return self.settled(ran, asked.tensors, {name: one.values for name, one in asked.expected.items()})

    def settled(self, ran: Ran, tensors: Mapping[str, Any], wanted: Mapping[str, Any]) -> Ran:
        """Return what was answered, positions of equal values called as in `wanted`: any of them is right."""
        picks = contract_of(self.case).picks
        if not picks or ran.error:
            return ran
        outputs = dict(ran.outputs)
        for name in picks.keys() & outputs.keys() & wanted.keys():
            outputs[name] = picked(outputs[name], ranked(self.case, tensors, picks[name]), wanted[name])
        return replace(ran, outputs=outputs)

    def templates(self, asked: Question) -> dict[str, Any]:
        """Return tensors of the shapes and formats that the outputs must have."""
        import torch

        formats = declared_formats(self.case)
        return {name: torch.empty(np.shape(one.values), dtype=formats[name]) for name, one in asked.expected.items()}


def picked(positions: Any, values: Any, wanted: Any) -> Any:
    """Return `positions` in the last dimension of `values`, those of values equal to that of the wanted one as wanted.

    A row that names a position twice stays as it is: one of the two is missing.

    >>> import torch
    >>> values = torch.tensor([[3.0, 5.0, 5.0]])
    >>> picked(torch.tensor([[2, 0]]), values, [[1, 0]]), picked(torch.tensor([[2, 2]]), values, [[1, 2]])
    (tensor([[1, 0]]), tensor([[2, 2]]))
    """
    import torch

    wanted = torch.as_tensor(np.array(wanted)).to(positions.dtype)
    if positions.shape != wanted.shape:
        return positions
    flat = positions.dim() < values.dim()
    got, want = (one[..., None] if flat else one for one in (positions, wanted))
    inside = got.clamp(0, values.shape[-1] - 1).long()
    ordered = got.sort(-1).values
    twice = (ordered[..., 1:] == ordered[..., :-1]).any(-1, keepdim=True)
    same = (values.gather(-1, inside) == values.gather(-1, want.long())) & (inside == got) & ~twice
    return torch.where(same, want, got).view(positions.shape)
