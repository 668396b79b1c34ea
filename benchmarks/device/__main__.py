"""`python -m benchmarks.device`: measure a device, write its report as JSON and Markdown, and show it."""

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._figures import FOLDER, ROOT
from benchmarks.device.report import device_report
from benchmarks.device.text import to_markdown, to_terminal


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when there are no faults."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("--runner", default="torch_cuda", help="what runs the cases")
    parser.add_argument("--size", default="full", choices=("small", "full"), help="small for a CPU")
    parser.add_argument("--operator", action="append", default=[], help="check only these; all by default")
    options = parser.parse_args(arguments)
    report = device_report(options.runner, options.size, tuple(options.operator), say=_say, keep=save)
    print(to_terminal(report))
    for path in save(report):
        _say(f"wrote {path}")
    return 1 if report["faults"] else 0


def save(report: dict[str, Any], figures: Path = FOLDER, built: Path = ROOT / "build") -> tuple[Path, ...]:
    """Write the report beside the figures as JSON, and as Markdown where built files go; return both paths.

    What is not finished lies where built files go until it is, from when on the device is known, and is never half a
    file. A folder that may not be written to is replaced by the system's for temporary files.
    """
    if not report["target"] and not report["finished"]:
        return ()
    name = report["target"] or "unknown"
    unfinished = [built / f"device_report_{name}.unfinished.{suffix}" for suffix in ("json", "md")]
    whole = [figures / "device" / f"{name}.json", built / f"device_report_{name}.md"]
    texts = (json.dumps(report, indent=1, ensure_ascii=False) + "\n", to_markdown(report))
    paths = zip(whole if report["finished"] else unfinished, texts, strict=True)
    written = tuple(_written(path, text) for path, text in paths)
    for path in unfinished if report["finished"] else ():
        with contextlib.suppress(OSError):  # none was written where none may be
            path.unlink()
    return written


def _written(path: Path, text: str) -> Path:
    """Write one file in one step, and return where."""
    for place in (path, Path(tempfile.gettempdir()) / path.name):
        part = place.with_name(f"{place.name}.part")
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            part.replace(place)
        except OSError as error:
            _say(f"{place}: {error}")
            continue
        return place
    return path


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
