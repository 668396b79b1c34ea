"""From a case to kernels: one file per family of operators; what has none streams through memory."""

import importlib
from functools import lru_cache
from pathlib import Path

from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.predict._form import USUAL, Setting
from nearpeak.registry import Registry
from nearpeak.sim.lowering._lowering import Lowering
from nearpeak.sim.work import Node

__all__ = ["LOWERINGS", "kernels_of"]


def _load(stem: str) -> Lowering:
    found: Lowering = importlib.import_module(f"{__name__}.{stem}").LOWERING
    return found


LOWERINGS: "Registry[Lowering]" = Registry(
    kind="lowering", folder=Path(__file__).parent, suffix=".py", load=_load, group="nearpeak.lowerings"
)


def kernels_of(case: Case, target: Target, setting: Setting = USUAL) -> tuple[Node, ...]:
    """Return the kernels and copies of a case, to run one after the other; none where it does nothing.

    Raises:
        NotModelledError: the device states no rate, or nothing was measured that is like it.
    """
    own, fallback = _by_op()
    return own.get((case.op, case.phase), fallback).kernels(case, target, setting)


@lru_cache
def _by_op() -> tuple[dict[tuple[str, str], Lowering], Lowering]:
    files = [LOWERINGS[name] for name in LOWERINGS]
    return {(op, phase): one for one in files for op in one.ops for phase in one.phases}, next(
        one for one in files if not one.ops
    )
