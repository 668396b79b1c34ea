"""A pytest of its own, in a process forked from one that has imported PyTorch."""

import contextlib
import io
import os

import pytest

WORDS = ("-p", "nearpeak.pytest_plugin", "-p", "no:cacheprovider", "-q", "-rA")


def said_in(folder):
    """What pytest says about the tests of a folder."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    os.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        pytest.main([*WORDS, "--rootdir", folder, folder])
    return said.getvalue()
