"""A gate decision as SARIF 2.1.0, which code hosts show next to the changed lines."""

import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from nearpeak.base.canonical_json import digest
from nearpeak.core.history.gate import INCONCLUSIVE, INCONCLUSIVE_CODE, PASS, GateLine, GateResult

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_RESULTS = 5000
"""Results shown by hosts for one run; a longer file is refused by some."""


def render(result: GateResult) -> str:
    """Return the result as SARIF; lines that pass are results of kind `pass`.

    A series has no line of a source file: results point to the policy, and name the series as a logical location.
    """
    names = [rule.name for rule in result.policy.rules]
    rules = [{"id": name, "shortDescription": {"text": f"Performance rule: {name}"}} for name in names]
    run = {
        "tool": {"driver": {"name": "nearpeak", **_version(), "rules": rules}},
        "automationDetails": {"id": f"nearpeak-gate/{result.policy.name}/"},
        "results": [_result(line, names, result.policy.source) for line in result.lines[:MOST_RESULTS]],
        "properties": {"verdict": result.verdict, "exitCode": result.exit_code, "revision": result.revision},
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1, allow_nan=False) + "\n"


def _result(line: GateLine, names: list[str], source: str) -> dict[str, Any]:
    kind, level = ("pass", "none") if line.verdict == PASS else ("review", "none")
    if line.verdict != PASS and line.exit_code:  # the format allows a level other than none for the kind `fail` alone
        is_open = line.verdict == INCONCLUSIVE and line.exit_code == INCONCLUSIVE_CODE
        kind, level = "fail", "warning" if is_open else "error"
    place = {"artifactLocation": {"uri": source.replace("\\", "/").removeprefix("./")}, "region": {"startLine": 1}}
    return {
        "ruleId": line.rule,
        "ruleIndex": names.index(line.rule),
        "kind": kind,
        "level": level,
        "message": {"text": f"{line.series or 'no series'}: {line.text}"},
        "locations": [{"physicalLocation": place, "logicalLocations": [{"name": line.series or "no series"}]}],
        "partialFingerprints": {"nearpeakSeries/v1": digest([line.rule, line.series])[:32]},
    }


def _version() -> dict[str, str]:
    try:
        return {"version": version("nearpeak")}
    except PackageNotFoundError:
        return {}
