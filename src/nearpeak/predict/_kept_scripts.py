"""Scripts of steps in the user's cache folder, so that the first step of any process has those of the last one."""

import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.compiled import processor
from nearpeak.core.kind import Kind
from nearpeak.core.target import Target
from nearpeak.errors import SpecError
from nearpeak.folders import cache_folder, whole_file
from nearpeak.ops import OPS
from nearpeak.predict._case_scripts import Scripts
from nearpeak.predict._form import Setting
from nearpeak.predict._forms import form_of
from nearpeak.predict._remade import dumped, loaded
from nearpeak.targets import user_folder

_PACKAGE = Path(__file__).parent.parent
_READ = ("core", "ops", "predict", "targets", "theory")
"""Folders of the package whose files decide what a prediction is, beside those of the package itself."""
_DIGEST_BYTES = hashlib.sha256().digest_size
_MOST_GROUPS = 1000
"""Groups of one target: steps have some fifty, and those of a family share most of theirs."""
_MOST_FILES = 100
"""Targets, settings and versions that are kept; those that were written first go first."""


def restore(scripts: Scripts) -> None:
    """Add the scripts that earlier processes kept, once; of a file that is damaged none."""
    scripts.kept_count = 0
    scripts.path = path_of(scripts.target, scripts.setting)
    if scripts.path is not None:
        for kind, kept in _read(scripts.path, scripts.target).items():
            scripts.step_groups[kind].scripts.extend(kept)
    scripts.kept_count = _count(scripts)


def keep(scripts: Scripts) -> None:
    """Keep scripts for later processes where there are new ones; where nothing can be written each makes its own."""
    count, path, target = _count(scripts), scripts.path, scripts.target
    if count == scripts.kept_count or path is None:
        return
    scripts.kept_count = count
    with suppress(OSError, SpecError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK):
            return
        kept = _read(path, target)  # others may have kept more meanwhile
        new = {
            kind: tuple(group.scripts) for kind, group in scripts.step_groups.items()
            if len(group.scripts) > len(kept.get(kind, ())) and _can_be_kept(kind, group.scripts, target)
        }  # fmt: skip
        if new and len(kept) + len(new) <= _MOST_GROUPS:
            _write(path, dumped({**kept, **new}, target))


def _write(path: Path, payload: bytes) -> None:
    """Write a file, and take away those that were written longest ago where there are many."""
    with whole_file(path) as part:
        part.write_bytes(hashlib.sha256(payload).digest() + payload)
    for old in sorted(path.parent.glob("*.scripts"), key=lambda one: -one.stat().st_mtime_ns)[_MOST_FILES:]:
        old.unlink()


def _count(scripts: Scripts) -> int:
    return sum([len(group.scripts) for group in scripts.step_groups.values()])


def _read(path: Path, target: Target) -> Mapping[Kind, tuple[Any, ...]]:
    """Return the scripts of a file by group; none where there is none that is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return {}
    payload = data[_DIGEST_BYTES:]
    if hashlib.sha256(payload).digest() != data[:_DIGEST_BYTES]:
        return {}
    found: Mapping[Kind, tuple[Any, ...]] = loaded(payload, target)
    return found


def _can_be_kept(kind: Kind, group: Sequence[Any], target: Target) -> bool:
    """Return whether scripts follow from what `path_of` looks at alone, and name nothing that cannot be kept."""
    form = form_of(kind.op, kind.phase, target, dict(kind.dtypes), dict(kind.attributes))
    if form.calibration is not None or not (_is_own(OPS[kind.op].rule(kind.phase)) and _is_own(form.rows)):
        return False
    try:
        dumped(tuple(group), target)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError):
        return False
    return True


def _is_own(rule: Callable[..., Any]) -> bool:
    """Return whether a rule came with this package, whose files tell one version from another."""
    return rule.__module__.startswith("nearpeak.")


def path_of(target: Target, setting: Setting) -> Path | None:
    """Return where the scripts of a target in a setting are kept, by all that they follow from.

    There is no place for those that coefficients of the user's own may be behind, which change while processes run,
    and for those of code that lies in no files.
    """
    if any((user_folder() / "coefficients").glob("*.toml")):
        return None
    with suppress(OSError):
        version, devices = _version(), _digest((user_folder() / "targets").glob("*.toml"))
        digest = hashlib.sha256(repr((version, devices, target, setting)).encode()).hexdigest()
        return folder() / f"{digest}.scripts" if version else None
    return None


def folder() -> Path:
    """Return the folder of all kept scripts."""
    return cache_folder() / "scripts"


@cache
def _version() -> tuple[Any, ...]:
    """Return what tells this code, its data and what runs it from others; nothing where there are no files of it."""
    found = (path for name in _READ for kind in ("*.py", "*.toml") for path in (_PACKAGE / name).rglob(kind))
    files = [*_PACKAGE.glob("*.py"), *found]
    return (sys.implementation.cache_tag, sys.hexversion, np.__version__, processor(), _digest(files)) if files else ()


def _digest(files: Iterable[Path]) -> str:
    """Return the digest of names and contents of files; times and sizes are the same in some copies of other ones."""
    found = hashlib.sha256()
    for path in sorted(files):
        data = path.read_bytes()
        found.update(f"{path.name} {len(data)} ".encode() + data)
    return found.hexdigest()
