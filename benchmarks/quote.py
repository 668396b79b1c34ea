"""Keep the figures in documents equal to the measured ones: `--check` compares, `--write` replaces.

A document quotes a figure between two comments: `<!--figure:NAME-->` value `<!--/figure-->`.
"""

import argparse
import re
import sys
from pathlib import Path

from benchmarks._figures import ROOT, show_value, stored

_QUOTE = re.compile(r"<!--figure:([a-z0-9_]+)-->(.*?)<!--/figure-->", re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    """Check or rewrite README.md and docs; return 0 when every quoted figure is the measured one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quote", description=__doc__)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--check", action="store_true", help="say which quotes differ from the figures")
    mode.add_argument("--write", action="store_true", help="put the measured figures into the documents")
    options = parser.parse_args(arguments)
    figures = {name: show_value(float(str(r["value"])), str(r["unit"])) for name, r in stored().items()}
    wrong = []
    for path in documents():
        text = path.read_text(encoding="utf-8")
        wrong += [f"{path.relative_to(ROOT)}: {problem}" for problem in misquotes(text, figures)]
        if options.write:
            path.write_text(quoted(text, figures), encoding="utf-8")
    left = wrong if options.check else [problem for problem in wrong if "no such figure" in problem]
    print("\n".join(left), end="\n" if left else "")
    return 1 if left else 0


def documents() -> list[Path]:
    """Return the documents that may quote figures."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def misquotes(text: str, figures: dict[str, str]) -> list[str]:
    """Return one line for each quote that is not the measured figure.

    >>> misquotes("in <!--figure:start-->9 s<!--/figure-->", {"start": "0.2 s"})
    ['start: quoted as 9 s, measured 0.2 s']
    """
    found = []
    for name, value in _QUOTE.findall(text):
        if name not in figures:
            found.append(f"{name}: no such figure in docs/lab/figures; 'make bench' measures them")
        elif value.strip() != figures[name]:
            found.append(f"{name}: quoted as {value.strip()}, measured {figures[name]}")
    return found


def quoted(text: str, figures: dict[str, str]) -> str:
    """Return `text` with the measured figures in its quotes."""
    return _QUOTE.sub(lambda m: f"<!--figure:{m[1]}-->{figures.get(m[1], m[2])}<!--/figure-->", text)


if __name__ == "__main__":
    sys.exit(main())
