"""Machine code is kept in the user's cache folder, or nowhere."""

import os
import subprocess
import sys

import pytest

MODULE = """
from nearpeak.base.compilation import compiled_as_written


@compiled_as_written
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
