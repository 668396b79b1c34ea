"""Write the test functions that take long to `slow.txt`, of what `make check JUNIT=FILE` wrote.

python tests/list_slow.py FILE
"""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).with_name("slow.txt")
MOST_S = 0.3
"""Time of a function, all its cases together, that `make check` has."""
ALWAYS = "tests/conventions/"
"""What `make check` is for, however long it takes."""


def slow_of(report: Path) -> list[str]:
    """Return the functions of a report that take longer, as `FILE::FUNCTION`, in order."""
    taken_s: dict[str, float] = defaultdict(float)
    for one in ElementTree.parse(report).iter("testcase"):
        if "file" in one.attrib and "::" not in one.attrib["name"]:
            taken_s[f"{one.attrib['file']}::{one.attrib['name'].partition('[')[0]}"] += float(one.attrib["time"])
    return sorted(name for name, time_s in taken_s.items() if time_s > MOST_S and not name.startswith(ALWAYS))


def main(report: Path) -> None:
    """Add them to those that the list has: a report of `make check` holds no others."""
    known = LIST.read_text(encoding="utf-8").split() if LIST.exists() else []
    LIST.write_text("\n".join(sorted({*known, *slow_of(report)})) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
