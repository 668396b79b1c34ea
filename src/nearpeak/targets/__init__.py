"""The devices: one TOML each, with a source for every figure; partitions, power modes and edits derive from them."""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from nearpeak.core.target import Target
from nearpeak.errors import SpecError
from nearpeak.registry import Registry, unknown_name
from nearpeak.targets._derive import edited, partitioned
from nearpeak.targets._parse import parse_target

__all__ = ["CPU", "TARGETS", "load_target", "target_of", "user_folder"]

CPU = "cpu"
"""Name of the machine that nearpeak runs on, whose roofs `nearpeak calibrate roofs` measures."""

_FOLDER = Path(__file__).parent


def _raw(name: str) -> dict[str, Any]:
    return _read(_FOLDER / f"{name}.toml")


TARGETS: Registry[Mapping[str, Any]] = Registry(
    kind="target", folder=_FOLDER, suffix=".toml", load=_raw, group="nearpeak.targets"
)
"""All device files by name, as plain data."""


def user_folder() -> Path:
    """Return the folder that holds the user's own targets and calibrations."""
    return Path(platformdirs.user_data_dir("nearpeak"))


def target_of(name: str, edits: Sequence[str] = ()) -> Target:
    """Return the target called `name`.

    Args:
        name: a device (`h200_sxm`), a partition or power mode of it (`h200_sxm:1g.18gb`), `cpu`, or the path
            of a TOML file of your own.
        edits: what-if changes such as `dram.bandwidth="8 TB/s"`.

    Raises:
        UnknownNameError: no such target; the closest names are listed.
        SpecError: an edit or the file is malformed or contradicts itself.

    >>> target_of("h100_sxm").sm_count
    132
    """
    return _target_of(name, tuple(edits))


@cache
def _target_of(name: str, edits: tuple[str, ...]) -> Target:
    stem, _, part = name.partition(":") if not name.endswith(".toml") else (name, "", "")
    raw = _raw_of(stem)
    raw = partitioned(raw, stem, part) if part else raw
    raw = edited(raw, edits)
    return parse_target("+".join((name if part or not stem.endswith(".toml") else Path(name).stem, *edits)), raw)


def load_target(path: Path) -> Target:
    """Return the target that the TOML file at `path` states."""
    return parse_target(path.stem, _read(path))


def _raw_of(stem: str) -> dict[str, Any]:
    if stem.endswith(".toml"):
        return _read(Path(stem))
    own = user_folder() / "targets" / f"{stem}.toml"
    if own.exists():
        return _read(own)
    if stem == CPU:
        raise SpecError("target 'cpu': its roofs are not measured yet; run 'nearpeak calibrate roofs' (under a minute)")
    if stem not in TARGETS:
        raise unknown_name("target", stem, (*TARGETS.names(), CPU))
    return dict(TARGETS[stem])


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"target file {path}: not found") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"target file {path}: not TOML: {error}") from None
