"""States of a performance alert and the transitions between them."""

from nearpeak.errors import SpecError

_OPEN = ("new", "verifying", "active", "acknowledged", "fixing", "fix-pending-verification")
_EXITS = ("expected", "invalid-noise", "infra", "wontfix", "backed-out", "duplicate", "went-away")
STATUSES = (*_OPEN, "fixed", *_EXITS)
"""All states; those of the second half are ends."""
CLOSED = frozenset({"fixed", *_EXITS})
"""States in which nobody has anything left to do; an alert that comes back is active again."""
_STEPS = {
    "new": ("verifying", "active"),
    "verifying": ("active", "new"),
    "active": ("verifying", "acknowledged", "fixing", "fix-pending-verification"),
    "acknowledged": ("verifying", "active", "fixing", "fix-pending-verification"),
    "fixing": ("active", "acknowledged", "fix-pending-verification"),
    "fix-pending-verification": ("active", "fixing", "fixed"),
}


def next_statuses(status: str) -> tuple[str, ...]:
    """Return the states that may follow `status`.

    >>> "fixed" in next_statuses("fix-pending-verification"), "fixed" in next_statuses("new")
    (True, False)
    >>> next_statuses("wontfix")
    ('active',)
    """
    check_status(status)
    return ("active",) if status in CLOSED else (*_STEPS[status], *_EXITS)


def check_step(before: str, after: str) -> None:
    """Refuse a step that an alert cannot take.

    Raises:
        SpecError: `after` is unknown, or does not follow `before`.
    """
    check_status(after)
    if after not in next_statuses(before):
        raise SpecError(f"alert: {after} does not follow {before}; what may: {', '.join(next_statuses(before))}")


def check_status(status: str) -> None:
    """Refuse a state that does not exist."""
    if status not in STATUSES:
        raise SpecError(f"alert: status {status!r} is not known; there are {', '.join(STATUSES)}")
