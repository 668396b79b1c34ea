"""A gate decision as SARIF 2.1.0, which code hosts show next to the changed lines."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from nearpeak.base.canonical_json import digest
from nearpeak.core.history.gate import INCONCLUSIVE, PASS, GateLine, GateResult
from nearpeak.errors import INCONCLUSIVE_CODE

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_RESULTS = 5000
"""Results shown by hosts for one run; a longer file is refused by some."""


def render(result: GateResult) -> str:
    """Return the result as SARIF; lines that pass are results of kind `pass`.

    A series has no line of a source file: results point to the policy, and name the series as a logical location.
    """
    names = [rule.name for rule in result.policy.rules]
    return sarif_text(
        {name: f"Performance rule: {name}" for name in names}, f"nearpeak-gate/{result.policy.name}/",
        [_result(line, names, result.policy.source) for line in result.lines],
        {"verdict": result.verdict, "exitCode": result.exit_code, "revision": result.revision},
    )  # fmt: skip


def sarif_text(
    rules: Mapping[str, str], category: str, results: Sequence[Mapping[str, Any]], properties: Mapping[str, Any]
) -> str:
    """Return one run as a SARIF log.

    Args:
        rules: descriptions by identifier.
        category: what sets this run apart from others on the same revision; it ends in a slash.
        results: of which the first MOST_RESULTS are written.
    """
    described = [{"id": name, "shortDescription": {"text": text}} for name, text in rules.items()]
    run = {
        "tool": {"driver": {"name": "nearpeak", **_version(), "rules": described}},
        "automationDetails": {"id": category}, "results": list(results[:MOST_RESULTS]), "properties": dict(properties),
    }  # fmt: skip
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def artifact_place(source: str) -> dict[str, Any]:
    """Return a physical location in a file of the repository that has no lines of its own."""
    return {"artifactLocation": {"uri": source.replace("\\", "/").removeprefix("./")}, "region": {"startLine": 1}}


def _result(line: GateLine, names: list[str], source: str) -> dict[str, Any]:
    kind, level = ("pass", "none") if line.verdict == PASS else ("review", "none")
    if line.verdict != PASS and line.exit_code:  # the format allows a level other than none for the kind `fail` alone
        is_open = line.verdict == INCONCLUSIVE and line.exit_code == INCONCLUSIVE_CODE
        kind, level = "fail", "warning" if is_open else "error"
    return {
        "ruleId": line.rule,
        "ruleIndex": names.index(line.rule),
        "kind": kind,
        "level": level,
        "message": {"text": f"{line.series or 'no series'}: {line.text}"},
        "locations": [
            {"physicalLocation": artifact_place(source), "logicalLocations": [{"name": line.series or "no series"}]}
        ],
        "partialFingerprints": {"nearpeakSeries/v1": digest([line.rule, line.series])[:32]},
    }


def _version() -> dict[str, str]:
    try:
        return {"version": version("nearpeak")}
    except PackageNotFoundError:
        return {}
