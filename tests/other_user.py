"""Work done as another user of this machine, in a child process that has given up its own user."""

import json
import os
import tempfile
from pathlib import Path

import pytest

OTHER = 65534
"""The user `nobody`."""


def open_to_all(folder):
    """Let every user into a test's folder and those above it, which pytest keeps to its own user, however deep it lies.

    Without it another user would be refused by a folder above, and not by what the test looks at.
    """
    top = Path(tempfile.gettempdir()).resolve()
    for place in (folder, *folder.parents):
        if place.resolve() == top or place.stat().st_uid != os.geteuid():
            break
        place.chmod(0o777)


def as_other_user(work):
    """What `work` returns as another user, as data that JSON holds; an OSError by its name.

    Everything that `work` needs is imported before: another user may not be able to read the packages.
    """
    if not hasattr(os, "setuid") or os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        answer = "no answer"
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            answer = work()
        except OSError as error:
            answer = type(error).__name__
        finally:
            os.write(writing, json.dumps(answer).encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        answer = json.loads(file.read())
    os.waitpid(child, 0)
    return answer
