"""Registry of job kinds: one module per kind, and plug-ins by the entry-point group `nearpeak.job_kinds`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.base.registry import Registry
from nearpeak.core.work.case import Case
from nearpeak.errors import SpecError

__all__ = ["KINDS", "Kind", "case_in", "need"]
Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A sort of job."""

    name: str
    """Stem of its file."""
    pool: str
    """`device`: alone on a device, in a fresh process; `slot`: a share of a host's cores will do."""
    check: Callable[[Payload], None]
    """Refuses a payload that cannot run, when it is submitted."""
    run: Callable[[Payload], Mapping[str, Any]]
    """Returns the result as JSON, in a process of its own."""
    preload: tuple[str, ...] = ()
    """Modules that the process of a slot imports before its jobs are known."""
    limit_s: Callable[[Payload], float] = lambda _: 600.0
    """Wall time after which the process is ended."""
    memory_bytes: Callable[[Payload], int | None] = lambda _: 16 << 30
    """Memory that the process may take; none where a driver maps more than there is."""
    cost_s: Callable[[Payload], float] = lambda _: 0.05
    """How long it is expected to take where nothing like it ran before."""


def need(payload: Payload, kind: str, **types: type | tuple[type, ...]) -> None:
    """Refuse a payload without an entry, with one of another type, or with one that nobody reads.

    A type `(str, type(None))` may be absent.

    >>> need({"target": "h100_sxm"}, "predict", target=str)
    """
    for name, wanted in types.items():
        kinds = wanted if isinstance(wanted, tuple) else (wanted,)
        optional = type(None) in kinds
        if name not in payload and not optional:
            raise SpecError(f"{kind}: the payload has no {name!r}; it needs {', '.join(types)}")
        value = payload.get(name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise SpecError(f"{kind}: {name!r} is {value!r}, of the wrong type")
    unknown = sorted(set(payload) - set(types))
    if unknown:
        raise SpecError(f"{kind}: {unknown[0]!r} is not known; there are {', '.join(types)}")


def case_in(payload: Payload, kind: str) -> Case:
    """Return the case of a payload.

    Raises:
        SpecError: the payload states none.
    """
    from nearpeak.ops import case_of

    try:
        return case_of(payload["case"])
    except SpecError as error:
        raise SpecError(f"{kind}: {error}") from None


KINDS: Registry[Kind] = Registry.of_modules(
    "KIND", kind="kind of job", package=__name__, file=__file__, group="nearpeak.job_kinds"
)
"""All kinds by name; adding one is adding a file that ends with `KIND = Kind(...)`."""
