"""Mutation testing: wrong implementations made from PyTorch's, and the share of them that a case detects."""

from collections.abc import Iterator
from dataclasses import dataclass

from nearpeak.core.work.case import Case
from nearpeak.validation.checks import CHECKS
from nearpeak.validation.mutants.equivalence import PROVED, reason_for_equivalence
from nearpeak.validation.mutants.family_mutants import of_families
from nearpeak.validation.mutants.function_mutants import of_functions
from nearpeak.validation.mutants.gradient_mutants import of_gradients
from nearpeak.validation.mutants.input_mutants import of_inputs
from nearpeak.validation.mutants.mutant import Mutant
from nearpeak.validation.mutants.output_mutants import of_outputs
from nearpeak.validation.mutants.window_mutants import of_windows
from nearpeak.validation.running.implementation_run import Implementation
from nearpeak.validation.running.trial import Trial

__all__ = ["Mutant", "MutationScore", "killed_by", "mutants_of", "mutation_score", "reason_for_equivalence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationScore:
    """The mutants of an operator that a case kills, does not kill, or cannot kill."""

    killed: tuple[str, ...]
    """Mutants that a check rejected."""
    survived: tuple[str, ...]
    """Mutants that passed without a proof that they are equivalent."""
    equivalent: tuple[tuple[str, str], ...]
    """Mutants that give the same results for all inputs, with the proof."""

    @property
    def score_ratio(self) -> float:
        """Killed over applicable mutants; 1 where none applies."""
        applicable = len(self.killed) + len(self.survived)
        return len(self.killed) / applicable if applicable else 1.0


def mutants_of(case: Case) -> Iterator[Mutant]:
    """Yield every mutant that applies to the operator of `case`, a case of a forward pass."""
    yield from of_outputs(case)
    yield from of_inputs(case)
    yield from of_families(case)
    yield from of_functions(case)
    yield from of_windows(case)
    yield from of_gradients(case)


def killed_by(case: Case, implementation: Implementation, *, seed: int) -> str:
    """Return the first check that rejects `implementation`; empty where it passes them all.

    V0 judges the case, not the implementation, and is left out.
    """
    trial = Trial(case=case, implementation=implementation, seed=seed)
    results = (check(trial) for check in CHECKS[1:])
    return next((result.check for result in results if result.failed), "")


def mutation_score(case: Case, *, seed: int, of_gradient: bool | None = None) -> MutationScore:
    """Return which mutants of the operator the case kills.

    Args:
        of_gradient: score only mutants of the gradient, or only the others; all by default.

    >>> from nearpeak.ops import case
    >>> mutation_score(case("softmax", rows=4, columns=16, dtype="fp32"), seed=0).score_ratio
    1.0
    """
    killed, survived, equivalent = [], [], []
    for mutant in mutants_of(case):
        if of_gradient not in (None, mutant.of_gradient):
            continue
        if killed_by(case, mutant.implementation(), seed=seed):
            killed.append(mutant.name)
            continue
        reason = reason_for_equivalence(case, mutant, seed=seed)
        proved = reason.startswith(PROVED)
        equivalent.append((mutant.name, reason)) if proved else survived.append(mutant.name)
    return MutationScore(killed=tuple(killed), survived=tuple(survived), equivalent=tuple(equivalent))
