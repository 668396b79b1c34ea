"""A gate decision as JUnit XML: a suite per rule, a test case per series."""

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from nearpeak.core.history.gate import FAIL, PASS, GateLine, GateResult
from nearpeak.errors import SLOWER_CODE

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold."""


def render(result: GateResult) -> str:
    """Return the result as JUnit XML.

    A line that fails is a failure; one that cannot tell is an error where it stops the gate, and skipped where the
    policy lets it pass.
    """
    names = [rule.name for rule in result.policy.rules]
    groups = {name: [judged for judged in result.lines if judged.rule == name] for name in names}
    whole = ElementTree.Element("testsuites", _counts(result.lines) | {"name": _safe(result.policy.name)})
    for name, lines in groups.items():
        suite = ElementTree.SubElement(whole, "testsuite", _counts(lines) | {"name": _safe(name)})
        for line in lines:
            _case(suite, line)
    ElementTree.indent(whole, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(whole, encoding="unicode") + "\n"


def _kind(line: GateLine) -> str:
    """Return the element that says how a case ended; empty where it passed."""
    if line.verdict == PASS:
        return ""
    if line.verdict == FAIL or line.exit_code == SLOWER_CODE:
        return "failure"
    return "error" if line.exit_code else "skipped"


def _case(suite: ElementTree.Element, line: GateLine) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": _safe(line.rule), "name": _safe(line.series or "no series")}
    )
    kind = _kind(line)
    if kind:
        ElementTree.SubElement(case, kind, {"message": _safe(line.text)})
    else:
        ElementTree.SubElement(case, "system-out").text = _safe(line.text)


def _counts(lines: Sequence[GateLine]) -> dict[str, str]:
    kinds = [_kind(line) for line in lines]
    counts = {"tests": len(lines), "failures": kinds.count("failure"), "errors": kinds.count("error")}
    return {name: str(count) for name, count in (counts | {"skipped": kinds.count("skipped")}).items()}


def _safe(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
