"""Cases in payloads: a record of an operator with its axes, and a target."""

from typing import TYPE_CHECKING, Any

from nearpeak.core.case import Case
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.farm.kinds import Payload


def case_in(payload: "Payload", kind: str) -> Case:
    """Return the case of a payload.

    Raises:
        SpecError: it is none.
    """
    from nearpeak.ops import OPS

    record: dict[str, Any] = dict(payload["case"])
    if not isinstance(record.get("op"), str) or "phase" not in record:
        raise SpecError(f"{kind}: 'case' needs op, phase and the operator's axes")
    return OPS[record.pop("op")].case(record.pop("phase"), **record)


def check_target(name: str) -> None:
    """Refuse a target that is not known."""
    from nearpeak.targets import target_of

    target_of(name)
