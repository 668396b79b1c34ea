"""Captures of models that are known by name, made once for all processes of a test run: no test sees who made them."""

import functools
import hashlib
import json
import os
from pathlib import Path

FOLDER = "NEARPEAK_TEST_CAPTURES"
"""Variable that names the folder of a run, to its workers and to the commands that they start."""


def share_captures():
    """Have `capture_isolated` take a capture from the folder where one lies there, and leave its own there."""
    from nearpeak.frontends import child_capture

    if FOLDER in os.environ and not hasattr(child_capture.run_isolated, "__wrapped__"):
        child_capture.run_isolated = _shared(child_capture.run_isolated, Path(os.environ[FOLDER]))


def _shared(run, folder):
    """Sources that are files or types may change between tests, and are captured anew each time."""

    @functools.wraps(run)
    def shared(function, arguments, *rest, **options):
        is_named = arguments.get("frontend", "").endswith(":capture_architecture")
        if not is_named or Path(arguments["source"]).exists():
            return run(function, arguments, *rest, **options)
        place = folder / hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()
        if not place.exists():
            own = place.with_suffix(f".{os.getpid()}")
            own.write_text(run(function, arguments, *rest, **options), encoding="utf-8")
            own.replace(place)
        return place.read_text(encoding="utf-8")

    return shared
