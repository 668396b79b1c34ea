"""Families of measurements: one file each reads its rows of a corpus folder as cases."""

import importlib
from pathlib import Path

from benchmarks.accuracy.family import Family


def families(only: str = "") -> tuple[Family, ...]:
    """Return all families, or the one named `only`."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_"))
    if only and only not in names:
        raise SystemExit(f"no family {only!r}; known: {', '.join(names)}")
    found: list[Family] = [importlib.import_module(f"{__name__}.{name}").FAMILY for name in names]
    return tuple(family for family in found if family.name == (only or family.name))
