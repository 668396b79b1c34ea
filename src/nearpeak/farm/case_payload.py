"""JSON payload of a job's case: operator, axes, number formats and target."""

from typing import TYPE_CHECKING

from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.farm.kinds import Payload


def case_in(payload: "Payload", kind: str) -> Case:
    """Return the case of a payload.

    Raises:
        SpecError: it is none.
    """
    from nearpeak.ops import case_of

    try:
        return case_of(payload["case"])
    except SpecError as error:
        raise SpecError(f"{kind}: {error}") from None


def check_target(name: str) -> None:
    """Refuse a target that is not known."""
    from nearpeak.targets import target_of

    target_of(name)
