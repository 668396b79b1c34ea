"""The built wheel: complete, and useful in an environment that holds nothing but it and the core's dependencies."""

import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    """An environment with the wheel and the core's dependencies, linked from here, so that no network is needed."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    for name in sorted(core_distributions()):
        link(metadata.distribution(name), packages)
    command = [sys.executable, "-m", "pip", "--python", str(folder), "install", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder / "bin"


def core_distributions():
    """What `pip install nearpeak` without an extra brings, by name, dependencies of dependencies included."""
    found, left = set(), [re.split(r"[ <>=!~;\[]", line)[0] for line in _required("nearpeak")]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [re.split(r"[ <>=!~;\[(]", line)[0] for line in _required(name)]
    return found


def _required(name):
    from packaging.requirements import Requirement

    lines = metadata.requires(name) or []
    return [line for line in lines if (r := Requirement(line)).marker is None or r.marker.evaluate({"extra": ""})]


def link(distribution, packages):
    """Link the top folders and files of an installed distribution."""
    for top in {file.parts[0] for file in distribution.files or ()}:
        source = Path(distribution.locate_file(top))
        if top not in ("..", "__pycache__") and source.exists() and not (packages / top).exists():
            (packages / top).symlink_to(source)


def run(environment, *command, code=0):
    place = {"PATH": str(environment), "HOME": str(environment), "LC_ALL": "C.UTF-8", "XDG_DATA_HOME": str(environment)}
    full = [str(environment / command[0]), *command[1:]]
    done = subprocess.run(full, capture_output=True, text=True, check=False, timeout=60, env=place, cwd=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_wheel_holds_every_file_that_the_program_reads(wheel):
    package = ROOT / "src"
    wanted = {
        str(p.relative_to(package)) for p in (package / "nearpeak").rglob("*") if p.is_file() and p.suffix != ".pyc"
    }
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wanted - names == set()
    assert sum(name.startswith("nearpeak/targets/") and name.endswith(".toml") for name in names) >= 20
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not [name for name in names if name.startswith("tests")]


def test_light_core_answers_without_any_framework(environment):
    assert "analyze" in run(environment, "nearpeak", "--help")
    assert "h100_sxm" in run(environment, "nearpeak", "show", "targets")
    assert "gemm" in run(environment, "nearpeak", "show", "ops")
    answer = run(environment, "nearpeak", "bound", "gemm", "m=8", "n=8", "k=8", "dtype=bf16", "--target", "h100_sxm")
    assert "dram" in answer
    assert "frameworks: []" in run(environment, "python", "-c", FRAMEWORKS)


FRAMEWORKS = """
import importlib.util as u
print("frameworks:", [n for n in ("torch", "onnx", "transformers", "duckdb") if u.find_spec(n)])
"""


def test_a_shipped_step_answers_and_a_missing_framework_is_named_with_the_extra_that_installs_it(environment, tmp_path):
    assert "an image" in run(environment, "nearpeak", "analyze", "resnet-50", "--target", "h100_sxm", "--text")
    report = run(environment, "nearpeak", "analyze", "reformer-enwik8", "--target", "h100_sxm", code=3)
    assert re.search(r"nearpeak\[\w+\]", report)
    assert "Traceback" not in report
    assert report.strip().count("\n") == 0
    onnx = tmp_path / "model.onnx"
    onnx.write_bytes(b"\x08\x08")
    assert "nearpeak[onnx]" in run(environment, "nearpeak", "analyze", str(onnx), "--target", "h100_sxm", code=3)
