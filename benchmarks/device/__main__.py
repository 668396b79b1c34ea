"""`python -m benchmarks.device`: measure a device, write its report as JSON and Markdown, and show it."""

import argparse
import json
import sys
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
    report = device_report(options.runner, options.size, tuple(options.operator), say=_say)
    for path in save(report):
        _say(f"wrote {path}")
    print(to_terminal(report))
    return 1 if report["faults"] else 0


def save(report: dict[str, Any], figures: Path = FOLDER, built: Path = ROOT / "build") -> tuple[Path, Path]:
    """Write the report beside the figures as JSON, and as Markdown where built files go; return both paths."""
    name = report["target"] or "unknown"
    files = (figures / "device" / f"{name}.json", built / f"device_report_{name}.md")
    for path, text in zip(
        files, (json.dumps(report, indent=1, ensure_ascii=False) + "\n", to_markdown(report)), strict=True
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return files


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
