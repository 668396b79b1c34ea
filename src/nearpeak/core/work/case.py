"""A test case: one operator with its axes, number formats and attributes, identified by a digest."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from nearpeak.base.canonical_json import digest
from nearpeak.errors import SpecError

Test = TypeVar("Test", bound=Callable[..., Any])
SCHEMA_VERSION = 1
# 1: op, phase, axes, dtypes, attributes; defaults written out.


@dataclass(frozen=True, kw_only=True)
class Case:
    """A computation, without its origin or call count."""

    op: str
    """Operator: the file stem."""
    phase: str
    """`forward` or `backward` of the operator."""
    axes: tuple[tuple[str, int], ...]
    """Extents by name, in the order of the operator's rule, defaults written out."""
    dtypes: tuple[tuple[str, str], ...]
    """Canonical number formats by name."""
    attributes: tuple[tuple[str, str | bool], ...] = ()
    """Choices by name."""
    memory: tuple[tuple[str, int | str], ...] = ()
    """How inputs lie in memory where they are not dense from an aligned address: `NAME.layout` and `NAME.offset`, in
    bytes; in order of name."""

    def __hash__(self) -> int:
        """Return a hash that is computed once: a step asks for it at every call, so that it is kept as it can be."""
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = hash((self.op, self.phase, self.axes, self.dtypes, self.attributes, self.memory))
            self.__dict__["_hash"] = known
        return known

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and files, without the hash, which differs between processes."""
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    @cached_property
    def digest(self) -> str:
        """SHA-256 over everything that the case is.

        >>> Case(op="gemm", phase="forward", axes=(("m", 1),), dtypes=(("dtype", "bf16"),)).digest[:12]
        'e4b84fdcd5e0'
        """
        return digest({"schema": SCHEMA_VERSION, **self.record()})

    def __call__(self, test: Test) -> Test:
        """Return `test`, marked to run on this case: `@nearpeak.case(...)` above a test of `nearpeak_measure`.

        >>> one = Case(op="fill", phase="forward", axes=(), dtypes=())
        >>> one(lambda: None).nearpeak_cases == (one,)
        True

        Raises:
            SpecError: it is no function: a class has many tests, and methods of others.
        """
        if isinstance(test, type):
            raise SpecError(
                f"@nearpeak.case: {test.__name__} is a class, whose tests it does not reach; put it above each test "
                "that takes nearpeak_measure"
            )
        test.nearpeak_cases = (self, *getattr(test, "nearpeak_cases", ()))  # type: ignore[attr-defined]  # read by pytest
        return test

    def record(self) -> dict[str, object]:
        """Return the case as plain data, as stored and as printed in JSON lines."""
        flat = dict((*self.axes, *self.dtypes, *self.attributes, *self.memory))
        return {"op": self.op, "phase": self.phase, **flat}

    def label(self) -> str:
        """Return the case in one short line for people.

        >>> Case(op="gemm", phase="forward", axes=(("m", 8), ("n", 4)), dtypes=(("dtype", "bf16"),)).label()
        'gemm m=8 n=4 bf16'
        """
        dtype = dict(self.dtypes).get("dtype", "")
        axes = " ".join(f"{name}={extent}" for name, extent in self.axes)
        attributes = " ".join(f"{k}={v}" for k, v in self.attributes if v not in (False, "", "none"))
        back = "" if self.phase == "forward" else " backward"
        return " ".join(part for part in (f"{self.op}{back}", axes, attributes, dtype, self.lies()) if part)

    def lies(self) -> str:
        """Return the memory layout of its inputs in words; empty where all are dense from an aligned address."""
        return " ".join(f"{name}={value}" for name, value in self.memory)
