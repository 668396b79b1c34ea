"""The catalogue of devices: one TOML file each, with a source for every figure."""

import difflib
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from nearpeak.base.folders import data_folder
from nearpeak.base.input_files import reading, toml_of_file
from nearpeak.base.registry import Registry, unknown_name
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.targets.derivation import based, edited, partitioned
from nearpeak.targets.device_file import parse_target

__all__ = ["CPU", "TARGETS", "shipped_target", "target_of", "user_folder"]

CPU = "cpu"
"""Name of the machine that nearpeak runs on, whose roofs `nearpeak calibrate roofs` measures."""

_FOLDER = Path(__file__).parent


def _raw(name: str) -> dict[str, Any]:
    return toml_of_file(_FOLDER / f"{name}.toml")


TARGETS: Registry[Mapping[str, Any]] = Registry(
    kind="target", files=_FOLDER.glob("*.toml"), load=_raw, group="nearpeak.targets"
)
"""All device files by name, as plain data."""


def user_folder() -> Path:
    """Return the folder that holds the user's own targets and calibrations."""
    return _user_folder(os.environ.get("HOME"), os.environ.get("XDG_DATA_HOME"), os.environ.get("LOCALAPPDATA"))


@lru_cache(maxsize=16)
def _user_folder(*_settings: str | None) -> Path:
    """Return the folder once for each setting of the variables that it follows from."""
    return data_folder()


def target_of(name: str, edits: Sequence[str] = ()) -> Target:
    """Return the target called `name`.

    Args:
        name: a device (`h200_sxm`), a partition or power mode of it (`h200_sxm:1g.18gb`), `cpu`, or the path
            of a TOML file of your own (`./mine.toml`), which may say `base = "h100_sxm"` and only what differs.
        edits: what-if changes such as `dram.bandwidth="8 TB/s"`; their order does not matter.

    Raises:
        UnknownNameError: no such target, partition or figure; the closest names are listed.
        SpecError: an edit or the file is malformed or contradicts itself.

    >>> target_of("h100_sxm").sm_count
    132
    >>> target_of("h100_sxm:3g.40gb", ['dram.bandwidth="2 TB/s"']).dram.bandwidth_bytes_per_s
    2000000000000.0
    """
    stem, part = _split(name)
    file = stem if stem.endswith(".toml") else f"{user_folder()}/targets/{stem}.toml"
    if file == stem or os.path.exists(file):  # a Path a call took 20 us, a prediction takes 4
        path = Path(file)
        with reading(f"target file {path}", "target"):
            return _derived(path.stem, part, tuple(sorted(edits)), _file(path), path)
    if stem == CPU:
        raise SpecError("target 'cpu': its roofs are not measured yet; run 'nearpeak calibrate roofs' (a few minutes)")
    return _shipped(stem, part, tuple(sorted(edits)))


def _file(path: Path) -> Mapping[str, Any]:
    """Return a user's device file as plain data, completed where it names a device of the catalogue as its base."""
    where = f"target file {path}"
    raw = toml_of_file(path, where)
    base = raw.get("base")
    if base is None:
        return raw
    if not isinstance(base, str) or base not in TARGETS:
        names = ", ".join(difflib.get_close_matches(str(base), TARGETS.names(), n=3)) or "h100_sxm"
        raise SpecError(f"{where}: base is {base!r}, which is no device of the catalogue; e.g. {names}")
    return based(raw, base, TARGETS[base], where)


def shipped_target(name: str) -> Target:
    """Return the target of this package that is called `name`, even if the user has a file of that name.

    >>> shipped_target("h100_sxm:1g.10gb").name
    'h100_sxm:1g.10gb'
    """
    return _shipped(*_split(name), ())


@lru_cache(maxsize=1024)
def _shipped(stem: str, part: str, edits: tuple[str, ...]) -> Target:
    """Return a target of this package or an entry point; a user's own files may change and are read anew."""
    if stem not in TARGETS:
        raise unknown_name("target", stem, (*TARGETS.names(), CPU))
    return _derived(stem, part, edits, TARGETS[stem], None)


def _derived(stem: str, part: str, edits: tuple[str, ...], raw: Mapping[str, Any], path: Path | None) -> Target:
    """Return the target of a device file; the file is checked before anything is derived from it."""
    where = f"target {stem}" if path is None else f"target file {path}"
    whole = parse_target(stem, raw, where)
    if not part and not edits:
        return whole
    derived = partitioned(raw, stem, part) if part else dict(raw)
    name = "+".join((f"{stem}:{part}" if part else stem, *edits))
    return parse_target(name, edited(derived, edits), f"target {name}")


def _split(name: str) -> tuple[str, str]:
    """Return the device, or the path of a file, and the partition of a target's name.

    >>> _split("h200_sxm:1g.18gb"), _split("./mine.toml"), _split("./mine.toml:15W")
    (('h200_sxm', '1g.18gb'), ('./mine.toml', ''), ('./mine.toml', '15W'))
    """
    if name.endswith(".toml"):
        return name, ""
    stem, colon, part = name.rpartition(":") if ".toml:" in name else name.partition(":")
    if colon and not part:
        raise SpecError(f"target {name!r}: names no partition after the colon; write {stem!r} for the whole device")
    return stem, part
