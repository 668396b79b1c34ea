"""Difference of two suites: cases, call counts and sources."""

from dataclasses import dataclass

from nearpeak.core.answers.suite import Source, Suite, SuiteCase


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteDifference:
    """From an old suite to a new one."""

    added: tuple[SuiteCase, ...]
    """Cases of the new suite alone."""
    removed: tuple[SuiteCase, ...]
    """Cases of the old suite alone."""
    changed: tuple[tuple[SuiteCase, SuiteCase], ...]
    """Cases of both that are called another number of times, asked for by other rules, or run in one suite alone."""
    same_count: int
    """Cases that are the same in both."""
    added_sources: tuple[Source, ...]
    """Sources of the new suite alone."""
    removed_sources: tuple[Source, ...]
    """Sources of the old suite alone."""


def difference(old: Suite, new: Suite) -> SuiteDifference:
    """Return what is new, gone or changed from `old` to `new`; cases are compared by digest, sources by contents.

    >>> from nearpeak.suites.directed_cases import directed_suite
    >>> a, b = directed_suite("fill"), directed_suite("softmax")
    >>> len(difference(a, a).added), len(difference(a, b).added) == len(b.cases)
    (0, True)
    """
    before, after = ({entry.case.digest: entry for entry in suite.cases} for suite in (old, new))
    both = [(before[key], entry) for key, entry in after.items() if key in before]
    changed = tuple(pair for pair in both if pair[0] != pair[1])
    known, now = ({entry.digest for entry in suite.sources} for suite in (old, new))
    return SuiteDifference(
        added=tuple(entry for key, entry in after.items() if key not in before),
        removed=tuple(entry for key, entry in before.items() if key not in after),
        changed=changed, same_count=len(both) - len(changed),
        added_sources=tuple(entry for entry in new.sources if entry.digest not in known),
        removed_sources=tuple(entry for entry in old.sources if entry.digest not in now),
    )  # fmt: skip
