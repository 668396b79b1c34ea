"""Check of `nearpeak farm submit` options: refusal of those that a job kind does not read or that contradict."""

from collections.abc import Collection, Mapping

from nearpeak.errors import SpecError

_ALL = frozenset({"store", "kind", "words", "reason", "owner", "trigger", "key", "json"})
_ALONE = frozenset({"device", "model"})
_ARMS = frozenset({"against", "rounds", "effect", "launches"})
_TIMED = frozenset({"budget", "limit", "cache", "threads", "memory", "no_check"})
READS: Mapping[str, frozenset[str]] = {
    "measure": _ALL | _ALONE | _ARMS | _TIMED | {"runner", "repository", "branch"},
    "command": _ALL | _ALONE | _ARMS | {"limit", "memory", "folder"},
    "predict": _ALL | {"target", "batch"},
    "simulate": _ALL | {"target", "batch"},
    "capture": _ALL | {"batch"},
    "jobs": _ALL | _ALONE | {"batch"},
}
"""Options by kind, by the names of the function's parameters; kinds that are not here read all."""
_WITH_ARMS = frozenset({"rounds", "effect"})


def check_options(kind: str, used: Collection[str]) -> None:
    """Refuse options that the kind does not read, and those that contradict each other.

    Args:
        used: names of the options on the command line.

    >>> check_options("predict", ["target", "batch"])
    """
    read = READS.get(kind, frozenset(used))
    for name in sorted(used):
        if name not in read:
            kinds = [job_kind for job_kind, names in READS.items() if name in names]
            raise SpecError(f"{_option(name)}: is for {', '.join(kinds)}; a job of kind {kind} does not read it")
    if "against" in used and "launches" in used:
        raise SpecError("--launches: is for what is measured by itself; with --against the number of --rounds counts")
    alone = sorted(_WITH_ARMS & set(used))
    if alone and "against" not in used:
        raise SpecError(f"{_option(alone[0])}: is for a comparison; name what to compare with by --against")


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")
