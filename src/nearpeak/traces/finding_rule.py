"""Schema of a finding rule: identifier, needed evidence, applicability and search function."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nearpeak.core.traces.finding_report import Abstained, TraceFinding
from nearpeak.traces.finding_scene import Scene


def always(_: Scene) -> bool:
    """Apply a rule to every trace."""
    return True


def nothing(_: Scene) -> Iterable[int]:
    """Clear no item."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A kind of finding."""

    id: str
    """Name in the catalogue."""
    look: Callable[[Scene], Iterable[TraceFinding | Abstained]]
    """Yields findings of a trace that says all that is needed."""
    needs: tuple[str, ...] = ()
    """Kinds of evidence without which no verdict is possible, as in `Executed.missing`."""
    judges: tuple[str, ...] = ()
    """Parts of a step that it judges where it has all that it needs."""
    clears: Callable[[Scene], Iterable[int]] = nothing
    """Items of which it knows that they take as long as they should, where it has all that it needs or by name."""
    concerns: Callable[[Scene], bool] = always
    """Whether there is anything to look at: where not, nothing is found and missing evidence is no loss."""

    def __call__(self, scene: Scene) -> Iterable[TraceFinding | Abstained]:
        """Return the findings of a trace, or an abstention that names the missing evidence."""
        if not self.concerns(scene):
            return ()
        missing = scene.abstention(self.id, *self.needs)
        return self.look(scene) if missing is None else (missing,)
