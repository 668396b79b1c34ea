"""The plug-in as if installed: on the module path, with the entry points of its pyproject.toml."""

import sys
import tomllib
from pathlib import Path

import pytest

from nearpeak.base import registry
from nearpeak.measurement.runners import RUNNERS
from nearpeak.validation.adapters import ADAPTERS

FOLDER = Path(__file__).parents[1]
sys.path[:0] = [str(FOLDER), str(FOLDER / "tests")]


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch, tmp_path_factory):
    """Write what pip writes of an installed package, and forget what was read before and after."""
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path_factory.mktemp("site")
    info = site / f"nearpeak_beaverpy-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    lines = [line for group, names in groups for line in (f"[{group}]", *(f"{k} = {v}" for k, v in names.items()))]
    (info / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(site)
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()
    for things in (RUNNERS, ADAPTERS):
        things._loaded.pop("beaverpy", None)
