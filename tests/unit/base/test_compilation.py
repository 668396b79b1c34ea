"""Machine code is kept in the user's cache folder, or nowhere."""

import os
import subprocess
import sys

import pytest

MODULE = """
from nearpeak.base.compilation import ALWAYS_COMPILED, compiled


@compiled(ALWAYS_COMPILED)
def twice(x):
    return 2.0 * x


print(twice(21.0))
"""


@pytest.mark.parametrize("can_be_written", [True, False])
def test_what_is_compiled_is_kept_where_the_user_s_folder_can_be_written_and_never_beside_the_code(
    tmp_path, can_be_written
):
    code, cache = tmp_path / "code", tmp_path / "cache"
    code.mkdir()
    (code / "doubling.py").write_text(MODULE)
    if not can_be_written:
        cache.write_text("no folder")
    found = subprocess.run(
        [sys.executable, str(code / "doubling.py")], capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (0, "42.0\n"), found.stderr
    assert [path.name for path in code.iterdir()] == ["doubling.py"]
    assert bool(list(cache.rglob("*.nbi"))) is can_be_written


@pytest.mark.slow
def test_damaged_machine_code_is_compiled_again(tmp_path):
    (tmp_path / "doubling.py").write_text(MODULE)
    cache = tmp_path / "cache"

    def answer():
        done = subprocess.run(
            [sys.executable, str(tmp_path / "doubling.py")], capture_output=True, text=True, check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        return done.stdout or done.stderr

    assert answer() == "42.0\n"
    (code,) = cache.rglob("*.nbc")
    code.write_bytes(code.read_bytes()[:-9])
    assert answer() == "42.0\n"
    (index,) = cache.rglob("*.nbi")
    index.write_bytes(b"garbage")
    assert answer() == "42.0\n"


def test_on_a_full_disk_nothing_is_kept_and_everything_works(tmp_path):
    (tmp_path / "doubling.py").write_text(MODULE)
    code = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)); runpy.run_path(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "doubling.py")], capture_output=True, text=True, check=False,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "42.0\n"), done.stderr


def test_a_user_without_a_home_and_a_cache_gets_every_answer(tmp_path):
    home = tmp_path / "no folder"
    home.write_text("a file, in which nobody can make folders")
    named = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    words = ["predict", "gemm", "m=64", "n=64", "k=64", "dtype=bf16", "--target", "h100_sxm", "--text"]
    done = subprocess.run(
        [sys.executable, "-m", "nearpeak", *words], capture_output=True, encoding="utf-8", check=False,
        env={**named, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "gemm" in done.stdout
